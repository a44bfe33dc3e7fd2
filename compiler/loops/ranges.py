"""Value range analysis: bounds of the values of expressions, over all iterations of their loops.

In: loop nests in topological order. Out: a `Range` of any value in them (`Ranges.of`). Bounds are
those of the arithmetic that kernels do: integers wrap around, and floats are rounded, each
operation by itself. So they hold where products are not fused with sums, which is on CPUs.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import product

import torch

from tc.compiler.loops import index as ix
from tc.compiler.loops.expr import Expr
from tc.compiler.loops.index import Index
from tc.compiler.loops.ir import Nest, Pointwise, Reduction, Scatter
from tc.compiler.loops.ops import LOW_PRECISION

#: no loop runs that often, whatever the size of a tensor with strides of 0
ITERATIONS = 1 << 56
#: symbolic bounds of a value that are kept
MOST_TOPS = 4
#: buffers that are made of one another whose ranges are looked up
DEPTH = 32
#: operations of an arm of a choice up to which it is analysed under its condition
ARM = 16
#: below it a float32 may have been rounded twice, or flushed to zero
TINY = 2.0**-100
#: a bound of a number that may be added to a symbolic bound
SMALL = 1 << 32
COMPARISONS = ("lt", "le", "gt", "ge")


@dataclass(frozen=True, slots=True)
class Range:
    """The bounds of a value.

    Attributes:
        low: it is at least that; an integer for integers and bools.
        high: it is at most that.
        nan: whether it may be NaN.
        tops: indices over sizes and loop variables that an integer is at most.
    """

    low: float
    high: float
    nan: bool = False
    tops: frozenset[Index] = frozenset()

    def within(self, bound: Index) -> bool:
        """Return whether an integer is known to be a position: at least 0, and below ``bound``."""
        return self.low >= 0 and self.below(bound)

    def below(self, bound: Index) -> bool:
        """Return whether an integer is known to be less than an index."""
        least = ix.lower_bound(bound)
        if least is not None and self.high < least:
            return True
        return any(ix.is_less(top, bound) for top in self.tops)

    def fits(self, dtype: torch.dtype) -> bool:
        """Return whether an integer type has all these values."""
        limits = torch.iinfo(dtype)
        return self.low >= limits.min and self.high <= limits.max


def whole(dtype: torch.dtype) -> Range:
    """Return the range of all values of a type."""
    if dtype is torch.bool:
        return Range(0, 1)
    if dtype.is_floating_point:
        return Range(-math.inf, math.inf, nan=True)
    if dtype.is_complex:
        return Range(-math.inf, math.inf, nan=True)
    limits = torch.iinfo(dtype)
    return Range(limits.min, limits.max)


def rounded(value: float, dtype: torch.dtype) -> float:
    """Round a number to a float type; too large ones to infinity."""
    if dtype is torch.float64:
        return float(value)
    if dtype in LOW_PRECISION:
        return float(torch.tensor(value, dtype=torch.float64, device="cpu").to(dtype))
    try:
        return float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def _floats(corners: list[float], dtype: torch.dtype) -> Range:
    """Return the range between rounded results, of which none is near the smallest floats."""
    low, high = (rounded(value, dtype) for value in (min(corners), max(corners)))
    if 0 < abs(low) < TINY:
        low = 0.0 if low > 0 else -TINY
    if 0 < abs(high) < TINY:
        high = 0.0 if high < 0 else TINY
    return Range(low, high)


def _finite(*ranges: Range) -> bool:
    return not any(r.nan or math.isinf(r.low) or math.isinf(r.high) for r in ranges)


def _few(tops: set[Index]) -> frozenset[Index]:
    if len(tops) <= MOST_TOPS:
        return frozenset(tops)
    return frozenset(sorted(tops, key=repr)[:MOST_TOPS])


def _covers(top: Index, value: Range) -> bool:
    """Return whether an index is an upper bound of a value."""
    if top in value.tops:
        return True
    least = ix.lower_bound(top)
    if least is not None and value.high <= least:
        return True
    return any(ix.is_at_least(top - other, 0) for other in value.tops)


def union(a: Range, b: Range) -> Range:
    """Return the range of a value that is in one of two."""
    tops = {top for top in a.tops | b.tops if _covers(top, a) and _covers(top, b)}
    return Range(min(a.low, b.low), max(a.high, b.high), a.nan or b.nan, _few(tops))


Transfer = Callable[[torch.dtype, Range, Range], Range]


def _arithmetic(operation: Callable[[float, float], float]) -> Transfer:
    """Return the transfer function of an operation that is monotone in each operand."""

    def transfer(dtype: torch.dtype, a: Range, b: Range) -> Range:
        if not _finite(a, b):
            return whole(dtype)
        corners = [operation(x, y) for x, y in product((a.low, a.high), (b.low, b.high))]
        if dtype.is_floating_point:
            return whole(dtype) if any(map(math.isnan, corners)) else _floats(corners, dtype)
        return Range(min(corners), max(corners))

    return transfer


def _add(dtype: torch.dtype, a: Range, b: Range) -> Range:
    plain = _arithmetic(lambda x, y: x + y)(dtype, a, b)
    tops = {top + int(b.high) for top in a.tops if abs(b.high) < SMALL}
    tops |= {top + int(a.high) for top in b.tops if abs(a.high) < SMALL}
    return replace(plain, tops=_few(tops))


def _sub(dtype: torch.dtype, a: Range, b: Range) -> Range:
    plain = _arithmetic(lambda x, y: x - y)(dtype, a, b)
    tops = {top - int(b.low) for top in a.tops if abs(b.low) < SMALL}
    return replace(plain, tops=_few(tops))


def _div(dtype: torch.dtype, a: Range, b: Range) -> Range:
    if b.low <= 0 <= b.high:
        return whole(dtype)
    return _arithmetic(lambda x, y: x / y)(dtype, a, b)


def _minimum(dtype: torch.dtype, a: Range, b: Range) -> Range:
    nan = a.nan or b.nan
    return Range(min(a.low, b.low), min(a.high, b.high), nan, _few(set(a.tops | b.tops)))


def _maximum(dtype: torch.dtype, a: Range, b: Range) -> Range:
    return replace(union(a, b), low=max(a.low, b.low))


def _floordiv(dtype: torch.dtype, a: Range, b: Range) -> Range:
    if dtype.is_floating_point or b.low <= 0:
        return whole(dtype)
    tops = a.tops if a.low >= 0 else frozenset()
    return replace(_arithmetic(lambda x, y: x // y)(dtype, a, b), tops=tops)


def _truncdiv(dtype: torch.dtype, a: Range, b: Range) -> Range:
    return _floordiv(dtype, a, b) if a.low >= 0 else whole(dtype)


def _remainder(dtype: torch.dtype, a: Range, b: Range) -> Range:
    if dtype.is_floating_point or b.low <= 0:
        return whole(dtype)
    tops = {top - 1 for top in b.tops} | (set(a.tops) if a.low >= 0 else set())
    return Range(0, min(b.high - 1, a.high) if a.low >= 0 else b.high - 1, tops=_few(tops))


def _fmod(dtype: torch.dtype, a: Range, b: Range) -> Range:
    return _remainder(dtype, a, b) if a.low >= 0 else whole(dtype)


def _and(dtype: torch.dtype, a: Range, b: Range) -> Range:
    known = [r.high for r in (a, b) if r.low >= 0]
    return Range(0, min(known)) if known else whole(dtype)


def _monotone(operation: Callable[[float], float]) -> Transfer:
    """Return the transfer function of an exact operation of one operand that never falls."""

    def transfer(dtype: torch.dtype, a: Range, _: Range) -> Range:
        low, high = (x if math.isinf(x) else float(operation(x)) for x in (a.low, a.high))
        return Range(low, high, a.nan)

    return transfer


def _neg(dtype: torch.dtype, a: Range, _: Range) -> Range:
    return Range(-a.high, -a.low, a.nan)


def _abs(dtype: torch.dtype, a: Range, _: Range) -> Range:
    least = 0 if a.low <= 0 <= a.high else min(abs(a.low), abs(a.high))
    return Range(least, max(abs(a.low), abs(a.high)), a.nan, a.tops if a.low >= 0 else frozenset())


#: scalar op -> its transfer function, which takes the operands' ranges; ops of one operand get it
#: twice. Ops that are not listed have every value of their type.
TRANSFERS: Mapping[str, Transfer] = {
    "add": _add,
    "sub": _sub,
    "mul": _arithmetic(lambda x, y: x * y),
    "div": _div,
    "neg": _neg,
    "abs": _abs,
    "minimum": _minimum,
    "maximum": _maximum,
    "floordiv": _floordiv,
    "truncdiv": _truncdiv,
    "remainder": _remainder,
    "fmod": _fmod,
    "and": _and,
    "floor": _monotone(math.floor),
    "ceil": _monotone(math.ceil),
    "trunc": _monotone(math.trunc),
    "round": _monotone(round),
}


class Ranges:
    """The ranges of values in the loop nests of a graph.

    Attributes:
        known: ranges found so far; those of a nested analysis start with what a condition implies.
    """

    def __init__(
        self,
        makers: dict[str, Nest],
        buffers: dict[str, Range] | None = None,
        known: dict[Expr, Range] | None = None,
        depth: int = 0,
    ) -> None:
        """Start an analysis.

        Args:
            makers: buffer -> the nest that computes it, for buffers that a nest computes.
            buffers: the ranges of their elements, as far as found.
            known: see the attribute.
            depth: how many buffers this one is looked up for.
        """
        self.makers, self.depth = makers, depth
        self.buffers: dict[str, Range] = {} if buffers is None else buffers
        self.known: dict[Expr, Range] = {} if known is None else known

    def of(self, root: Expr) -> Range:
        """Return the range of a value, wherever it is needed."""
        stack = [(root, False)]
        while stack:
            node, ready = stack.pop()
            if node in self.known:
                continue
            if ready:
                self.known[node] = self._compute(node)
            else:
                stack.append((node, True))
                stack.extend((arg, False) for arg in node.args)
        return self.known[root]

    def decided(self, comparison: Expr) -> bool | None:
        """Return the result of ``lt``, ``le``, ``gt`` or ``ge`` if it is known."""
        one, other = comparison.args
        if comparison.op in ("gt", "le"):
            one, other = other, one
        less = self._less(one, other)
        return less if less is None or comparison.op in ("lt", "gt") else not less

    def at_most(self, one: Expr, other: Expr) -> bool:
        """Return whether an integer is known to be at most another."""
        a, b = self.of(one), self.of(other)
        if a.high <= b.low:
            return True
        return other.op == "index" and a.below(other.data[0] + 1)

    def _less(self, one: Expr, other: Expr) -> bool | None:
        a, b = self.of(one), self.of(other)
        if a.nan or b.nan:
            return None
        if a.high < b.low or (other.op == "index" and a.below(other.data[0])):
            return True
        if not one.dtype.is_floating_point:
            return False if self.at_most(other, one) else None
        return False if a.low >= b.high else None

    def _compute(self, node: Expr) -> Range:
        op, dtype = node.op, node.dtype
        if op == "const":
            value = node.data[0]
            value = rounded(value, dtype) if dtype.is_floating_point else int(value)
            return whole(dtype) if value != value else Range(value, value)
        if op == "index":
            return _of_index(node.data[0])
        if op in ("load", "at"):
            found = self._of_buffer(node.data[0])
            return whole(dtype) if found is None else found
        if op == "to":
            return _converted(self.known[node.args[0]], node.args[0].dtype, dtype)
        if op in ("where", "select"):
            return self._chosen(node)
        if op in TRANSFERS and node.args[0].dtype is dtype:
            first, last = self.known[node.args[0]], self.known[node.args[-1]]
            return _fitting(TRANSFERS[op](dtype, first, last), dtype)
        return whole(dtype)

    def _of_buffer(self, name: str) -> Range | None:
        """Return the range of a buffer's elements; None if nothing is known of them."""
        if name not in self.buffers:
            maker = self.makers.get(name)
            if maker is None or self.depth >= DEPTH:
                return None
            inner = Ranges(self.makers, self.buffers, None, self.depth + 1)
            self.buffers[name] = inner.of_nest(maker)
        return self.buffers[name]

    def of_nest(self, nest: Nest) -> Range:
        """Return the range of what a loop nest computes."""
        dtype = nest.buffer.dtype
        if isinstance(nest, Scatter):
            return whole(dtype)
        if isinstance(nest, Pointwise):
            return self.of(nest.body) if nest.body.dtype is dtype else whole(dtype)
        if not isinstance(nest, Reduction):
            return whole(dtype)
        count = ix.product([ix.extent(v) for v in nest.reduced]).constant
        if not count:
            return whole(dtype)
        if nest.kind in ("argmax", "argmin"):
            return Range(0, count - 1)
        if nest.kind in ("max", "min") and nest.body.dtype is dtype:
            return replace(self.of(nest.body), tops=frozenset())
        return whole(dtype)

    def _chosen(self, node: Expr) -> Range:
        """Return the range of a choice, each arm analysed under its condition."""
        arms = [self._under(node.args[0], holds) for holds in (True, False)]
        found = []
        for arm, narrowed in zip(node.args[1:], arms, strict=True):
            if narrowed is None or arm.exceeds(ARM):
                found.append(self.known[arm])
                continue
            value, limits = narrowed
            if limits.low <= limits.high or limits.nan:
                inner = Ranges(self.makers, self.buffers, {value: limits}, self.depth)
                found.append(inner.of(arm))
        return union(*found) if len(found) == 2 else found[0] if found else whole(node.dtype)

    def _under(self, condition: Expr, holds: bool) -> tuple[Expr, Range] | None:
        """Return what a condition implies for the value on its left, if anything."""
        if condition.op not in COMPARISONS:
            return None
        value, bound = condition.args
        given, limit = self.of(value), self.of(bound)
        if limit.nan and not holds:
            return None  # a comparison with NaN is false
        step = 0 if value.dtype.is_floating_point else 1
        op = condition.op
        if not holds:
            op = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt"}[op]
        if op in ("lt", "le"):
            most = limit.high - (step if op == "lt" else 0)
            made = replace(given, high=min(given.high, most))
        else:
            least = limit.low + (step if op == "gt" else 0)
            made = replace(given, low=max(given.low, least))
        return value, replace(made, nan=given.nan and not holds)


