"""Scatters: values are combined into a tensor at computed positions.

In: calls of ATen ops that write at indices, and the gradient of embeddings. Out: `Scatter` nodes
over a copy of the destination. On a GPU they use atomic operations, which exist for wide types
only: narrow ones are summed in a wider one and rounded once. Floats are compared as integers of the
same order, in which NaN is the last. On a CPU elements are processed one by one, as in eager.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from tc.compiler.loops import index as ix
from tc.compiler.loops.expr import Expr, constant, neutral
from tc.compiler.loops.index import Index
from tc.compiler.loops.ir import Origin
from tc.compiler.loops.lower.builder import (
    Builder,
    Cell,
    NotLowered,
    Tensor,
    converted,
    loop_vars,
    scalar_value,
    supported,
)
from tc.compiler.loops.lower.indexing import from_the_end, no_bool, positions
from tc.compiler.loops.lower.pointwise import apply, choose, compare, like
from tc.compiler.loops.lower.registry import (
    SCATTERS,
    Call,
    dimension,
    lowering,
    number,
    tensor,
)
from tc.compiler.loops.ops import CHEAP, compute_dtype

KINDS = {"sum": "sum", "amax": "max", "amin": "min"}
ATOMIC = (torch.float32, torch.float64, torch.int32, torch.int64)
AS_INTEGER = {torch.float32: torch.int32, torch.float64: torch.int64}
Code = Callable[[Expr], Expr]
#: an element of the destination, and its source
Base = tuple[Expr, tuple[Origin, ...]]


def in_any_order(device: torch.device) -> bool:
    """Return whether elements are combined concurrently on a device, not one by one."""
    return device.type != "cpu"


def _same(value: Expr) -> Expr:
    return value


def _accumulated(kind: str, dtype: torch.dtype, atomic: bool) -> tuple[torch.dtype, Code, Code]:
    """Return the accumulator type of a scatter, and the conversions to it and back."""
    supported(dtype)
    if kind == "set":
        return dtype, _same, _same
    if kind == "sum" and dtype is torch.bool:
        raise NotLowered("a sum of bools")
    wide = compute_dtype(dtype)
    if not atomic:
        if wide is not dtype:
            raise NotLowered(f"each result is rounded to {dtype}")
        return dtype, _same, _same
    if not wide.is_floating_point:
        kept = wide if wide in ATOMIC else torch.int32
        return kept, lambda value: converted(value, kept), lambda value: converted(value, dtype)
    if kind == "sum":
        if torch.are_deterministic_algorithms_enabled():
            raise NotLowered("deterministic algorithms: floats would be added in any order")
        return wide, _same, _same
    kept = AS_INTEGER[wide]
    return kept, lambda value: _ordered(value, kind, kept), lambda value: _unordered(value, wide)


def _ordered(value: Expr, kind: str, kept: torch.dtype) -> Expr:
    """Return a float as an integer of the same order, NaN beyond the extremum."""
    bits = Expr("bits", (value,), kept)
    limits = torch.iinfo(kept)
    negative = compare("lt", bits, like(0, bits))
    place = choose(negative, apply("xor", bits, like(limits.max, bits)), bits)
    nan = constant(limits.max if kind == "max" else limits.min, kept)
    return choose(Expr("isnan", (value,), torch.bool), nan, place)


def _unordered(place: Expr, dtype: torch.dtype) -> Expr:
    """Return the float of such an integer, whose extremes are NaN."""
    negative = compare("lt", place, like(0, place))
    bits = choose(negative, apply("xor", place, like(torch.iinfo(place.dtype).max, place)), place)
    return Expr("bits", (bits,), dtype)


def _scattered(
    b: Builder,
    call: Call,
    kind: str,
    base: Base,
    variables: Sequence[Index],
    into: Sequence[Index | Expr],
    value: Expr,
    include: bool = True,
) -> Tensor:
    """Scatter values into a destination.

    Args:
        base: the destination's content, over ``loop_vars(call.sizes)``.
        value: over ``variables``, in the type that the result's elements are computed in.
        include: whether the old content is combined with the scattered values.
    """
    if any(extent is ix.ZERO for extent in call.sizes):
        raise NotLowered("a scatter into nothing")
    dtype, strides = call.dtype, b.strides
    atomic = in_any_order(b.device)
    kept, there, back = _accumulated(kind, dtype, atomic)
    if kind == "set":
        _last_stays(call, variables, into, value, atomic)
    assert strides is not None
    body, origins = base
    cell = Cell(kept, call.sizes, strides, loop_vars(call.sizes), there(body), origins)
    if not include:
        cell = b.scatter("set", cell, variables, into, neutral(kind, kept)).cell
    found = b.scatter(kind, cell, variables, into, there(value))
    if kept is dtype:
        return found
    wide = compute_dtype(dtype)
    return b.value(call.sizes, dtype, converted(back(b.element(found)), wide))


def _last_stays(
    call: Call,
    variables: Sequence[Index],
    into: Sequence[Index | Expr],
    value: Expr,
    atomic: bool,
) -> None:
    """Raise if several values may go to one position, of which eager's order keeps the last."""
    if value.op == "const":
        return
    if atomic and torch.are_deterministic_algorithms_enabled():
        raise NotLowered(f"deterministic algorithms: {call.op} may name an element twice")
    plain = [place for place in into if isinstance(place, Index)]
    shared = [v for v in variables if v is not ix.ZERO and v not in plain]
    if not atomic and len(shared) > 1:
        raise NotLowered("of several values for an element the last stays, in the order of ATen")


