"""View ops: the same elements at other indices.

In: calls of ATen view ops. Out: tensors that share the argument's cell, with an index map.
"""

from __future__ import annotations

from typing import Any

import torch

from tc.compiler.loops import index as ix
from tc.compiler.loops.expr import Expr
from tc.compiler.loops.index import Index
from tc.compiler.loops.lower.builder import Builder, NotLowered, Tensor, linear, loop_vars
from tc.compiler.loops.lower.registry import Call, dimension, lowering, number, tensor
from tc.compiler.loops.ops import compute_dtype

Sizes = tuple[Index, ...]


def reshaped(source: Tensor, sizes: Sizes) -> Tensor:
    """Return the elements in row-major order under other sizes."""
    if source.sizes == sizes:
        return source
    if any(extent is ix.ZERO for extent in sizes):
        return source.view(sizes, [ix.ZERO] * len(source.sizes), loop_vars(sizes))
    variables = loop_vars(sizes)
    return source.view(sizes, ix.regrouped(source.sizes, sizes, variables), variables)


@lowering("view", "_unsafe_view", "reshape", "_reshape_alias", view=True)
def _view(b: Builder, call: Call) -> Tensor:
    return reshaped(tensor(call["self"]), call.sizes)


@lowering("alias", "detach", "lift", view=True)
def _alias(b: Builder, call: Call) -> Tensor:
    return tensor(call["self"])


def permuted(source: Tensor, order: list[int]) -> Tensor:
    """Dimensions in another order."""
    sizes = tuple(source.sizes[d] for d in order)
    variables = loop_vars(sizes)
    index: list[Index] = [ix.ZERO] * len(order)
    for new, old in enumerate(order):
        index[old] = variables[new]
    return source.view(sizes, index, variables)


@lowering("permute", view=True)
def _permute(b: Builder, call: Call) -> Tensor:
    source = tensor(call["self"])
    return permuted(source, [dimension(d, len(source.sizes)) for d in call["dims"]])


@lowering("transpose.int", "t", view=True)
def _transpose(b: Builder, call: Call) -> Tensor:
    source = tensor(call["self"])
    rank = len(source.sizes)
    order = list(range(rank))
    if rank >= 2 or call.get("dim0") is not None:
        first, second = dimension(call.get("dim0", 0), rank), dimension(call.get("dim1", 1), rank)
        if rank:
            order[first], order[second] = order[second], order[first]
    return permuted(source, order)


@lowering("expand", view=True)
def _expand(b: Builder, call: Call) -> Tensor:
    return b.broadcast(tensor(call["self"]), call.sizes)


#: least elements of a row from which on a repeat is not stored: each read divides to find its row
LONG_ROW = 16


@lowering("repeat")
def _repeat(b: Builder, call: Call) -> Tensor:
    source, repeats = tensor(call["self"]), [ix.as_index(n) for n in call["repeats"]]
    sizes = (*(ix.ONE,) * (len(repeats) - len(source.sizes)), *source.sizes)
    apart = reshaped(source, tuple(n for size in sizes for n in (ix.ONE, size)))
    pairs = zip(repeats, sizes, strict=True)
    wide = b.broadcast(apart, tuple(n for pair in pairs for n in pair))
    long = not sizes or (sizes[-1].constant or LONG_ROW) >= LONG_ROW
    if not long or (repeats and repeats[-1] is not ix.ONE):
        # Stored by its own loops, it is read without divisions, which vectors would gather by.
        wide = b.value(wide.sizes, call.dtype, b.element(wide))
        b.realize(wide.cell)
    return b.value(call.sizes, call.dtype, b.element(reshaped(wide, call.sizes)))


@lowering("slice.Tensor", view=True)
def _slice(b: Builder, call: Call) -> Tensor:
    source = tensor(call["self"])
    dim = dimension(call["dim"], len(source.sizes))
    step = number(call["step"])
    start = slice_start(call["start"], source.sizes[dim])
    sizes = call.sizes
    known = [source.sizes[dim], start, *map(ix.as_index, filter(None, [call["end"]]))]
    if not sizes[dim].atoms() <= frozenset().union(*(one.atoms() for one in known)):
        raise NotLowered("a size that only the result has")  # bounds that depend on data
    variables = loop_vars(sizes)
    index = list(variables)
    index[dim] = variables[dim] * step + start
    return source.view(sizes, index, variables)


def slice_start(start: Any, extent: Index) -> Index:
    """Return the start of a slice, clipped as in Python.

    Raises:
        NotLowered: its sign is unknown.
    """
    if start is None:
        return ix.ZERO
    first = ix.as_index(start)
    if first.constant is not None and first.constant < 0:
        first = first + extent
        return first if ix.is_at_least(first, 0) else ix.maximum(first, ix.ZERO)
    if not ix.is_at_least(first, 0):
        raise NotLowered("slice start of unknown sign")
    return ix.minimum(first, extent)


