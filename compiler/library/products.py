"""Matrix products: how many there are, how their operands lie, and who adds the bias."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import torch
from torch import fx

from tc.compiler.core.machine import caches
from tc.compiler.library.editor import Editor, aten, fake, static_shape
from tc.compiler.loops.lower.registry import made_of_loops, readers

PRODUCTS = (aten.mm.default, aten.addmm.default)
#: rows up to which a product with a transposed matrix spends its time on reading that matrix
FEW_ROWS = 64
#: products of one matrix from which on transposing it once costs less than it saves (measured: a
#: transpose costs what three products of 16 rows lose)
TRANSPOSE_USES = 6
EXACT = (torch.float32, torch.float64)  # sums in other types are rounded a second time if split


def merge_slices(editor: Editor) -> None:
    """Multiply a whole tensor by a matrix at once where its slices are multiplied one by one.

    Recurrent networks written as loops do so: ``x[t] @ w`` for all t.
    """
    groups: defaultdict[Any, list[fx.Node]] = defaultdict(list)
    for node in editor.graph.nodes:
        if node.op == "call_function" and node.target in PRODUCTS and not node.kwargs:
            *bias, rows, matrix = node.args
            if rows.target is aten.select.int and rows.args[1] == 0:
                groups[node.target, rows.args[0], matrix, *bias].append(node)
    for (op, base, matrix, *bias), nodes in groups.items():
        shape, width = static_shape(base), static_shape(nodes[0])
        held = fake(base)
        if len(nodes) < 2 or shape is None or width is None or held is None:
            continue
        if not held.is_contiguous() or 2 * len(nodes) < shape[0]:
            continue
        count, rows_each, depth = shape
        size = count * rows_each * width[1] * held.element_size()
        fits = size <= caches().last  # what reads the parts finds them there
        reason = "slices of one tensor, one matrix" if fits else "the result would be too large"
        if editor.decide("merge_products", nodes, fits, reason):
            _merge(editor, op, base, matrix, bias, nodes, (count * rows_each, depth))


def _merge(
    editor: Editor, op: Any, base: fx.Node, matrix: fx.Node, bias: list[fx.Node],
    nodes: list[fx.Node], flat: tuple[int, int],
) -> None:  # fmt: skip
    whole = editor.call(nodes[0], aten.view.default, base, list(flat))
    product = editor.call(nodes[0], op, *bias, whole, matrix)
    rows_each = flat[0] // base.meta["val"].shape[0]
    for node in nodes:
        index = node.args[-2].args[2] % base.meta["val"].shape[0]  # type: ignore[union-attr]
        start = index * rows_each
        part = editor.call(node, aten.slice.Tensor, product, 0, start, start + rows_each)
        node.replace_all_uses_with(part)
        editor.graph.erase_node(node)


def transpose_matrices(editor: Editor) -> None:
    """Transpose a matrix in memory once where many small products read it transposed."""
    users: defaultdict[fx.Node, list[fx.Node]] = defaultdict(list)
    for node in editor.graph.nodes:
        if node.op == "call_function" and node.target in PRODUCTS:
            shape = static_shape(node)
            if shape is not None and shape[0] <= FEW_ROWS:
                users[node.args[-1]].append(node)
    for matrix, nodes in users.items():
        shape, held = static_shape(matrix), fake(matrix)
        if shape is None or held is None or held.stride() != (1, shape[0]) or 1 in shape:
            continue
        often = len(nodes) >= TRANSPOSE_USES
        reason = f"{len(nodes)} products of at most {FEW_ROWS} rows read it column by column"
        if often and editor.decide("transpose_matrix", [matrix], True, reason):
            transposed = editor.call(
                nodes[0], aten.clone.default, matrix, memory_format=torch.contiguous_format
            )
            for node in nodes:
                node.replace_input_with(matrix, transposed)


def add_bias_later(editor: Editor) -> None:
    """Take the bias out of a product whose result loops read: they add it as they go.

    The library writes the bias to memory first, and then reads it back to add the product. That
    costs more than the loops' writing of a sum that the graph returns, as for its backward.
    """
    for node in editor.graph.find_nodes(op="call_function", target=aten.addmm.default):
        bias, rows, matrix = node.args
        held, added = fake(node), fake(bias)
        if node.kwargs or held is None or added is None or held.device.type != "cpu":
            continue
        if held.dtype not in EXACT or added.dim() != 1 or not _loops_add_to(node):
            continue
        if editor.decide("bias_later", [node], True, "loops read the result"):
            product = editor.call(node, aten.mm.default, rows, matrix)
            total = editor.call(node, aten.add.Tensor, product, bias)
            node.replace_all_uses_with(total)
            editor.graph.erase_node(node)


def _loops_add_to(node: fx.Node) -> bool:
    """Return whether loops read a result, and nobody else but the caller of the graph."""
    others = [reader for reader in readers(node) if reader.op != "output"]
    return bool(others) and all(map(made_of_loops, others))
