"""`check_shapes`: a function and ranges of sizes in; what its lines need, and if it is right."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch

from tc.compiler.ahead.calls import NotAhead, frame_of, parameters_of
from tc.compiler.ahead.causes import SPECIAL, Cause, Fix, Looked, causes_of
from tc.compiler.ahead.compiling import Covered, cover, questions_of, sizes_text, typical
from tc.compiler.ahead.inputs import spec_of
from tc.compiler.ahead.precompile import compiled_of
from tc.compiler.ahead.specs import Case, Range, Spec, TensorInput
from tc.compiler.ahead.trials import raised_by, tried
from tc.compiler.backends.registry import lookup_backend
from tc.compiler.capture import hook
from tc.compiler.capture.guards.guard_list import refusals
from tc.compiler.core.settings import require_counts
from tc.compiler.errors import OptionError
from tc.compiler.frames import FrameCompiler
from tc.compiler.frontend.modules import OptimizedModule
from tc.compiler.sentinel.copies import unseen
from tc.trace.notebook import Item, Shown, View
from tc.trace.words import count

#: sizes that are captured before it is given up that any can be
TRIES = 24


@dataclass(frozen=True)
class Code:
    """What one compiled code serves.

    Attributes:
        sizes: those looked at, in order.
    """

    sizes: tuple[Mapping[str, int], ...]

    def __str__(self) -> str:
        """Sizes in few words."""
        parts = []
        for name in self.sizes[0]:
            values = sorted({one[name] for one in self.sizes})
            parts.append(f"{name}={_short(values)}")
        return ", ".join(parts) or "all"


@dataclass(frozen=True)
class ShapeCheck(Shown):
    """What `check_shapes` found.

    Attributes:
        inputs: what was checked.
        looks: combinations of sizes that were looked at.
        codes: what each compiled code serves; the one with symbols first.
        causes: lines because of which one code does not serve all sizes.
        unexplained: sizes with code of their own for another reason, and the reason.
        failed: sizes that cannot be compiled, and why.
        remains: what is compiled at calls, with their values: what follows graph breaks.
        raised: sizes at which the function itself raises, and what.
        wrong: sizes at which compiled code differs from eager, and how.
        runs: calls that were compared, and how many of them with gradients.
    """

    inputs: str
    looks: int
    codes: tuple[Code, ...]
    causes: tuple[Cause, ...]
    unexplained: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    remains: tuple[str, ...] = ()
    raised: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()
    runs: tuple[int, int] = (0, 0)

    @property
    def ok(self) -> bool:
        """Whether one code serves all sizes but 0 and 1, and no result was wrong."""
        return not (self.causes or self.unexplained or self.failed or self.wrong)

    @property
    def _title(self) -> str:
        right = "wrong" if self.wrong else "right"
        calls, backward = self.runs
        found = f"{self.inputs}: {count(len(self.codes), 'code')} for {self.looks} sizes"
        lines = count(len(self.causes), "line") + (" needs" if len(self.causes) == 1 else " need")
        found += f"; {lines} more of a size" if self.causes else ""
        if calls:
            found += f"; {right} in {count(calls, 'call')}, {backward} with gradients"
        return found

    def _rows(self) -> list[tuple[str, str]]:
        rows = [("code", f"{one}  ({_served(one)})") for one in self.codes]
        for label in ("wrong", "failed", "raised", "unexplained", "remains"):
            rows += [(label, text) for text in getattr(self, label)]
        return rows

    def __str__(self) -> str:
        lines = [self._title]
        for cause in self.causes:
            lines += [f"  {cause.place}  {cause.source}", f"      {_words(cause)}"]
            for fix in cause.fixes:
                lines.append(f"      {'fix' if fix is cause.fixes[0] else 'or'}: {_fix_text(fix)}")
        return "\n".join([*lines, *(f"  {label}: {text}" for label, text in self._rows())])

    def as_view(self) -> View:
        """See `Shown`."""
        items = [
            Item.of(
                "", cause.kind, cause.place, cause.source, rows=[("asks", _words(cause))],
                fixes=[(fix.code, "verified" if fix.works else "review") for fix in cause.fixes],
            )
            for cause in self.causes
        ]  # fmt: skip
        items.append(Item.of("", "sizes", "", None, rows=self._rows()))
        return View("explanation", str(self), {"title": self._title, "causes": items, "graphs": []})


def _served(code: Code) -> str:
    special = all(set(one.values()) & set(SPECIAL) for one in code.sizes)
    own = ", as 0 and 1 always have their own code" if special else ""
    return count(len(code.sizes), "size") + own


def _words(cause: Cause) -> str:
    least = f"not for {sizes_text(cause.without)}"
    so = {
        "constant": "takes the size for a constant",
        "divisible": "needs a divisible size",
        "related": "compares two sizes",
        "range": "distinguishes sizes",
    }[cause.kind]
    return f"{so}: {cause.asks} holds for {cause.holds} of {cause.of} sizes, {least}"


def _fix_text(fix: Fix) -> str:
    return f"{fix.code}  ({'verified' if fix.works else 'review'})"


def _short(values: Sequence[int]) -> str:
    if len(values) > 3:
        steps = {b - a for a, b in itertools.pairwise(values)}
        if len(steps) == 1 or (max(steps) > 1 and len(values) > 16):
            step = min(steps)
            return str(Range(values[0], values[-1], step if len(steps) == 1 else 1))
    shown = "|".join(map(str, values[:6]))
    return shown + (f"|… {values[-1]}" if len(values) > 6 else "")


def check_shapes(
    fn: Any,
    inputs: Any = None,
    *,
    shapes_spec: Any = None,
    sizes: Mapping[str, Any] | None = None,
    runs: int = 6,
    seed: int = 0,
    backward: bool = True,
    **settings: Any,
) -> ShapeCheck:
    """Find out whether one compiled code serves a range of sizes, which lines prevent it, and why.

    The function is captured with a symbol for each range, and every question that its lines ask of
    a size is noted. A line is reported if the answer is another one for other sizes of the range,
    and those have other code. Then code is compiled until the whole range has some, up to the
    recompile limit, and called: at both ends of what each code serves, and at random sizes.
    Results, writes to inputs and buffers, and gradients may differ from eager's by rounding alone.

    The function runs, by eager and compiled, on random values (integers are 0 and 1). Parameters,
    buffers and random state are put back; its other side effects stay.

    Args:
        fn: a function or module, compiled or not.
        inputs, shapes_spec, sizes: as `precompile` takes them, with at least one range.
        runs: calls with random sizes, besides those at the ends; 0: no calls at all.
        seed: of sizes and values.
        backward: give floating-point inputs that are described gradients.
        settings: as `compile` takes them; ``fn`` that is compiled has its own.

    Returns:
        What was found; printed, it names lines and fixes. A fix marked as verified was tried: the
        function was captured for the inputs that it leaves.

    Raises:
        OptionError: the inputs cannot be followed, or hold no range.

    Example:
        >>> import tc, torch
        >>> def f(x):
        ...     return x * 2 if x.shape[0] > 8 else x
        >>> found = tc.check_shapes(f, "x=2..16")
        >>> for cause in found.causes:
        ...     print(cause.kind, cause.asks)
        range x.shape[0] > 8
    """
    target, compiler = compiled_of("tc.check_shapes", fn, settings)
    require_counts(runs=runs, seed=seed)
    spec = spec_of(inputs, shapes_spec, sizes, parameters_of(target))
    if backward and torch.is_grad_enabled():
        spec = _with_gradients(spec)
    cases = [case for case in spec.cases() if any(isinstance(one, Range) for one in case.values())]
    if len(cases) != 1:
        raise OptionError(
            f'tc.check_shapes takes inputs with ranges of sizes, such as "x=2..64,8"; '
            f"{spec.text(spec.cases()[0])!r} "
            + ("holds none" if not cases else "holds several for one size: check one at a time")
        )
    with _apart(target, compiler) as own:
        return _Check(target, own, spec, cases[0]).found(runs, seed)


def _with_gradients(spec: Spec) -> Spec:
    from torch.utils import _pytree as pytree

    def value(leaf: Any) -> Any:
        if isinstance(leaf, TensorInput) and leaf.dtype.is_floating_point:
            return replace(leaf, requires_grad=True)
        return leaf

    args, kwargs = pytree.tree_map(value, (spec.args, dict(spec.kwargs)))
    return replace(spec, args=args, kwargs=kwargs)


@contextmanager
def _apart(target: Any, compiler: FrameCompiler) -> Iterator[FrameCompiler]:
    """Return a compiler whose code nobody else uses, and remove that code after the block."""
    own = replace(compiler, options=replace(compiler.options, region=object()))
    known = {id(code): dict(hook.state_of(code)) for code in compiler.process.code_objects.values()}
    try:
        yield own
    finally:
        for code in list(compiler.process.code_objects.values()):
            hook.drop_entries(code, own)
            state = hook.state_of(code)
            state.clear()
            state.update(known.get(id(code), {}))


class _Check:
    """One function, with one case of a spec."""

    def __init__(self, target: Any, compiler: FrameCompiler, spec: Spec, case: Case) -> None:
        self.target, self.compiler, self.spec, self.case = target, compiler, spec, case
        eager = replace(
            compiler.options, backend=lookup_backend("eager"), backend_name="eager",
            region=object(), recompile_limit=10**6,
        )  # fmt: skip
        self.asking = replace(compiler, options=eager)

    def found(self, runs: int, seed: int) -> ShapeCheck:
        """Return the result."""
        covered = cover(self.target, self.compiler, self.spec, self.case)
        refused = self._raised_at(covered.left, seed) if runs else {}
        covered = self._covered_where_it_runs(covered, refused)
        looked = self._looked(self.spec, self.case)
        served: dict[str, list[Looked]] = {}
        for one in looked:
            if one.code is not None:
                served.setdefault(one.code, []).append(one)
        codes = sorted(served.values(), key=len, reverse=True)
        main = [dict(one.sizes) for one in codes[0]] if codes else []
        if any(one.error for one in covered.compiles):  # sizes without code may be no sizes of it
            looked = [one for one in looked if one.code is not None]
        causes = self._causes(self.spec, self.case, looked, main)
        causes = [self._with_fixes_tried(cause) for cause in causes]
        wrong, raised, counts = self._runs(covered, codes, runs, seed)
        raised |= refused
        failed = {sizes_text(one.sizes): one.error for one in covered.compiles if one.error}
        return ShapeCheck(
            self.spec.text(self.case),
            len(looked),
            tuple(Code(tuple(one.sizes for one in group)) for group in codes),
            tuple(causes),
            tuple(self._unexplained(codes, causes)),
            tuple(f"{sizes}: {why}" for sizes, why in failed.items() if sizes not in raised),
            covered.remains,
            tuple(_grouped(raised)),
            tuple(wrong),
            counts,
        )

    def _looked(self, spec: Spec, case: Case, read: Sequence[str] = ()) -> list[Looked]:
        return [self._look(spec, case, sizes, read) for sizes in spec.looks(case)]

    @contextmanager
    def _frame(self, spec: Spec, case: Case, sizes: dict[str, int]) -> Iterator[hook.Frame]:
        with ExitStack() as stack:
            args, kwargs = stack.enter_context(spec.inputs(sizes, case))
            yield stack.enter_context(frame_of(self.target, args, kwargs))

    def _look(self, spec: Spec, case: Case, sizes: dict[str, int], read: Sequence[str]) -> Looked:
        try:
            with self._frame(spec, case, sizes) as frame:
                entry = hook.code_for(frame, self.compiler)
                scope = {"L": frame.locals, "G": frame.globals}
                values = {text: int(eval(text, scope)) for text in read}
        except NotAhead:
            return Looked(sizes, {}, None)
        return Looked(sizes, values, None if entry is None else entry.compile_id)

    def _causes(
        self, spec: Spec, case: Case, looked: Sequence[Looked], main: list[dict[str, int]] | None
    ) -> list[Cause]:
        """Return why sizes have other code.

        Args:
            main: sizes that the most important code serves; None: nothing was compiled, so any
                size may have other code.
        """
        sizes: dict[str, int] | None
        tries = _in_order(spec, [dict(one.sizes) for one in looked])
        if main:
            tries = [typical(main, main, spec), *tries]
        for sizes in tries[:TRIES]:
            with unseen(), spec.inputs(sizes, case) as (args, kwargs):
                questions, error = questions_of(self.target, self.asking, args, kwargs)
            if not error:
                break
        else:
            return []
        read = sorted({text for one in questions for text in one.sources.values()})
        kept = [one.sizes for one in looked]
        again = [one for one in self._looked(spec, case, read) if one.sizes in kept]
        traced = self._look(spec, case, sizes, read)
        if main is None:
            again = [replace(one, code=str(number)) for number, one in enumerate(again)]
            traced = replace(traced, code="traced")
        again = [traced if one.sizes == traced.sizes else one for one in again]
        return causes_of(questions, again, traced, spec, case)

    def _with_fixes_tried(self, cause: Cause) -> Cause:
        """Capture the function again for the inputs that each fix leaves."""
        fixes = []
        for fix in cause.fixes:
            if fix.spec is not None:
                case = fix.spec.cases()[0]
                left = self._causes(fix.spec, case, self._looked(fix.spec, case), None)
                same = [one for one in left if (one.file, one.line) == (cause.file, cause.line)]
                fix = replace(fix, works=not same)
            fixes.append(fix)
        fixes.sort(key=lambda fix: not fix.works)
        return replace(cause, fixes=tuple(fixes))

    def _unexplained(
        self, codes: Sequence[Sequence[Looked]], causes: Sequence[Cause]
    ) -> Iterator[str]:
        """Yield groups of sizes that no cause separates from the first, but for 0 and 1."""
        if causes or len(codes) < 2:
            return
        main = codes[0][0]
        for group in codes[1:]:
            plain = [one for one in group if not set(one.sizes.values()) & set(SPECIAL)]
            if plain:
                yield f"{sizes_text(plain[0].sizes)}: {self._refusal(main, plain[0])}"

    def _refusal(self, main: Looked, other: Looked) -> str:
        """Return what the guards of some code say against other sizes."""
        with self._frame(self.spec, self.case, dict(other.sizes)) as frame:
            entries = hook.cache_entries(frame.code, self.compiler)
            guards = [one.guards for one in entries if one.compile_id == main.code]
            _, failures = refusals(guards, frame.locals, frame.globals)
        texts = [f"{one} ({one.text})" for one in failures[:2]]
        return "; ".join(texts) or "no guard says why"

    def _runs(
        self, covered: Covered, codes: Sequence[Sequence[Looked]], runs: int, seed: int
    ) -> tuple[list[str], dict[str, str], tuple[int, int]]:
        """Call the function at sizes of each code, and at random ones."""
        if not runs:
            return [], {}, (0, 0)
        if isinstance(self.target, torch.nn.Module):
            compiled: Any = OptimizedModule(self.target, self.compiler)
        else:
            compiled = hook.wrap(self.target, self.compiler)
        with_code = [dict(one.sizes) for group in codes for one in group]
        chosen = [dict(one.sizes) for group in codes for one in (group[0], group[-1])]
        chosen += [dict(one.sizes) for one in covered.compiles if one.error]
        draw = random.Random(seed)
        chosen += [draw.choice(with_code) for _ in range(runs if with_code else 0)]
        wrong: list[str] = []
        raised: dict[str, str] = {}
        calls = backward = 0
        for number, sizes in enumerate({sizes_text(one): one for one in chosen}.values()):
            with self.spec.inputs(sizes, self.case) as inputs:
                trial = tried(self.target, compiled, inputs, seed + number)
            calls += not trial.raised
            backward += trial.backward
            if trial.wrong:
                wrong.append(f"{sizes_text(sizes)}: {trial.wrong}")
            if trial.raised:
                raised[sizes_text(sizes)] = trial.raised
        return wrong, raised, (calls, backward)

    def _covered_where_it_runs(self, covered: Covered, refused: Mapping[str, str]) -> Covered:
        """Compile for the sizes that are left and not refused by the function itself."""
        fine = [dict(one) for one in covered.left if sizes_text(one) not in refused]
        if not covered.gave_up or not refused:
            return replace(covered, left=tuple(fine))
        if not fine:
            return replace(covered, left=())
        more = cover(self.target, self.compiler, self.spec, self.case, fine)
        return replace(more, text=covered.text, compiles=(*covered.compiles, *more.compiles))

    def _raised_at(self, left: Sequence[Mapping[str, int]], seed: int) -> dict[str, str]:
        """Return which sizes without code the function itself refuses, and what it raises."""
        found = {}
        for sizes in left:
            with self.spec.inputs(dict(sizes), self.case) as inputs:
                if error := raised_by(self.target, inputs, seed):
                    found[sizes_text(sizes)] = error
        return found


def _grouped(raised: Mapping[str, str]) -> Iterator[str]:
    """Yield what is raised, with the sizes at which it is, errors alike together."""
    alike: dict[str, list[str]] = {}
    for sizes, error in raised.items():
        alike.setdefault(re.sub(r"\d+", "#", error), []).append(sizes)
    for group in alike.values():
        more = f" and at {len(group) - 3} more" if len(group) > 3 else ""
        yield f"{'; '.join(group[:3])}{more}: {raised[group[0]]}"


def _in_order(spec: Spec, looks: list[dict[str, int]]) -> list[dict[str, int]]:
    """Return sizes, the typical ones first."""
    left, found = list(looks), list[dict[str, int]]()
    while left and len(found) < TRIES:
        found.append(typical(left, looks, spec, equal=len(found) % 2 == 1))
        left.remove(found[-1])
    return found
