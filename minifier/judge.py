"""Judges results: eager's and a compiler's in, the difference that is no rounding out.

Rounding is measured, not assumed: the same program runs in float64, and on inputs moved by one
unit in the last place. What differs by more than those do is wrong.
"""

from __future__ import annotations

import dataclasses
import re
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from tc.compiler import api
from tc.minifier import identity
from tc.minifier.identity import Identity

Program = Callable[..., Any]
SLACK = 16.0  # how much worse than eager's own error a result may be
JITTERS = (1, 2, 3)  # seeds of runs on moved inputs
ERROR_TEXT = 8000  # characters of an error that are kept
USER_LINES = "from user code"  # what torch's compiler heads the user's lines with
HALF = (torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Outcome:
    """How a program fared.

    Attributes:
        kind: ``ok``, ``crash``, ``wrong``, ``nan``, ``accepts`` (eager raises, and compiled code
            does not), ``random``, ``invalid`` (both raise), ``timeout``, ``died``.
        identity: equal for two failures that are the same; None if nothing failed.
        message: one sentence for people.
        detail: numbers behind it.
    """

    kind: str
    identity: Identity | None = None
    message: str = ""
    detail: dict[str, Any] | None = None

    @property
    def failed(self) -> bool:
        """Whether the compiler is to blame for something."""
        return self.identity is not None

    def as_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        found = self.identity.as_json() if self.identity else None
        return {**vars(self), "identity": found}


# -- crashes -----------------------------------------------------------------------------------
def crash(error: BaseException) -> Outcome:
    """Return the outcome of an exception that the compiler or its code raised."""
    cause = list(identity.causes(error))[-1]
    found = identity.of_exception(error)
    first = next(iter(str(cause).strip().splitlines()), "")
    return Outcome(
        "crash", found, f"{type(cause).__name__} in {found.stage}: {first[:200]}",
        {"stage": found.stage, "type": type(cause).__name__, **met(error),
         "text": f"{error}\n{cause}"[:ERROR_TEXT]},
    )  # fmt: skip


def script_error(error: Exception) -> Outcome:
    """Return the outcome of an exception that left a script, and not from a graph."""
    found = crash(error)
    ours = type(error).__module__.startswith(("tc.", "torch._dynamo"))
    first = next(iter(str(error).splitlines()), "")[:200]
    text = found.message if ours else f"{type(error).__name__}: {first}"
    return dataclasses.replace(found, kind="outside" if ours else "script", message=text)


def met(error: BaseException) -> dict[str, Any]:
    """Return where capture was when it failed: ``opcode``, ``callee``, ``line``, ``code``."""
    found = api.error_context(error)
    if found is not None:
        place = found.place
        line = f"{place.file}:{place.line}\t{place.loc or ''}"
        return {"opcode": found.opcode, "callee": found.callee, "line": line, "code": found.code}
    places = re.findall(
        r'File "(.+)", line (\d+), in .+\n +(.+)', str(error).partition(USER_LINES)[2]
    )
    if not places:
        return {}
    file, number, text = places[-1]
    names = [
        (PurePath(frame.filename).stem, frame.name)
        for one in (error, list(identity.causes(error))[-1])
        for frame in traceback.extract_tb(one.__traceback__)
        if "_dynamo" in PurePath(frame.filename).parts
        and ("variables" in PurePath(frame.filename).parts or frame.name.isupper())
    ]
    opcode = next((name for _, name in reversed(names) if name.isupper()), "")
    callee = ".".join(names[-1]) if names else ""
    return {"opcode": opcode, "callee": callee, "line": f"{file}:{number}\t{text}",
            "code": "a graph break" if type(error).__name__ == "Unsupported" else ""}  # fmt: skip


# -- running -----------------------------------------------------------------------------------
def clones(inputs: Sequence[Any]) -> list[Any]:
    """Return inputs of their own: same layout, same need for gradients."""
    return [
        same_layout(value).requires_grad_(value.requires_grad)
        if isinstance(value, torch.Tensor)
        else value
        for value in inputs
    ]


def same_layout(value: torch.Tensor) -> torch.Tensor:
    """Return a copy with the same strides, gaps and overlaps included.

    Compiled code is made for the strides of its inputs; `Tensor.clone` changes some of them.
    """
    plain = type(value) in (torch.Tensor, torch.nn.Parameter) and value.layout == torch.strided
    odd = value.is_quantized or value.is_conj() or value.is_neg()
    if not plain or odd or not value.numel():
        return value.detach().clone()
    last = sum((n - 1) * s for n, s in zip(value.shape, value.stride(), strict=True))
    held = value.detach().as_strided((last + 1,), (1,), value.storage_offset()).clone()
    return held.as_strided(value.shape, value.stride())


@dataclass
class Ran:
    """A program that was run on inputs of its own.

    Attributes:
        inputs: what it was given; it may have written to them.
        outputs: the leaves of what it returned.
        results: outputs, then the inputs, which it may have written to (eager does not always say
            that it does); `add_gradients` adds those of its inputs.
    """

    inputs: list[Any]
    outputs: list[Any]
    results: list[Any]

    @classmethod
    def of(cls, program: Program, inputs: Sequence[Any]) -> Ran:
        """Run a program forward."""
        own = clones(inputs)
        outputs = [v for v in tree_leaves(program(*own)) if v is not None]
        plain = [v.detach() if isinstance(v, torch.Tensor) else v for v in outputs]
        return cls(own, outputs, plain + [v.detach() for v in own if isinstance(v, torch.Tensor)])

    def add_gradients(self) -> None:
        """Run backward, too."""
        loss = loss_of(self.outputs)
        if loss is not None:
            loss.backward()
        self.results = self.results + [
            v.grad for v in self.inputs if isinstance(v, torch.Tensor) and v.requires_grad
        ]


def run(program: Program, inputs: Sequence[Any], backward: bool) -> list[Any]:
    """Run a program on inputs of its own; returns outputs, inputs, and gradients."""
    ran = Ran.of(program, inputs)
    if backward:
        ran.add_gradients()
    return ran.results


def loss_of(outputs: Sequence[Any]) -> Any:
    """Return a number that depends on all outputs, with gradients that differ by element."""
    parts = [
        v.sin().sum()
        for v in outputs
        if isinstance(v, torch.Tensor) and v.requires_grad and v.is_floating_point()
    ]
    return sum(parts[1:], parts[0]) if parts else None


class _InDouble(TorchFunctionMode):
    """Makes every call that names a float type take float64 instead."""

    CASTS = ("float", "half", "bfloat16")

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in self.CASTS and len(args) == 1:
            return args[0].double()
        kwargs = {key: self._wide(value) for key, value in (kwargs or {}).items()}
        return func(*(self._wide(value) for value in args), **kwargs)

    @staticmethod
    def _wide(value: Any) -> Any:
        narrow = isinstance(value, torch.dtype) and value.is_floating_point
        return torch.float64 if narrow else value


def in_double(program: Program, inputs: Sequence[Any], backward: bool) -> list[Any] | None:
    """Return the results in float64, or None if the program cannot run in it."""
    wide = [
        v.detach().double().requires_grad_(v.requires_grad)
        if isinstance(v, torch.Tensor) and v.is_floating_point()
        else v
        for v in inputs
    ]
    default = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64)
        with _InDouble():
            return run(program, wide, backward)
    except Exception:
        return None
    finally:
        torch.set_default_dtype(default)


