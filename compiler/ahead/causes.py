"""Why one graph does not serve all sizes: questions on sizes in; causes, with fixes, out."""

from __future__ import annotations

import functools
import itertools
import linecache
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tc.compiler.ahead.specs import Case, Range, Spec
from tc.compiler.core.ahead import Question

#: sizes that have code of their own whatever the code asks, because they broadcast
SPECIAL = (0, 1)
_LOCAL = re.compile(r"L\['(\w+)'\]")
_SIZE = re.compile(r"\.size\(\)\[(\d+)\]")
_TENSOR_SIZE = re.compile(r"(.+)\.shape\[(\d+)\]")

#: what a look at sizes finds: size of each variable, and of each size that is read
Sizes = Mapping[str, int]


@dataclass(frozen=True)
class Fix:
    """A way to have one graph.

    Attributes:
        code: to write.
        spec: the inputs that it leaves; None: it changes the function, which is for people.
        works: whether the function was captured again for these inputs, and has no such cause.
    """

    code: str
    spec: Spec | None = field(default=None, compare=False)
    works: bool = False


@dataclass(frozen=True)
class Cause:
    """A line that asks something of sizes that is not so for all of them.

    Attributes:
        kind: ``constant``: the answer holds for one size; ``divisible``, ``related``: two sizes,
            ``range``.
        asks: the condition that holds in the graph, as Python.
        holds: how many of the sizes that were looked at fulfil it, ``of`` how many.
        without: one combination of sizes that does not.
    """

    kind: str
    file: str
    line: int
    asks: str
    holds: int
    of: int
    without: Sizes
    fixes: tuple[Fix, ...] = ()

    @property
    def source(self) -> str:
        """The line."""
        return linecache.getline(self.file, self.line).strip()

    @property
    def place(self) -> str:
        """Where it is."""
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class Looked:
    """Sizes of one call.

    Attributes:
        sizes: of the variables.
        read: text of a size, as Python over ``L`` and ``G`` -> the size.
        code: the compile id of the code that serves it; None: it has none.
    """

    sizes: Sizes
    read: Mapping[str, int]
    code: str | None


def causes_of(
    questions: Iterable[Question], looked: Sequence[Looked], traced: Looked, spec: Spec, case: Case
) -> list[Cause]:
    """Return the lines because of which other code serves some sizes, in the order of the program.

    A line that takes a size for a constant comes before all else that is asked of that size: the
    number is in the code from there on, and lines that use it ask in its name. Those are left out.

    Args:
        looked: calls with sizes of the spec.
        traced: the one that the questions are of.
    """
    plain = [one for one in looked if one is traced or not set(one.sizes.values()) & set(SPECIAL)]
    asked: dict[tuple[str, int], list[_Asked]] = {}
    numbers: set[str] = set()  # sizes that code has taken for numbers by now
    for one in dict.fromkeys(map(_Asked.of, questions)):
        sources = set(one.sources.values())
        if one.line is None or (sources <= numbers and one.line not in asked):
            continue
        if all(one.holds(look) for look in plain):
            continue
        asked.setdefault(one.line, []).append(one)
        if _is_constant(asked[one.line], plain):
            numbers |= sources
    found = (_cause(line, of, plain, traced, spec, case) for line, of in asked.items())
    return [cause for cause in found if cause is not None]


@dataclass(frozen=True)
class _Asked:
    """A condition that is true in the graph.

    Attributes:
        names: symbol and what it is, as Python over ``L`` and ``G``.
    """

    condition: Any
    names: tuple[tuple[str, str], ...]
    line: tuple[str, int] | None

    @classmethod
    def of(cls, question: Question) -> _Asked:
        """Return what the answer to a question is taken for."""
        import sympy  # type: ignore[import-untyped]

        condition = question.expression
        if not (getattr(condition, "is_Boolean", False) or condition.is_Relational):
            condition = sympy.Eq(condition, question.answer, evaluate=False)
        elif not question.answer:
            condition = sympy.Not(condition)
        return cls(condition, tuple(question.sources.items()), question.line)

    @property
    def sources(self) -> dict[str, str]:
        return dict(self.names)

    def holds(self, looked: Looked) -> bool:
        """Return whether it is true in another call."""
        given = tuple((name, looked.read.get(text)) for name, text in self.names)
        return _evaluated(self.condition, given)

    def __str__(self) -> str:
        from torch.utils._sympy.printers import PythonPrinter

        text = str(PythonPrinter().doprint(self.condition))
        for name, source in self.names:
            text = re.sub(rf"\b{re.escape(name)}\b", shown(source).replace("\\", r"\\"), text)
        return text


def _is_constant(asked: Sequence[_Asked], looked: Sequence[Looked]) -> bool:
    """Return whether conditions leave one value of one size."""
    texts = {text for one in asked for text in one.sources.values()}
    holds = [look for look in looked if all(one.holds(look) for one in asked)]
    return len(texts) == 1 and len({look.read.get(*texts) for look in holds}) <= 1


