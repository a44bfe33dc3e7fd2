"""Padding with elements of the tensor itself: reflected, or replicated from its edges.

In: calls of ATen padding ops. Out: values whose rows are read where index arithmetic says, once a
row, and which along memory are runs: before the tensor, the tensor, after it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tc.compiler.loops import index as ix
from tc.compiler.loops.expr import Expr
from tc.compiler.loops.index import Index
from tc.compiler.loops.lower.builder import Builder, NotLowered, Tensor, loop_vars, supported
from tc.compiler.loops.lower.indexing import below, select
from tc.compiler.loops.lower.registry import Call, lowering, tensor

#: (position, size) -> where in the tensor the element for it is: before, within and after it
Runs = Callable[[Index, Index], tuple[Index, Index, Index]]


def reflected(position: Index, size: Index) -> tuple[Index, Index, Index]:
    """Return the mirror image at the first and at the last element, which are not repeated."""
    return -position, position, 2 * (size - 1) - position


def replicated(position: Index, size: Index) -> tuple[Index, Index, Index]:
    """Return the first and the last element."""
    return ix.ZERO, position, size - 1


def _anywhere(position: Index, size: Index, runs: Runs) -> Index:
    """Return where the element of any position is, by arithmetic without branches."""
    if runs is replicated:
        return ix.minimum(ix.maximum(position, ix.ZERO), size - 1)
    inside = ix.maximum(position, -position)
    return ix.minimum(inside, 2 * (size - 1) - inside)


def _padded(b: Builder, call: Call, runs: Runs) -> Tensor:
    supported(call.dtype)
    source = tensor(call["self"])
    variables = loop_vars(call.sizes)
    pads = [ix.as_index(p) for p in call["padding"]]
    if any(size is ix.ZERO for size in source.sizes):
        raise NotLowered("padding of a tensor without elements")
    at = list(variables)
    rank = len(at)
    for pair in range(1, len(pads) // 2):
        dim = rank - 1 - pair
        at[dim] = _anywhere(variables[dim] - pads[2 * pair], source.sizes[dim], runs)
    return b.value(call.sizes, call.dtype, _along_memory(b, source, at, pads, runs))


def _along_memory(
    b: Builder, source: Tensor, at: Sequence[Index], pads: Sequence[Index], runs: Runs
) -> Expr:
    """Return the element by runs of the last dimension."""
    *rows, last = at
    size, before = source.sizes[-1], pads[0]
    first, middle, end = (b.element(source, [*rows, place]) for place in runs(last - before, size))
    value = middle
    if pads[1] is not ix.ZERO:
        value = select(below(last, before + size), value, end)
    return value if before is ix.ZERO else select(below(last, before), first, value)


@lowering("reflection_pad1d", "reflection_pad2d", "reflection_pad3d")
def _reflection_pad(b: Builder, call: Call) -> Tensor:
    return _padded(b, call, reflected)


@lowering("replication_pad1d", "replication_pad2d", "replication_pad3d")
def _replication_pad(b: Builder, call: Call) -> Tensor:
    return _padded(b, call, replicated)