@lowering("select.int", view=True)
def _select(b: Builder, call: Call) -> Tensor:
    source = tensor(call["self"])
    dim = dimension(call["dim"], len(source.sizes))
    at = ix.as_index(call["index"])
    if at.constant is not None and at.constant < 0:
        at = at + source.sizes[dim]
    elif not ix.is_at_least(at, 0):
        raise NotLowered("select at an index of unknown sign")
    variables = loop_vars(call.sizes)
    return source.view(call.sizes, [*variables[:dim], at, *variables[dim:]], variables)


@lowering("squeeze", "squeeze.dim", "squeeze.dims", view=True)
def _squeeze(b: Builder, call: Call) -> Tensor:
    source = tensor(call["self"])
    rank = len(source.sizes)
    dims = call.get("dim")
    if dims is None:
        chosen = list(range(rank))
    else:
        chosen = [dimension(d, rank) for d in (dims if isinstance(dims, list | tuple) else [dims])]
    gone = {d for d in chosen if d < rank and source.sizes[d] is ix.ONE}
    variables = iter(loop_vars(call.sizes))
    index = [ix.ZERO if d in gone else next(variables) for d in range(rank)]
    return source.view(call.sizes, index, loop_vars(call.sizes))


@lowering("unsqueeze", view=True)
def _unsqueeze(b: Builder, call: Call) -> Tensor:
    source = tensor(call["self"])
    dim = number(call["dim"])
    dim = dim + len(source.sizes) + 1 if dim < 0 else dim
    variables = loop_vars(call.sizes)
    return source.view(call.sizes, [*variables[:dim], *variables[dim + 1 :]], variables)


@lowering("diagonal", view=True)
def _diagonal(b: Builder, call: Call) -> Tensor:
    source = tensor(call["self"])
    rank = len(source.sizes)
    first, second = dimension(call["dim1"], rank), dimension(call["dim2"], rank)
    empty = call.sizes[-1] == ix.ZERO  # a diagonal beyond the matrix begins where the matrix does
    offset = 0 if empty else number(call["offset"])
    variables = loop_vars(call.sizes)
    others = iter(variables[:-1])
    index = [ix.ZERO if d in (first, second) else next(others) for d in range(rank)]
    index[first] = variables[-1] + max(-offset, 0)
    index[second] = variables[-1] + max(offset, 0)
    return source.view(call.sizes, index, variables)


@lowering("unfold", view=True)
def _unfold(b: Builder, call: Call) -> Tensor:
    source = tensor(call["self"])
    dim = dimension(call["dimension"], len(source.sizes))
    variables = loop_vars(call.sizes)
    index = list(variables[: len(source.sizes)])
    if not index:
        return source.view(call.sizes, [], variables)
    index[dim] = index[dim] * number(call["step"]) + variables[-1]
    return source.view(call.sizes, index, variables)


def _pieces(b: Builder, call: Call, dim: int) -> list[Tensor]:
    source = tensor(call["self"])
    start, results = ix.ZERO, []
    for fake in call.fake:
        sizes = b.reader.sizes(fake)
        variables = loop_vars(sizes)
        index = list(variables)
        index[dim] = index[dim] + start
        results.append(source.view(sizes, index, variables))
        start = start + sizes[dim]
    return results


@lowering("split.Tensor", "split_with_sizes", view=True)
def _split(b: Builder, call: Call) -> list[Tensor]:
    return _pieces(b, call, dimension(call["dim"], len(tensor(call["self"]).sizes)))


@lowering("unbind.int", view=True)
def _unbind(b: Builder, call: Call) -> list[Tensor]:
    source = tensor(call["self"])
    dim = dimension(call["dim"], len(source.sizes))
    results = []
    for at, fake in enumerate(call.fake):
        sizes = b.reader.sizes(fake)
        variables = loop_vars(sizes)
        index = [*variables[:dim], ix.const(at), *variables[dim:]]
        results.append(source.view(sizes, index, variables))
    return results


@lowering("as_strided", view=True)
def _as_strided(b: Builder, call: Call) -> Tensor:
    source = tensor(call["self"])
    name = b.realize(source.cell)
    offset = call.get("storage_offset")
    base = b.strided(source)
    if base is None:
        raise NotLowered("as_strided of a tensor that is not a strided window")
    if offset is None:
        start = base.offset
    elif name.startswith("buf"):
        start = ix.as_index(offset)
    else:
        raise NotLowered("as_strided of an input with an absolute offset")
    variables = loop_vars(call.sizes)
    steps = b.reader.strides(call.fake)
    return b.window(name, source.dtype, call.sizes, linear(variables, steps) + start)


@lowering("view.dtype", view=True)
def _view_dtype(b: Builder, call: Call) -> Tensor:
    source = tensor(call["self"])
    same = source.dtype.itemsize == call.dtype.itemsize
    plain = compute_dtype(call.dtype) is call.dtype and compute_dtype(source.dtype) is source.dtype
    if not same or not plain or torch.bool in (source.dtype, call.dtype):
        raise NotLowered("view of other bits")
    bits = Expr("bits", (b.element(source),), call.dtype)
    return b.value(call.sizes, call.dtype, bits, source.vars)
