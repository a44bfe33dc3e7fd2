"""Distinguishes an error from rounding: results of eager and of a compiler in, the difference out.

Rounding is measured, not assumed. The reference is the same program in float64; the scale is how
far eager itself is from it, and how far eager moves if its inputs move by one unit in the last
place. What differs by more than that is wrong. The sentinel and `tc-minify` both ask here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

SLACK = 16.0  # how much worse than eager's own error a result may be
NEARBY = 2.0**-16  # of a unit in the last place: less than rounding in float32 leaves unchanged
HALF = (torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Difference:
    """How results differ.

    Attributes:
        kind: ``wrong``, or ``nan``: a NaN or infinity in place of a number, or the reverse.
        message: one sentence for people.
        aspect: ``count``, ``type`` or ``shape`` where no value was compared.
        detail: numbers behind it: ``output``, ``index`` of the worst element, ``first`` wrong one,
            ``compiled``, ``eager``, ``bad`` elements ``of`` all, ``error``, all ``outputs`` wrong.
    """

    kind: str
    message: str
    aspect: str = ""
    detail: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Reference:
    """What eager computes.

    Attributes:
        eager: its results, a list of tensors, numbers and None.
        double: returns the results in float64; None: the program cannot run in it.
        moved: seed -> the results with inputs moved by a unit in the last place.
        seeds: of moved runs, in groups; a group is run where those before explain too little.
        nearby: seed -> the results in float64 with inputs moved the same way, and by far less than
            rounding moves anything; None: not known.
    """

    eager: list[Any]
    double: Callable[[], list[Any] | None]
    moved: Callable[[int], list[Any]]
    seeds: Sequence[Sequence[int]] = ((1, 2, 3),)
    nearby: Callable[[int], list[Any] | None] = lambda seed: None


def is_equal(mine: Any, theirs: Any) -> bool:
    """Return whether two results are equal, up to a few units in the last place of float32."""
    if isinstance(mine, torch.Tensor) and isinstance(theirs, torch.Tensor):
        if mine.shape != theirs.shape or mine.dtype != theirs.dtype:
            return False
        if torch.equal(mine, theirs):  # most are: nobody writes to a parameter
            return True
        if mine.is_floating_point() or mine.is_complex():
            return torch.allclose(mine, theirs, rtol=1e-7, atol=0, equal_nan=True)
        return False
    return bool(mine == theirs or (mine != mine and theirs != theirs))


def compare(reference: Reference, compiled: Sequence[Any]) -> tuple[bool, Difference | None]:
    """Compare results with eager's.

    Returns:
        Whether they differ at all, and how, if by more than rounding. Runs on moved inputs are made
        only where the float64 run does not explain a difference: they explain more, never less.
    """
    eager = reference.eager
    if len(eager) != len(compiled):
        text = f"{len(compiled)} results instead of {len(eager)}"
        return True, Difference("wrong", text, "count")
    pairs = list(zip(eager, compiled, strict=True))
    places = [place for place, pair in enumerate(pairs) if not is_equal(*pair)]
    for place in places:
        if (fault := _form_fault(*pairs[place], place)) is not None:
            return True, fault
    if not places:
        return False, None
    double = reference.double()
    if double is not None and len(double) != len(eager):
        double = None
    found, places = _worst(places, pairs, double, [])
    if found is None:
        return True, None
    moved: dict[int, list[Any]] = {}
    differ = places
    for seeds in reference.seeds:
        moved |= {seed: run for seed in seeds if len(run := reference.moved(seed)) == len(eager)}
        found, differ = _worst(places, pairs, double, list(moved.values()))
        if found is None:
            break
    if found is None and double is not None:
        runs = [_without_jumps(run, double, reference.nearby(seed)) for seed, run in moved.items()]
        found, differ = _worst(places, pairs, double, runs)
    if found is not None:
        found = replace(found, detail={**found.detail, "outputs": differ})
    return True, found


def _without_jumps(
    moved: list[Any], double: Sequence[Any], nearby: Sequence[Any] | None
) -> list[Any]:
    """Return results on moved inputs without what changes however little the inputs move.

    Where a program decides by an input itself (`label == 3`, `x.long()`), inputs that move by a
    unit decide otherwise. Compiled code has the inputs as they are.
    """
    if nearby is None or len(nearby) != len(double):
        return moved
    return list(map(_without_jump, moved, double, nearby))


def _without_jump(moved: Any, double: Any, nearby: Any) -> Any:
    found = (moved, double, nearby)
    if not all(isinstance(one, torch.Tensor) and one.shape == moved.shape for one in found):
        return moved
    if moved.dtype is torch.bool or not (moved.is_floating_point() or moved.is_complex()):
        return torch.where(nearby == double, moved, double.to(moved.dtype))
    jump = nearby - double
    return torch.where(torch.isfinite(jump), wide_of(moved) - jump, wide_of(moved))


def are_close(one: Sequence[Any], other: Sequence[Any]) -> bool:
    """Whether two lists of results are the same up to what an order of adding leaves open."""
    if len(one) != len(other):
        return False
    for mine, theirs in zip(one, other, strict=True):
        if not (isinstance(mine, torch.Tensor) and isinstance(theirs, torch.Tensor)):
            if not is_equal(mine, theirs):
                return False
            continue
        if mine.shape != theirs.shape:
            return False
        if mine.dtype == theirs.dtype and torch.equal(mine, theirs):
            continue
        if mine.dtype != theirs.dtype or mine.dtype not in (torch.float32, torch.float64):
            mine, theirs = wide_of(mine), wide_of(theirs)
        if not torch.allclose(mine, theirs, rtol=1e-3, atol=1e-5, equal_nan=True):
            return False
    return True


def _worst(
    places: Sequence[int], pairs: Sequence[tuple[Any, Any]], double: list[Any] | None,
    moved: Sequence[list[Any]],
) -> tuple[Difference | None, list[int]]:  # fmt: skip
    """Return the difference to report, and the results that differ."""
    worst: Difference | None = None
    wrong: list[int] = []
    for place in places:
        wide = double[place] if double is not None else None
        found = _differs(place, *pairs[place], wide, [run[place] for run in moved])
        if found is None:
            continue
        wrong.append(place)
        if worst is None or found.kind == "nan":
            worst = found
    return worst, wrong


def _form_fault(mine: Any, theirs: Any, place: int) -> Difference | None:
    """Return a difference of types, shapes or dtypes."""
    text = f"output {place} is {_kind(theirs)} instead of {_kind(mine)}"
    if not isinstance(mine, torch.Tensor) or not isinstance(theirs, torch.Tensor):
        differs = type(mine) is not type(theirs) or mine is None
        return Difference("wrong", text, "type") if differs else None
    if mine.shape == theirs.shape and mine.dtype == theirs.dtype:
        return None
    return Difference("wrong", text, "shape")


def _kind(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    return type(value).__name__


def _differs(
    place: int, eager: Any, compiled: Any, double: Any, moved: Sequence[Any]
) -> Difference | None:
    if not isinstance(eager, torch.Tensor):
        if not (isinstance(eager, float) and isinstance(compiled, float)):
            return Difference("wrong", f"output {place} is {compiled} instead of {eager}")
        eager, compiled = (
            torch.tensor(v, dtype=torch.float64, device="cpu") for v in (eager, compiled)
        )
        double, moved = None, []
    others = [m for m in moved if isinstance(m, torch.Tensor) and m.shape == eager.shape]
    has_double = isinstance(double, torch.Tensor) and double.shape == eager.shape
    if has_double:
        others.append(double)
    if not eager.is_floating_point() and not eager.is_complex():
        stable = torch.ones_like(eager, dtype=torch.bool)
        for other in others:
            stable &= other.to(eager.dtype) == eager
        return _report("wrong", place, (eager != compiled) & stable, eager, compiled, None)
    mine, theirs = wide_of(eager), wide_of(compiled)
    if has_double and _is_near(eager, mine, theirs, wide_of(double)):
        return None
    odd = ~torch.isfinite(mine)
    same_odd = (mine == theirs) | (torch.isnan(mine) & torch.isnan(theirs))
    certain = torch.ones_like(odd)
    for other in others:
        # an infinity of a narrow type may be a number in float64, and the other way about
        certain &= torch.isfinite(wide_of(other)) == torch.isfinite(mine)
    odd_now = (odd | ~torch.isfinite(theirs)) & ~same_odd & certain
    if odd_now.any():
        return _report("nan", place, odd_now, eager, compiled, None)
    tolerance = _tolerance(eager, [wide_of(other) for other in others])
    error = (theirs - (wide_of(double) if has_double else mine)).abs()
    wrong = (error > tolerance) & ~odd & torch.isfinite(theirs) & torch.isfinite(error)
    return _report("wrong", place, wrong, eager, compiled, error)


def _is_near(
    eager: torch.Tensor, mine: torch.Tensor, theirs: torch.Tensor, double: torch.Tensor
) -> bool:
    """Whether no element can be out of tolerance, by the least that `_tolerance` gives to any.

    False where something is not finite.
    """
    if not mine.numel():
        return True
    typical = (mine - double).abs().square_().mean().sqrt()
    least = _least(eager.dtype, mine.abs().max().item())
    return bool((theirs - double).abs().max() <= least + SLACK * typical)


def _least(dtype: torch.dtype, scale: float) -> float:
    """Return what each element may be off, given the largest one."""
    narrow = dtype.to_real() if dtype.is_complex else dtype
    return (4 if dtype in HALF else 64) * torch.finfo(narrow).eps * scale


def wide_of(value: torch.Tensor) -> torch.Tensor:
    """Return a tensor in double precision."""
    return value.to(torch.complex128 if value.is_complex() else torch.float64)


def _tolerance(eager: torch.Tensor, others: Sequence[torch.Tensor]) -> torch.Tensor:
    """How far each element may be from the reference: eager's own error, and one of its scale."""
    mine = wide_of(eager)
    finite = mine[torch.isfinite(mine)].abs()
    scale = float(finite.max()) if finite.numel() else 0.0
    least = _least(eager.dtype, scale)
    largest = torch.zeros(mine.shape, dtype=torch.float64, device=mine.device)
    for other in others:
        spread = (other - mine).abs()
        spread = torch.where(torch.isfinite(spread), spread, torch.zeros_like(spread))
        if spread.numel():
            typical = float(spread.square().mean().sqrt())
            largest = torch.maximum(largest, spread.clamp(min=typical))
    return least + SLACK * largest


