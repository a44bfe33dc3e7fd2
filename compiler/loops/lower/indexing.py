"""Indexing: reads at computed positions, and tensors assembled from pieces.

In: calls of ATen indexing, concatenation and padding ops. Out: values whose loads are indirect
(`at`) or chosen by position (`select`, whose arms are only evaluated where they are in range).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from tc.compiler.loops import index as ix
from tc.compiler.loops.expr import READS, Expr, constant, index_value, transform, walk
from tc.compiler.loops.index import Index
from tc.compiler.loops.lower.builder import (
    Builder,
    NotLowered,
    Tensor,
    converted,
    loop_vars,
    scalar_value,
    supported,
)
from tc.compiler.loops.lower.pointwise import apply, compare
from tc.compiler.loops.lower.registry import Call, dimension, lowering, number, tensor
from tc.compiler.loops.lower.views import slice_start
from tc.compiler.loops.ops import CHEAP, compute_dtype

INDEXED = (*READS, "index")
# If a source has at least this many elements for each that is read, only the latter are computed.
FEW = 4


def select(condition: Expr, yes: Expr, no: Expr) -> Expr:
    """``yes if condition else no``; only the chosen one is evaluated."""
    return Expr("select", (condition, yes, no), yes.dtype)


def below(position: Index, bound: Index) -> Expr:
    """position < bound."""
    return compare("lt", index_value(position), index_value(bound))


def both(a: Expr, b: Expr) -> Expr:
    """a and b."""
    return apply("and", a, b)


@lowering("cat")
def _cat(b: Builder, call: Call) -> Tensor:
    supported(call.dtype)
    parts = [tensor(t) for t in call["tensors"] if tensor(t).sizes != (ix.ZERO,)]
    if not parts or len(parts) > 64:
        raise NotLowered("cat of nothing, or of very many")
    dim = dimension(call["dim"], len(parts[0].sizes))
    return joined(b, call, parts, dim)


def joined(b: Builder, call: Call, parts: Sequence[Tensor], dim: int) -> Tensor:
    """Tensors one after the other along ``dim``."""
    wide = compute_dtype(call.dtype)
    variables = loop_vars(call.sizes)
    starts = [ix.ZERO]
    for part in parts:
        supported(part.dtype)
        starts.append(starts[-1] + part.sizes[dim])
    value: Expr | None = None
    for part, start in reversed(list(zip(parts, starts[:-1], strict=True))):
        at = list(variables)
        at[dim] = variables[dim] - start
        piece = converted(b.element(part, at), wide)
        end = start + part.sizes[dim]
        value = piece if value is None else select(below(variables[dim], end), piece, value)
    assert value is not None
    return b.value(call.sizes, call.dtype, value)


@lowering("stack")
def _stack(b: Builder, call: Call) -> Tensor:
    supported(call.dtype)
    dim = dimension(call["dim"], len(call.sizes))
    parts = []
    for item in call["tensors"]:
        part = tensor(item)
        sizes = (*part.sizes[:dim], ix.ONE, *part.sizes[dim:])
        variables = loop_vars(sizes)
        parts.append(part.view(sizes, [*variables[:dim], *variables[dim + 1 :]], variables))
    return joined(b, call, parts, dim)


@lowering("constant_pad_nd")
def _pad(b: Builder, call: Call) -> Tensor:
    supported(call.dtype)
    source, wide = tensor(call["self"]), compute_dtype(call.dtype)
    variables = loop_vars(call.sizes)
    at = list(variables)
    inside: Expr | None = None
    pads = [ix.as_index(p) for p in call["pad"]]
    for pair in range(len(pads) // 2):
        dim = len(source.sizes) - 1 - pair
        before, after = pads[2 * pair], pads[2 * pair + 1]
        at[dim] = variables[dim] - before
        tests = []
        if before is not ix.ZERO:
            tests.append(compare("ge", index_value(at[dim]), constant(0, torch.int64)))
        if after is not ix.ZERO:
            tests.append(below(at[dim], source.sizes[dim]))
        for test in tests:
            inside = test if inside is None else both(inside, test)
    value = converted(b.element(source, at), wide)
    if inside is not None:
        value = select(inside, value, scalar_value(call["value"], wide))
    return b.value(call.sizes, call.dtype, value)


@lowering("reflection_pad1d", "reflection_pad2d", "reflection_pad3d")
def _reflected(b: Builder, call: Call) -> Tensor:
    def back(at: Index, size: Index) -> tuple[Index, Index]:
        return -at, 2 * (size - 1) - at

    return _padded_by_own(b, call, back)


@lowering("replication_pad1d", "replication_pad2d", "replication_pad3d")
def _replicated(b: Builder, call: Call) -> Tensor:
    def back(at: Index, size: Index) -> tuple[Index, Index]:
        return ix.ZERO, size - 1

    return _padded_by_own(b, call, back)


def _padded_by_own(
    b: Builder, call: Call, back: Callable[[Index, Index], tuple[Index, Index]]
) -> Tensor:
    """Return an image with its own elements around it.

    Rows have a computed index; along memory there are three runs, as in a concatenation.

    Args:
        back: a position outside and the size -> the position inside, before and after the image.
    """
    supported(call.dtype)
    source = tensor(call["self"])
    pads = [number(p) for p in call["padding"]]
    if min(pads) < 0:
        raise NotLowered("padding that takes elements away")
    if source.cell.body.exceeds(CHEAP):
        b.realize(source.cell)
    variables = loop_vars(call.sizes)
    at = list(variables)
    for pair in range(1, len(pads) // 2):
        dim = len(source.sizes) - 1 - pair
        place, size = variables[dim] - pads[2 * pair], source.sizes[dim]
        first, last = back(place, size)
        if pads[2 * pair]:
            place = ix.maximum(place, first)
        at[dim] = ix.minimum(place, last) if pads[2 * pair + 1] else place
    along, size = variables[-1] - pads[0], source.sizes[-1]
    first, last = back(along, size)
    value = b.element(source, [*at[:-1], along])
    if pads[1]:
        value = select(below(along, size), value, b.element(source, [*at[:-1], last]))
    if pads[0]:
        inside = below(variables[-1], ix.const(pads[0]))
        value = select(inside, b.element(source, [*at[:-1], first]), value)
    return b.value(call.sizes, call.dtype, value)


@lowering("slice_scatter", "select_scatter")
def _scatter_view(b: Builder, call: Call) -> Tensor:
    supported(call.dtype)
    base, source = tensor(call["self"]), tensor(call["src"])
    wide = compute_dtype(call.dtype)
    dim = dimension(call["dim"], len(base.sizes))
    variables = loop_vars(call.sizes)
    at = list(variables)
    position = variables[dim]
    if "index" in call.args:
        where = ix.as_index(call["index"])
        if where.constant is None:
            raise NotLowered("symbolic index")
        start = where if where.constant >= 0 else where + base.sizes[dim]
        del at[dim]
        inside = compare("eq", index_value(position), index_value(start))
    else:
        step = number(call["step"])
        start = slice_start(call["start"], base.sizes[dim])
        at[dim] = ix.floordiv(position - start, ix.const(step)) if step != 1 else position - start
        inside = both(
            compare("ge", index_value(position), index_value(start)),
            below(position, start + source.sizes[dim] * step),
        )
        if step != 1:
            rest = ix.mod(position - start, ix.const(step))
            inside = both(inside, compare("eq", index_value(rest), constant(0, torch.int64)))
    value = converted(b.element(source, at), wide)
    kept = converted(b.element(base, variables), wide)
    return b.value(call.sizes, call.dtype, select(inside, value, kept))


@lowering("flip")
def _flip(b: Builder, call: Call) -> Tensor:
    supported(call.dtype)
    source = tensor(call["self"])
    at = list(loop_vars(call.sizes))
    for given in call["dims"]:
        dim = dimension(given, len(at))
        if at[dim] is not ix.ZERO:
            at[dim] = source.sizes[dim] - 1 - at[dim]
    return b.value(call.sizes, call.dtype, b.element(source, at))


@lowering("roll")
def _roll(b: Builder, call: Call) -> Tensor:
    supported(call.dtype)
    source = tensor(call["self"])
    if not call["dims"]:
        raise NotLowered("roll of the flat tensor")
    variables = loop_vars(call.sizes)
    moved = [0] * len(variables)
    for given, shift in zip(call["dims"], call["shifts"], strict=True):
        moved[dimension(given, len(moved))] += number(shift)
    sizes = source.sizes
    at = [
        v if not by or v is ix.ZERO else ix.mod(v - by, size)
        for v, by, size in zip(variables, moved, sizes, strict=True)
    ]
    extent = sizes[-1].constant if sizes else None
    if not extent or not moved[-1] % extent:
        return b.value(call.sizes, call.dtype, b.element(source, at))
    # Along memory a roll is two runs: the end, and then the start.
    last, by = variables[-1], moved[-1] % extent
    end = b.element(source, [*at[:-1], last - by + extent])
    start = b.element(source, [*at[:-1], last - by])
    value = select(below(last, ix.const(by)), end, start)
    return b.value(call.sizes, call.dtype, value)


# ---------------------------------------------------------------- indirect reads


def indirect(
    b: Builder,
    source: Tensor,
    at: Sequence[Index | Expr],
    sizes: Sequence[Index],
    wrap: bool = True,
    checked: bool = True,
) -> Expr:
    """Return the element at indices, some of which are values (indirect indexing).

    An ``at`` expression holds the values as operands; its index names them ``x0, x1, …``. Values
    must be in range (after adding the size to negative ones, if ``wrap``); if ``checked``, the
    kernel fails otherwise. If the result, by its ``sizes``, reads few elements of the source, only
    those are computed.

    Raises:
        NotLowered: the result has no elements, so that no loop would check the values.
    """
    if checked and ix.ZERO in sizes:
        raise NotLowered("positions that a loop without iterations cannot check")
    names: list[Index] = []
    values: list[Expr] = []
    index: list[Index] = []
    for position, extent in zip(at, source.sizes, strict=True):
        if isinstance(position, Index):
            index.append(position)
            continue
        value = from_the_end(position, extent) if wrap else converted(position, torch.int64)
        name = ix.var(f"x{len(values)}", extent)
        names.append(name)
        values.append(value)
        index.append(name)
    bounds = tuple(ix.extent(name) for name in names)

    def read(load: Expr) -> Expr:
        return Expr("at", tuple(values), load.dtype, (*load.data, bounds, checked))

    if source.cell.buffer is None and _few(source, sizes):
        element = b.element(source, index)
        chosen = _chosen(element, names)
        if chosen and b.gate.allow("loops.inline_picked", b.origin.node):
            return transform(element, lambda node: read(node) if node in chosen else node)
    b.realize(source.cell)
    element = b.element(source, index)
    [load] = element.loads()
    result = read(load)
    return result if element is load else Expr(element.op, (result,), element.dtype, element.data)


def _few(source: Tensor, sizes: Sequence[Index]) -> bool:
    """Return whether so few elements are read that recomputing them is cheaper than writing all."""
    has, read = ix.product(list(source.sizes)).constant, ix.product(list(sizes)).constant
    return has is not None and read is not None and FEW * read <= has


def _chosen(element: Expr, names: Sequence[Index]) -> set[Expr]:
    """Return the loads of an element at computed positions; none if it also has other loads."""
    atoms = {atom for name in names for atom in name.atoms()}
    chosen: set[Expr] = set()
    for node in walk(element):
        where = node.data[0 if node.op == "index" else 1] if node.op in INDEXED else ix.ZERO
        if atoms & where.atoms():
            if node.op != "load":
                return set()
            chosen.add(node)
    return chosen


def from_the_end(position: Expr, extent: Index) -> Expr:
    """Return a position, the size added to a negative one."""
    value = converted(position, torch.int64)
    negative = compare("lt", value, constant(0, torch.int64))
    return Expr("where", (negative, apply("add", value, index_value(extent)), value), torch.int64)


def no_bool(value: Tensor) -> None:
    """Raise for boolean masks, whose results have data-dependent sizes."""
    if value.dtype not in (torch.int64, torch.int32, torch.int16, torch.int8):
        raise NotLowered("indexing by a mask")


@lowering("embedding")
def _embedding(b: Builder, call: Call) -> Tensor:
    weight, indices = tensor(call["weight"]), tensor(call["indices"])
    supported(weight.dtype)
    no_bool(indices)
    variables = loop_vars(call.sizes)
    value = b.element(indices, variables[:-1])
    return b.value(
        call.sizes, call.dtype, indirect(b, weight, [value, variables[-1]], call.sizes, wrap=False)
    )


@lowering("index_select")
def _index_select(b: Builder, call: Call) -> Tensor:
    source, indices = tensor(call["self"]), tensor(call["index"])
    supported(source.dtype)
    if not source.sizes or len(indices.sizes) != 1:
        raise NotLowered("index_select on a scalar")
    dim = dimension(call["dim"], len(source.sizes))
    variables = loop_vars(call.sizes)
    at: list[Index | Expr] = list(variables)
    at[dim] = b.element(indices, [variables[dim]])
    return b.value(call.sizes, call.dtype, indirect(b, source, at, call.sizes, wrap=False))


@lowering("gather")
def _gather(b: Builder, call: Call) -> Tensor:
    source, indices = tensor(call["self"]), tensor(call["index"])
    supported(source.dtype)
    if not source.sizes or not indices.sizes:
        raise NotLowered("gather on a scalar")
    dim = dimension(call["dim"], len(source.sizes))
    variables = loop_vars(call.sizes)
    at: list[Index | Expr] = list(variables)
    at[dim] = b.element(indices, variables)
    return b.value(call.sizes, call.dtype, indirect(b, source, at, call.sizes, wrap=False))


@lowering("index.Tensor", "_unsafe_index.Tensor")
def _index(b: Builder, call: Call) -> Tensor:
    source = tensor(call["self"])
    supported(source.dtype)
    picked, at = positions(b, source.sizes, call["indices"])
    if picked != call.sizes:
        raise NotLowered("sizes that only a guard makes equal")
    checked = call.op is not torch.ops.aten._unsafe_index.Tensor
    return b.value(call.sizes, call.dtype, indirect(b, source, at, call.sizes, checked=checked))


def positions(
    b: Builder, sizes: Sequence[Index], indices: Sequence[Any]
) -> tuple[tuple[Index, ...], list[Index | Expr]]:
    """Return the sizes of ``x[indices]``, and the positions in ``x`` of its elements."""
    given = [*indices, *[None] * (len(sizes) - len(indices))]
    picked = [d for d, item in enumerate(given) if item is not None]
    tensors = [tensor(given[d]) for d in picked]
    for item in tensors:
        no_bool(item)
    shared = common_sizes([item.sizes for item in tensors])
    joined_up = bool(picked) and picked == list(range(picked[0], picked[-1] + 1))
    lead = picked[0] if joined_up else 0
    kept = [extent for extent, item in zip(sizes, given, strict=True) if item is None]
    whole = (*kept[:lead], *shared, *kept[lead:])
    variables = loop_vars(whole)
    end = lead + len(shared)
    others = iter((*variables[:lead], *variables[end:]))
    at: list[Index | Expr] = []
    for item in given:
        if item is None:
            at.append(next(others))
        else:
            at.append(b.element(b.broadcast(tensor(item), shared), variables[lead:end]))
    return whole, at


def common_sizes(all_sizes: Sequence[Sequence[Index]]) -> tuple[Index, ...]:
    """Return the common sizes that tensors broadcast to."""
    rank = max(map(len, all_sizes), default=0)
    found = [ix.ONE] * rank
    for sizes in all_sizes:
        for position, extent in enumerate(sizes, rank - len(sizes)):
            if extent is not ix.ONE:
                found[position] = extent
    return tuple(found)
