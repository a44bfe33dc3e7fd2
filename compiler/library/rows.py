"""Few rows, and tiny ones: products that generated kernels compute rather than the library.

Which ones is decided by `routines/products.py`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from tc.compiler.library.editor import Editor, aten, fake, static_shape
from tc.compiler.library.products import EXACT, PRODUCTS
from tc.compiler.loops.lower.registry import CHOSEN, made_of_loops
from tc.compiler.routines import products


def compute_few_rows(editor: Editor) -> None:
    """Have loops compute products of few rows and a matrix that is transposed, or small."""
    if not products.ROUTINE.runs_here:
        return
    for node in list(editor.graph.nodes):
        if node.target not in PRODUCTS or node.kwargs:
            continue
        reason = _reason(node)
        if not reason or not editor.decide("few_rows", [node], True, reason):
            continue
        if node.target is aten.mm.default:
            node.meta[CHOSEN] = True
            continue
        bias, rows, matrix = node.args
        product = editor.call(node, aten.mm.default, rows, matrix)
        product.meta[CHOSEN] = True
        total = editor.call(node, aten.add.Tensor, product, bias)
        node.replace_all_uses_with(total)
        editor.graph.erase_node(node)


def compute_tiny(editor: Editor) -> None:
    """Have loops compute products that take less time than a call of the library."""
    for node in list(editor.graph.nodes):
        if node.target not in PRODUCTS or node.kwargs or made_of_loops(node):
            continue
        if not _is_tiny(node):
            continue
        if not editor.decide(
            "tiny_product", [node], True, "a call takes longer than generated loops"
        ):
            continue
        *bias, rows, matrix = node.args
        across = editor.call(node, aten.permute.default, matrix, [1, 0])
        x = editor.call(node, aten.unsqueeze.default, rows, 1)
        w = editor.call(node, aten.unsqueeze.default, across, 0)
        total = editor.call(
            node, aten.sum.dim_IntList, editor.call(node, aten.mul.Tensor, x, w), [2]
        )
        if bias:
            total = editor.call(node, aten.add.Tensor, total, bias[0])
        node.replace_all_uses_with(total)
        editor.graph.erase_node(node)


def _is_tiny(node: fx.Node) -> bool:
    held, shape, size = fake(node), static_shape(node), static_shape(node.args[-1])
    if held is None or shape is None or size is None or held.dtype not in EXACT:
        return False
    if any(used.meta["val"].dtype is not held.dtype for used in node.all_input_nodes):
        return False  # ATen refuses it
    return products.is_tiny(shape[0], size[0], shape[1], on_cpu=held.device.type == "cpu")


def _reason(node: fx.Node) -> str:
    """Why a product is to be computed by loops; empty if it is not."""
    *bias, rows, matrix = node.args
    shape, depth_and_width = static_shape(rows), static_shape(matrix)
    if static_shape(node) is None or shape is None or depth_and_width is None:
        return ""
    if any(not _is_vector(part) for part in bias):
        return ""
    return products.form(shape[0], shape[1], depth_and_width[1], _steps(rows), _steps(matrix))


def _is_vector(part: Any) -> bool:
    held = fake(part)
    return held is not None and held.dim() == 1 and held.dtype is torch.float32


def _steps(part: Any) -> tuple[int, ...] | None:
    held = fake(part)
    suits = held is not None and held.dtype is torch.float32 and held.device.type == "cpu"
    return held.stride() if held is not None and suits else None