def _report(
    kind: str, place: int, bad: torch.Tensor, eager: torch.Tensor, compiled: torch.Tensor,
    error: Any,
) -> Difference | None:  # fmt: skip
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
    return Difference(kind, text, "", detail)


def _unravel(flat: int, shape: tuple[int, ...]) -> list[int]:
    index = []
    for size in reversed(shape):
        index.append(flat % size)
        flat //= size
    return index[::-1]


def _short(value: Any) -> str:
    return f"{value:.7g}" if isinstance(value, float) else str(value)


# -- other runs of the same program --------------------------------------------------------------
class InDouble(TorchFunctionMode):
    """Makes every call compute in float64, on this thread alone.

    Calls that name a narrower float type take float64; what a call makes in the default type, from
    integers or from nothing, is widened after it. Random numbers are therefore drawn as eager draws
    them wherever a call makes them in the default type.
    """

    CASTS = ("float", "half", "bfloat16")

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in self.CASTS and len(args) == 1:
            return args[0].double()
        kwargs = {key: self._wide(value) for key, value in (kwargs or {}).items()}
        made = func(*(self._wide(value) for value in args), **kwargs)
        if isinstance(made, torch.Tensor) and made.dtype is not torch.float64:
            return made.double() if made.is_floating_point() else made
        return made

    @staticmethod
    def _wide(value: Any) -> Any:
        narrow = isinstance(value, torch.dtype) and value.is_floating_point
        return torch.float64 if narrow else value


