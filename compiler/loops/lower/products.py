"""Products of matrices that loops compute: those the library stage chose (`registry.BY_CHOICE`).

In: calls of ``mm``. Out: ``dot`` reductions.
"""

from __future__ import annotations

from tc.compiler.loops import index as ix
from tc.compiler.loops.expr import Expr, load
from tc.compiler.loops.index import Index
from tc.compiler.loops.lower.builder import Builder, Tensor, linear, loop_vars
from tc.compiler.loops.lower.registry import Call, lowering, tensor


@lowering("mm")
def _mm(b: Builder, call: Call) -> Tensor:
    """Rows of the first operand and columns of the second lie along memory."""
    rows, matrix = tensor(call["self"]), tensor(call["mat2"])
    count, depth = rows.sizes
    width = matrix.sizes[1]
    row, column, step = loop_vars((count, width, depth))
    x = _element(b, rows, (depth, ix.ONE), (row, step))
    w = _element(b, matrix, (ix.ONE, depth), (step, column))
    product = Expr("mul", (x, w), call.dtype)
    return b.reduce("dot", call.dtype, (row, column), (step,), product, call.sizes)


def _element(
    b: Builder, operand: Tensor, strides: tuple[Index, Index], at: tuple[Index, Index]
) -> Expr:
    view = b.view(operand, strides)
    return load(view.buffer, view.offset + linear(at, view.strides), view.dtype)