def _cause(
    line: tuple[str, int], asked: Sequence[_Asked], looked: Sequence[Looked], traced: Looked,
    spec: Spec, case: Case,
) -> Cause | None:  # fmt: skip
    """Return what one line does; None if it is not why sizes have other code."""
    holds = [look for look in looked if all(one.holds(look) for one in asked)]
    others = [look for look in looked if look not in holds and look.code != traced.code]
    if not others:
        return None
    strongest = min(asked, key=lambda one: sum(map(one.holds, looked)))
    kind, text = _kind(asked, looked), str(strongest)
    if kind == "constant":
        (source,) = {text for one in asked for text in one.sources.values()}
        text = f"{shown(source)} == {traced.read[source]}"
    cause = Cause(kind, *line, text, len(holds), len(looked), others[0].sizes)
    return replace(cause, fixes=tuple(_fixes(cause, asked, holds, looked, spec, case)))


def _kind(asked: Sequence[_Asked], looked: Sequence[Looked]) -> str:
    from torch.utils._sympy.functions import Mod, PythonMod

    if _is_constant(asked, looked):
        return "constant"
    if len({text for one in asked for text in one.sources.values()}) > 1:
        return "related"
    sides = asked[0].condition.args
    return "divisible" if any(isinstance(one, Mod | PythonMod) for one in sides) else "range"


@functools.lru_cache(65536)
def _evaluated(condition: Any, given: tuple[tuple[str, int | None], ...]) -> bool:
    values = dict(given)
    symbols = {symbol: values.get(str(symbol)) for symbol in condition.free_symbols}
    if None in symbols.values():
        return True  # a size that no call shows
    try:
        return bool(condition.subs(symbols))
    except (ZeroDivisionError, TypeError, AssertionError):  # what it divides by is 0 there
        return False


def shown(source: str) -> str:
    """Return a size as the user would write it: ``x.shape[0]``."""
    return _SIZE.sub(r".shape[\1]", _LOCAL.sub(r"\1", source))


def _fixes(
    cause: Cause, asked: Sequence[_Asked], holds: Sequence[Looked], looked: Sequence[Looked],
    spec: Spec, case: Case,
) -> Iterator[Fix]:  # fmt: skip
    """Yield ways to have one graph, those that leave the function as it is first."""
    sources = dict.fromkeys(text for one in asked for text in one.sources.values())
    named = {text: _variable_of(text, looked) for text in sources}
    if all(name is not None for name in named.values()):
        (source, name), *others = named.items()
        assert name is not None
        sizes = sorted({one.sizes[name] for one in holds})
        if cause.kind == "constant":
            yield Fix(_static(source), _narrowed(spec, case, name, sizes[0]))
        elif not others:
            known = sorted({one.sizes[name] for one in looked})
            choice = case[name]
            step = choice.step if isinstance(choice, Range) else 1
            for part in _ranges(sizes, known, cause.kind, step):
                yield Fix(_marked(source, part), _narrowed(spec, case, name, part))
        else:
            only = replace(spec, conditions=(*spec.conditions, _Fulfilled(tuple(asked), looked)))
            yield Fix(f"torch._check({cause.asks}), if that is so for all inputs", only)
    if cause.kind == "constant":
        yield Fix(
            f"keep {', '.join(map(shown, sources))} a size: no loop of Python over it, and no "
            "literal where it is meant"
        )
    else:
        yield Fix("take the test of the size out of the compiled function")


@dataclass(frozen=True)
class _Fulfilled:
    """Whether conditions hold for sizes, which were looked at before."""

    asked: tuple[_Asked, ...]
    looked: Sequence[Looked] = field(compare=False)

    def __call__(self, sizes: Sizes) -> bool:
        found = (look for look in self.looked if look.sizes == sizes)
        return any(all(one.holds(look) for one in self.asked) for look in found)


def _variable_of(source: str, looked: Sequence[Looked]) -> str | None:
    """Return the variable that a size is, in all calls."""
    for name in looked[0].sizes:
        if all(one.read.get(source) == one.sizes[name] for one in looked):
            return name
    return None


def _narrowed(spec: Spec, case: Case, name: str, choice: int | Range) -> Spec:
    chosen = {other: (case[other],) for other in case} | {name: (choice,)}
    return replace(spec, variables=chosen)


def _ranges(holds: Sequence[int], looked: Sequence[int], kind: str, step: int) -> Iterator[Range]:
    """Yield the runs of sizes for which a condition holds, longest first, and the runs between."""
    inside = set(holds)
    if kind == "divisible":
        for sizes in (holds, [size for size in looked if size not in inside]):
            steps = {b - a for a, b in itertools.pairwise(sizes)}
            if len(steps) == 1:
                yield Range(sizes[0], sizes[-1], steps.pop())
        return
    runs: list[list[int]] = []
    for size in looked:
        if runs and (size in inside) == (runs[-1][-1] in inside):
            runs[-1].append(size)
        else:
            runs.append([size])
    for run in sorted(runs, key=len, reverse=True)[:2]:
        yield Range(run[0], run[-1], step)


def _static(source: str) -> str:
    tensor, dim = _parts(source)
    return f"tc.mark_static({tensor}, {dim})" if tensor else f"give {shown(source)} one value"


def _marked(source: str, part: Range) -> str:
    tensor, dim = _parts(source)
    step = f"  # and only multiples: {part}" if part.step > 1 else ""
    if not tensor:
        return f"keep {shown(source)} in {part}"
    return f"tc.mark_dynamic({tensor}, {dim}, min={part.low}, max={part.last}){step}"


def _parts(source: str) -> tuple[str, str]:
    found = _TENSOR_SIZE.fullmatch(shown(source))
    return (found[1], found[2]) if found else ("", "")