def _of_index(index: Index) -> Range:
    """Return the range of an index: of integers that are computed of sizes and loop variables."""
    atoms = index.atoms()
    if any(atom.kind == "number" for atom in atoms):
        return whole(torch.int64)
    low, below = ix.lower_bound(index), ix.lower_bound(-index)
    most = whole(torch.int64)
    low = int(most.low) if low is None else low
    high = int(most.high) if below is None else -below
    plain = all(len(m) <= 1 and all(a.kind == "var" for a in m) for m, _ in index.terms)
    if plain:  # a sum of loop variables
        steps = [(k, bool(m)) for m, k in index.terms]
        high = min(high, sum(k * ITERATIONS if var else k for k, var in steps if k > 0 or not var))
        low = max(low, sum(k * ITERATIONS if var else k for k, var in steps if k < 0 or not var))
    return _fitting(Range(low, high, tops=frozenset((index,))), torch.int64)


def _fitting(found: Range, dtype: torch.dtype) -> Range:
    """Return a range, or that of the whole type if integers of it may have wrapped around."""
    if dtype is torch.bool:
        return Range(max(found.low, 0), min(found.high, 1))
    if dtype.is_floating_point or dtype.is_complex:
        return found
    return found if found.fits(dtype) else whole(dtype)


def _converted(value: Range, source: torch.dtype, target: torch.dtype) -> Range:
    """Return the range of a converted value."""
    if target is torch.bool or target.is_complex or source.is_complex:
        return whole(target)
    if target.is_floating_point:
        return _to_float(value, target)
    if source.is_floating_point:
        if not _finite(value):
            return whole(target)
        cut = Range(math.trunc(value.low), math.trunc(value.high))
        return _fitting(cut, target)
    return _fitting(value, target)


def _to_float(value: Range, target: torch.dtype) -> Range:
    """Return the range of a value that is rounded to a float type."""
    exact = max(abs(value.low), abs(value.high)) <= 1 << 53
    if not exact and not math.isinf(value.low) and not math.isinf(value.high):
        return Range(-math.inf, math.inf, value.nan)
    low, high = (x if math.isinf(x) else rounded(x, target) for x in (value.low, value.high))
    return Range(low, high, value.nan)