def jittered(program: Program, inputs: Sequence[Any], backward: bool, seed: int) -> list[Any]:
    """Return the results on inputs moved by about one unit in the last place."""
    generator = torch.Generator().manual_seed(seed)

    def moved(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            return value
        eps = torch.finfo(value.dtype).eps
        sign = torch.rand(value.shape, generator=generator, dtype=torch.float32).round() * 2 - 1
        wide = value.detach().double() * (1 + eps * sign.to(value.device))
        return wide.to(value.dtype).requires_grad_(value.requires_grad)

    return run(program, [moved(value) for value in inputs], backward)


@contextmanager
def same_random_numbers() -> Iterator[None]:
    """Leave the random state as it was found."""
    state = torch.get_rng_state()
    try:
        yield
    finally:
        torch.set_rng_state(state)


# -- comparing ---------------------------------------------------------------------------------
def compare(
    program: Program, inputs: Sequence[Any], backward: bool, eager: list[Any], compiled: list[Any]
) -> Outcome:
    """Say whether compiled results differ from eager's by more than rounding."""
    if len(eager) != len(compiled):
        text = f"{len(compiled)} results instead of {len(eager)}"
        return Outcome("wrong", Identity("wrong", "count"), text)
    suspects = [
        place
        for place, (mine, theirs) in enumerate(zip(eager, compiled, strict=True))
        if not _equal(mine, theirs)
    ]
    if not suspects:
        return Outcome("ok")
    for place in suspects:
        shape = _shape_fault(eager[place], compiled[place], place)
        if shape is not None:
            return shape
    with same_random_numbers():
        double = in_double(program, inputs, backward)
    moved: list[list[Any]] = []
    for seed in JITTERS:
        with same_random_numbers():
            moved.append(jittered(program, inputs, backward, seed))
    worst: Outcome | None = None
    places: list[int] = []
    for place in suspects:
        found = _differs(
            place, eager[place], compiled[place],
            double[place] if double is not None and len(double) == len(eager) else None,
            [run[place] for run in moved if len(run) == len(eager)],
        )  # fmt: skip
        if found is not None:
            places.append(place)
        if found is not None and (worst is None or found.kind == "nan"):
            worst = found
    if worst is None:
        return Outcome("ok", message="differs from eager by no more than rounding does")
    return dataclasses.replace(worst, detail={**(worst.detail or {}), "outputs": places})


def _equal(mine: Any, theirs: Any) -> bool:
    if isinstance(mine, torch.Tensor) and isinstance(theirs, torch.Tensor):
        if mine.shape != theirs.shape or mine.dtype != theirs.dtype:
            return False
        if mine.is_floating_point() or mine.is_complex():
            return torch.allclose(mine, theirs, rtol=1e-7, atol=0, equal_nan=True)
        return torch.equal(mine, theirs)
    return bool(mine == theirs or (mine != mine and theirs != theirs))


def _shape_fault(mine: Any, theirs: Any, place: int) -> Outcome | None:
    if not isinstance(mine, torch.Tensor) or not isinstance(theirs, torch.Tensor):
        if type(mine) is not type(theirs) or mine is None:
            text = f"output {place} is {_kind(theirs)} instead of {_kind(mine)}"
            return Outcome("wrong", Identity("wrong", "type"), text)
        return None
    if mine.shape == theirs.shape and mine.dtype == theirs.dtype:
        return None
    text = f"output {place} is {_kind(theirs)} instead of {_kind(mine)}"
    return Outcome("wrong", Identity("wrong", "shape"), text)


def _kind(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    return type(value).__name__


def _differs(
    place: int, eager: Any, compiled: Any, double: Any, moved: Sequence[Any]
) -> Outcome | None:
    if not isinstance(eager, torch.Tensor):
        if isinstance(eager, float) and isinstance(compiled, float):
            eager, compiled = (torch.tensor(v, dtype=torch.float64) for v in (eager, compiled))
            double, moved = None, []
        else:
            return Outcome(
                "wrong", Identity("wrong"), f"output {place} is {compiled} instead of {eager}"
            )
    others = [m for m in moved if isinstance(m, torch.Tensor) and m.shape == eager.shape]
    if isinstance(double, torch.Tensor) and double.shape == eager.shape:
        others.append(double)
    if not eager.is_floating_point() and not eager.is_complex():
        stable = torch.ones_like(eager, dtype=torch.bool)
        for other in others:
            stable &= other.to(eager.dtype) == eager
        return _report("wrong", place, (eager != compiled) & stable, eager, compiled, None)
    mine, theirs = _wide(eager), _wide(compiled)
    odd = ~torch.isfinite(mine)
    same_odd = (mine == theirs) | (torch.isnan(mine) & torch.isnan(theirs))
    certain = torch.ones_like(odd)
    for other in others:
        # an infinity of a narrow type may be a number in float64, and the other way about
        certain &= torch.isfinite(_wide(other)) == torch.isfinite(mine)
    odd_now = (odd | ~torch.isfinite(theirs)) & ~same_odd & certain
    if odd_now.any():
        return _report("nan", place, odd_now, eager, compiled, None)
    tolerance = _tolerance(eager, [_wide(other) for other in others])
    reference = _wide(double) if isinstance(double, torch.Tensor) and others[-1] is double else mine
    error = (theirs - reference).abs()
    wrong = (error > tolerance) & ~odd & torch.isfinite(theirs) & torch.isfinite(reference)
    return _report("wrong", place, wrong, eager, compiled, error)


def _wide(value: torch.Tensor) -> torch.Tensor:
    return value.to(torch.complex128 if value.is_complex() else torch.float64)


def _tolerance(eager: torch.Tensor, others: Sequence[torch.Tensor]) -> torch.Tensor:
    """How far each element may be from the reference: eager's own error, and one of its scale."""
    mine = _wide(eager)
    finite = mine[torch.isfinite(mine)].abs()
    scale = float(finite.max()) if finite.numel() else 0.0
    narrow = eager.dtype.to_real() if eager.is_complex() else eager.dtype
    eps = torch.finfo(narrow).eps
    tolerance = torch.full(mine.shape, 64 * eps * scale, dtype=torch.float64, device=mine.device)
    if eager.dtype in HALF:
        tolerance = torch.full_like(tolerance, 4 * eps * scale)
    for other in others:
        spread = (other - mine).abs()
        spread = torch.where(torch.isfinite(spread), spread, torch.zeros_like(spread))
        if spread.numel():
            typical = float(spread.square().mean().sqrt())
            tolerance = tolerance + SLACK * spread.clamp(min=typical)
    return tolerance


def _report(
    kind: str,
    place: int,
    bad: torch.Tensor,
    eager: torch.Tensor,
    compiled: torch.Tensor,
    error: Any,
) -> Outcome | None:
    count = int(bad.sum())
    if not count:
        return None
    if error is not None and kind == "wrong":
        flat = int(torch.where(bad, error, torch.zeros_like(error)).flatten().argmax())
    else:
        flat = int(bad.flatten().to(torch.int8).argmax())
    first = tuple(int(i) for i in torch.nonzero(bad)[0]) if bad.dim() else ()
    index = tuple(int(i) for i in _unravel(flat, tuple(bad.shape)))
    got, expected = compiled[index].item(), eager[index].item()
    where = f" at {list(index)}" if index else ""
    text = f"output {place}{where}: compiled {_short(got)}, eager {_short(expected)}"
    if bad.numel() > 1:
        text += f" ({count} of {bad.numel()} elements)"
    detail = {
        "output": place, "index": list(index), "first": list(first), "compiled": str(got),
        "eager": str(expected), "bad": count, "of": bad.numel(),
        "error": abs(got - expected) if kind == "wrong" else 0.0,
    }  # fmt: skip
    return Outcome(kind, Identity(kind), text, detail)


def _unravel(flat: int, shape: tuple[int, ...]) -> list[int]:
    index = []
    for size in reversed(shape):
        index.append(flat % size)
        flat //= size
    return index[::-1]


def _short(value: Any) -> str:
    return f"{value:.7g}" if isinstance(value, float) else str(value)


def judge(
    program: Program,
    compiled: Callable[[], Program],
    inputs: Sequence[Any],
    backward: bool,
    accepts: bool = True,
) -> Outcome:
    """Run a program eagerly and compiled; say what goes wrong.

    Backward runs, and is compiled, only where forward is right.

    Args:
        accepts: where eager raises, see whether compiled code does.
    """
    eager, outcome = _attempt(lambda: Ran.of(program, inputs), eager=True)
    if eager is None:
        return refused(outcome, program, compiled, inputs) if accepts else outcome
    result, outcome = _attempt(lambda: Ran.of(compiled(), inputs))
    if result is None:
        return in_forward(outcome)
    outcome = _verdict(program, inputs, False, eager.results, result.results)
    if outcome.failed:
        return in_forward(outcome)
    if not backward or outcome.kind == "random":
        return outcome
    done, outcome = _attempt(eager.add_gradients, eager=True)
    if done is None:
        return outcome
    done, outcome = _attempt(result.add_gradients)
    if done is None:
        return outcome
    return _verdict(program, inputs, True, eager.results, result.results)


def refused(
    outcome: Outcome, program: Program, compiled: Callable[[], Program], inputs: Sequence[Any]
) -> Outcome:
    """Return the outcome of a program that eager does not run: compiled code must not either.

    Gradients are left out: copies of inputs are leaves, to which eager does not let it write.
    """
    plain = [v.detach() if isinstance(v, torch.Tensor) else v for v in inputs]
    with torch.no_grad():
        eager, again = _attempt(lambda: Ran.of(program, plain), eager=True)
        if eager is not None or again.message != outcome.message:
            return outcome
        result, _ = _attempt(lambda: Ran.of(compiled(), plain))
    if result is None:
        return outcome
    name = str((outcome.detail or {}).get("type", ""))
    text = f"{outcome.message}; compiled code returns a result"
    return Outcome("accepts", Identity("accepts", types=(name,)), text, {"forward": True})


def in_forward(outcome: Outcome) -> Outcome:
    """Note that it went wrong before backward ran."""
    return dataclasses.replace(outcome, detail={**(outcome.detail or {}), "forward": True})


def _attempt(work: Callable[[], Any], eager: bool = False) -> tuple[Any, Outcome]:
    """Do work that may raise; returns what it made (True for nothing) or None, and the outcome."""
    try:
        with same_random_numbers():
            made = work()
    except Exception as error:
        if not eager:
            return None, crash(error)
        first = next(iter(str(error).splitlines()), "")
        text = f"eager raises {type(error).__name__}: {first[:200]}"
        return None, Outcome("invalid", message=text, detail={"type": type(error).__name__})
    return True if made is None else made, Outcome("ok")


def _verdict(
    program: Program, inputs: Sequence[Any], backward: bool, eager: list[Any], result: list[Any]
) -> Outcome:
    """Compare results; what differs because eager itself does is no fault."""
    outcome = compare(program, inputs, backward, eager, result)
    differs = outcome.kind in ("wrong", "nan") or bool(outcome.message)
    if differs and is_random(program, inputs, backward, eager):
        return Outcome("random", message="eager itself gives other results on each run")
    return outcome


def is_random(program: Program, inputs: Sequence[Any], backward: bool, eager: list[Any]) -> bool:
    """Whether eager's results depend on the random state, or on nothing that stays the same."""
    with same_random_numbers():
        torch.manual_seed(12345)
        again = run(program, inputs, backward)
    if len(again) != len(eager):
        return True
    return compare_loosely(eager, again)


def compare_loosely(one: list[Any], other: list[Any]) -> bool:
    """Whether two lists of results differ at all beyond threads' order of adding."""
    for mine, theirs in zip(one, other, strict=True):
        if isinstance(mine, torch.Tensor) and isinstance(theirs, torch.Tensor):
            if mine.shape != theirs.shape:
                return True
            if not torch.allclose(_wide(mine), _wide(theirs), rtol=1e-3, atol=1e-5, equal_nan=True):
                return True
        elif mine != theirs:
            return True
    return False
