"""Creation ops: tensors whose elements depend only on their index.

In: calls of ATen factories. Out: constant or index values, which cost no memory when read in loops.
"""

from __future__ import annotations

from typing import Any

import torch

from tc.compiler.loops.expr import constant, index_value
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
from tc.compiler.loops.lower.pointwise import apply, choose, compare
from tc.compiler.loops.lower.registry import Call, lowering, number, tensor
from tc.compiler.loops.ops import compute_dtype


def filled(b: Builder, call: Call, value: Any) -> Tensor:
    """Return a tensor of one value."""
    supported(call.dtype)
    return b.value(call.sizes, call.dtype, scalar_value(value, compute_dtype(call.dtype)))


@lowering("full", "full_like", "scalar_tensor", "new_full", "fill.Scalar")
def _full(b: Builder, call: Call) -> Tensor:
    for name in ("fill_value", "s", "value"):
        if name in call.args:
            return filled(b, call, call[name])
    raise NotLowered("no value to fill with")


@lowering("fill.Tensor")
def _fill(b: Builder, call: Call) -> Tensor:
    supported(call.dtype)
    value = b.broadcast(tensor(call["value"]), call.sizes)
    return b.value(call.sizes, call.dtype, b.element(value))


@lowering("zeros", "zeros_like", "new_zeros", "zero")
def _zeros(b: Builder, call: Call) -> Tensor:
    return filled(b, call, 0)


@lowering("ones", "ones_like", "new_ones")
def _ones(b: Builder, call: Call) -> Tensor:
    return filled(b, call, 1)


@lowering("arange", "arange.start", "arange.start_step")
def _arange(b: Builder, call: Call) -> Tensor:
    supported(call.dtype)
    start, step = call.get("start", 0), call.get("step", 1)
    position = index_value(loop_vars(call.sizes)[0])
    whole = all(isinstance(value, int | Index) for value in (start, step))
    if whole and not call.dtype.is_floating_point:
        value = apply("mul", position, scalar_value(step, torch.int64))
        return b.value(
            call.sizes, call.dtype, apply("add", value, scalar_value(start, torch.int64))
        )
    wide = torch.float64 if call.dtype.is_floating_point else torch.int64
    value = apply("mul", converted(position, wide), scalar_value(step, wide))
    return b.value(call.sizes, call.dtype, apply("add", value, scalar_value(start, wide)))


@lowering("eye", "eye.m")
def _eye(b: Builder, call: Call) -> Tensor:
    supported(call.dtype)
    row, column = (index_value(v) for v in loop_vars(call.sizes))
    return b.value(call.sizes, call.dtype, converted(compare("eq", row, column), call.dtype))


@lowering("tril", "triu")
def _tril(b: Builder, call: Call) -> Tensor:
    supported(call.dtype)
    source = tensor(call["self"])
    variables = loop_vars(call.sizes)
    row, column = (index_value(v) for v in variables[-2:])
    edge = apply("add", row, constant(number(call["diagonal"]), torch.int64))
    op = "le" if call.op.overloadpacket.__name__ == "tril" else "ge"
    value = b.element(source)
    kept = choose(compare(op, column, edge), value, constant(0, value.dtype))
    return b.value(call.sizes, call.dtype, kept)