def _base(b: Builder, call: Call) -> Base:
    source = tensor(call["self"])
    if source.sizes != call.sizes or not source.sizes:
        raise NotLowered("it broadcasts, or has no dimensions")
    return b.element(source, loop_vars(source.sizes)), b.origins()


def _along(b: Builder, call: Call) -> tuple[tuple[Index, ...], list[Index | Expr]]:
    """Return loops over an index of positions along a dimension, and the destinations."""
    indices = tensor(call["index"])
    no_bool(indices)
    if len(indices.sizes) != len(call.sizes):
        raise NotLowered("an index without dimensions")
    variables = loop_vars(indices.sizes)
    into: list[Index | Expr] = list(variables)
    at = dimension(call["dim"], len(call.sizes))
    into[at] = converted(b.element(indices, variables), torch.int64)
    return variables, into


def _taken(
    b: Builder,
    source: Tensor,
    variables: Sequence[Index],
    into: Sequence[Index | Expr],
    wide: torch.dtype,
) -> Expr:
    """Return the value to scatter; an expensive one that would not vectorise is realized."""
    apart = any(place is variables[-1] for place in into) if variables else True
    if not (apart or in_any_order(b.device)) and source.cell.body.exceeds(CHEAP):
        b.realize(source.cell)
    return converted(b.element(source, variables), wide)


@lowering("scatter.src", "scatter_add", "scatter_reduce.two", table=SCATTERS)
def _scatter(b: Builder, call: Call) -> Tensor:
    source = tensor(call["src"])
    name = call.get("reduce") or ("sum" if "scatter_add" in str(call.op) else "")
    if name and name not in KINDS:
        raise NotLowered(f"scatter_reduce by {name}")
    base = _base(b, call)
    variables, into = _along(b, call)
    value = _taken(b, source, variables, into, compute_dtype(call.dtype))
    include = call.get("include_self", True)
    return _scattered(b, call, KINDS.get(name, "set"), base, variables, into, value, include)


@lowering("scatter.value", table=SCATTERS)
def _scatter_value(b: Builder, call: Call) -> Tensor:
    base = _base(b, call)
    variables, into = _along(b, call)
    value = scalar_value(call["value"], compute_dtype(call.dtype))
    return _scattered(b, call, "set", base, variables, into, value)


@lowering("index_add", "index_copy", table=SCATTERS)
def _index_along(b: Builder, call: Call) -> Tensor:
    source, indices = tensor(call["source"]), tensor(call["index"])
    no_bool(indices)
    base = _base(b, call)
    if len(indices.sizes) != 1 or len(source.sizes) != len(call.sizes):
        raise NotLowered("an index or a source without dimensions")
    wide = compute_dtype(call.dtype)
    at = dimension(call["dim"], len(call.sizes))
    variables = loop_vars(source.sizes)
    into: list[Index | Expr] = list(variables)
    into[at] = converted(b.element(indices, [variables[at]]), torch.int64)
    value = _taken(b, source, variables, into, wide)
    if "index_copy" in str(call.op):
        return _scattered(b, call, "set", base, variables, into, value)
    alpha: Any = call["alpha"]
    if alpha != 1:
        value = apply("mul", value, scalar_value(alpha, wide))
    return _scattered(b, call, "sum", base, variables, into, value)


@lowering("index_put", "_unsafe_index_put", table=SCATTERS)
def _index_put(b: Builder, call: Call) -> Tensor:
    kind = "sum" if call["accumulate"] else "set"
    base = _base(b, call)
    sizes, picked = positions(b, call.sizes, call["indices"])
    into: list[Index | Expr] = [
        from_the_end(place, extent) if isinstance(place, Expr) else place
        for place, extent in zip(picked, call.sizes, strict=True)
    ]
    values = b.broadcast(tensor(call["values"]), sizes)
    value = _taken(b, values, loop_vars(sizes), into, compute_dtype(call.dtype))
    return _scattered(b, call, kind, base, loop_vars(sizes), into, value)


@lowering("embedding_dense_backward", table=SCATTERS)
def _embedding_gradient(b: Builder, call: Call) -> Tensor:
    if call["scale_grad_by_freq"]:
        raise NotLowered("gradients scaled by how often a row was read")
    gradient, indices = tensor(call["grad_output"]), tensor(call["indices"])
    variables = loop_vars(gradient.sizes)
    wide = compute_dtype(call.dtype)
    row = converted(b.element(indices, variables[:-1]), torch.int64)
    value = converted(b.element(gradient, variables), wide)
    padding = number(call["padding_idx"])
    if padding >= 0:
        value = choose(compare("eq", row, like(padding, row)), like(0, value), value)
    base = (like(0, value), (b.origin,))
    return _scattered(b, call, "sum", base, variables, [row, variables[-1]], value)
