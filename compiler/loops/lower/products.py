"""Matrix products that loops compute: those that `rewrites` chose (`registry.BY_CHOICE`).

In: calls of ``mm``. Out: ``dot`` reductions.
"""

from __future__ import annotations

from tc.compiler.loops import index as ix
from tc.compiler.loops.expr import Expr, load
from tc.compiler.loops.index import Index
from tc.compiler.loops.ir import View
from tc.compiler.loops.lower.builder import Builder, Tensor, linear, loop_vars
from tc.compiler.loops.lower.registry import Call, lowering, tensor


@lowering("mm")
def _mm(b: Builder, call: Call) -> Tensor:
    """Lower ``mm`` of a row-major left operand; the right one is column-major or row-major."""
    rows, matrix = tensor(call["self"]), tensor(call["mat2"])
    count, depth = rows.sizes
    width = matrix.sizes[1]
    row, column, step = loop_vars((count, width, depth))
    x, w = b.view(rows, (depth, ix.ONE)), b.view(matrix, (ix.ONE, depth))
    if ix.ONE not in w.strides:
        w = b.copy(matrix, (ix.ONE, depth))
    if w.strides[0] is ix.ONE and x.strides[1] is not ix.ONE:
        x = b.copy(rows, (depth, ix.ONE))
    product = Expr("mul", (_element(x, (row, step)), _element(w, (step, column))), call.dtype)
    return b.reduce("dot", call.dtype, (row, column), (step,), product, call.sizes)


def _element(view: View, at: tuple[Index, Index]) -> Expr:
    return load(view.buffer, view.offset + linear(at, view.strides), view.dtype)