def widened(value: Any) -> Any:
    """Return an input in float64, with the same need for gradients; no float: as it is."""
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return value
    return value.detach().double().requires_grad_(value.requires_grad)


def _signs(value: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Draw 1 or -1 for each element, the same on every device."""
    kind: Any = {"dtype": torch.float32, "device": generator.device}
    drawn = torch.rand(value.shape, generator=generator, **kind)
    return (drawn.round() * 2 - 1).to(value.device)


def jittered(value: Any, generator: torch.Generator) -> Any:
    """Return an input moved by about one unit in the last place, either way."""
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return value
    wide = _moved(value, generator)
    return wide.to(value.dtype).requires_grad_(value.requires_grad)


def nearby(value: Any, generator: torch.Generator) -> Any:
    """Return an input in float64, moved the same way and by far less than rounding moves it."""
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return value
    return _moved(value, generator, NEARBY).requires_grad_(value.requires_grad)


def _moved(value: torch.Tensor, generator: torch.Generator, share: float = 1.0) -> torch.Tensor:
    """Return a tensor in float64, each element moved by a share of a unit in the last place."""
    sign = _signs(value, generator).double()
    return value.detach().double() * (1 + share * torch.finfo(value.dtype).eps * sign)


class Perturbed(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Moves the result of every operation by a unit in the last place (Monte Carlo arithmetic).

    After D. S. Parker, "Monte Carlo Arithmetic" (1997): results that such runs do not agree on are
    not determined by the program in its precision. Views and writes are left as they are.
    """

    supports_higher_order_operators = True

    def __init__(self, seed: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.generator = torch.Generator().manual_seed(seed)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if isinstance(func, torch._ops.HigherOrderOperator):
            return made
        if any(value.alias_info is not None for value in func._schema.returns):
            return made
        if not any(isinstance(value, torch.Tensor) for value in args):
            return made
        if isinstance(made, torch.Tensor):
            return self._moved(made)
        if isinstance(made, (tuple, list)):
            return type(made)(map(self._moved, made))
        return made

    def _moved(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            return value
        return value.detach().copy_(_moved(value, self.generator))


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


@contextmanager
def same_random_numbers() -> Iterator[None]:
    """Leave the random state of the CPU as it was found."""
    state = torch.get_rng_state()
    try:
        yield
    finally:
        torch.set_rng_state(state)
