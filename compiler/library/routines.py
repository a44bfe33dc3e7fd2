"""Which library computes a matrix product, and over which layout: chosen by measurement.

MKL, which ATen calls, runs at half of oneDNN's speed on some processors, and ahead of it on others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import fx

from tc.compiler.core.tune import Tuner, Way
from tc.compiler.library.editor import Editor, aten, fake, static_shape
from tc.compiler.library.freeze import add_constant, held_constant
from tc.compiler.library.prepack import NOTHING_MORE, onednn_computes_alike, packed_matrix
from tc.compiler.library.products import PRODUCTS
from tc.compiler.loops.lower.registry import made_of_loops

ONEDNN = torch.ops.mkldnn._linear_pointwise.default
#: multiplications from which on a product is worth a question: below, the call costs most, and
#: that of oneDNN takes 20 us
MIN_WORK = 1 << 21
#: the product whose times show whether oneDNN is worth any question on this machine: large, so
#: that arithmetic takes all of the time
PROBE = ((256, 1024), (1024, 1), (1024, 1024), (1, 1024))


def choose_routines(editor: Editor) -> None:
    """Give products to the library that is fastest at them here, constant matrices packed."""
    tuner = editor.tuner
    if tuner is None or not onednn_computes_alike():
        return
    products = {node: _product(node) for node in editor.graph.nodes}
    if not any(products.values()):
        return
    asks = tuner.thorough or _fastest(tuner, *PROBE) != "aten"
    transposed: dict[fx.Node, fx.Node] = {}
    for node, found in products.items():
        # Operands are read again: those that are products themselves may have been replaced.
        product = found and _product(node)
        if product is None:
            continue
        rows, matrix, bias = product
        constant = held_constant(matrix)
        if constant is None and not asks:
            continue
        best = _fastest(tuner, *_layout(rows), *_layout(matrix), constant is not None)
        if best == "packed" and constant is not None:
            _pack(editor, node, rows, matrix, bias, constant)
        elif best == "onednn":
            _reroute(editor, node, rows, matrix, bias)
        elif best == "transposed":
            _transpose(editor, node, matrix, transposed)


def _product(node: fx.Node) -> tuple[fx.Node, fx.Node, fx.Node | None] | None:
    """Return rows, matrix and bias of a product that several routines compute."""
    if node.op != "call_function" or node.target not in PRODUCTS or node.kwargs:
        return None
    if made_of_loops(node):
        return None
    parts: list[Any] = list(node.args)
    rows, matrix = parts[-2:]
    bias = parts[0] if len(parts) == 3 else None
    shape, size, held = static_shape(node), static_shape(rows), fake(node)
    if shape is None or size is None or held is None or static_shape(matrix) is None:
        return None
    if shape[0] * shape[1] * size[1] < MIN_WORK or held.dtype is not torch.float32:
        return None
    if any(used.meta["val"].dtype is not held.dtype for used in node.all_input_nodes):
        return None  # ATen refuses it
    if not (_is_dense(rows) and _is_dense(matrix)):
        return None
    if bias is not None and static_shape(bias) != (shape[1],):
        return None
    return rows, matrix, bias


def _is_dense(matrix: fx.Node) -> bool:
    """Return whether a matrix is row-major or column-major, without repetition."""
    (rows, columns), stride = _layout(matrix)
    return (stride[1] == 1 and stride[0] >= columns) or (stride[0] == 1 and stride[1] >= rows)


def _layout(matrix: fx.Node) -> tuple[tuple[int, ...], tuple[int, ...]]:
    held: torch.Tensor = matrix.meta["val"]
    return tuple(held.shape), held.stride()


def _fastest(
    tuner: Tuner, size: tuple[int, ...], stride: tuple[int, ...], size2: tuple[int, ...],
    stride2: tuple[int, ...], constant: bool = False,
) -> str:  # fmt: skip
    """Return the fastest for matrices of these layouts.

    One of ``aten``, ``onednn``, ``transposed``, and ``packed`` where the second is a constant.
    """
    names = ["aten", "onednn", *["packed"] * constant]
    if tuner.thorough and stride2[0] == 1 and 1 not in size2:
        names.append("transposed")

    def ways() -> Mapping[str, Way]:
        rows = torch.empty_strided(size, stride, device="cpu").fill_(0.5)
        matrix = torch.empty_strided(size2, stride2, device="cpu").fill_(0.5)
        made: dict[str, Way] = {
            "aten": lambda: torch.mm(rows, matrix),
            "onednn": lambda: ONEDNN(rows, matrix.t(), None, *NOTHING_MORE),
            "transposed": lambda: torch.mm(rows, matrix.contiguous()),
        }
        if constant:
            packed = packed_matrix(matrix, size[0])
            made["packed"] = lambda: ONEDNN(rows, packed, None, *NOTHING_MORE)
        return {name: made[name] for name in names}

    question = f"mm {size}:{stride} @ {size2}:{stride2} float32, {' or '.join(names)}"
    return tuner.fastest(question, ways)


def _reroute(
    editor: Editor, node: fx.Node, rows: fx.Node, matrix: fx.Node, bias: fx.Node | None
) -> None:
    if not editor.decide("onednn", [node], True, "measured: faster here than ATen's routine"):
        return
    transposed = editor.call(node, aten.permute.default, matrix, [1, 0])
    made = editor.call(node, ONEDNN, rows, transposed, bias, *NOTHING_MORE)
    node.replace_all_uses_with(made)
    editor.graph.erase_node(node)


def _pack(
    editor: Editor, node: fx.Node, rows: fx.Node, matrix: fx.Node, bias: fx.Node | None,
    constant: torch.Tensor,
) -> None:  # fmt: skip
    if not editor.decide("pack", [node], True, "measured: faster here with a packed matrix"):
        return
    packed = add_constant(editor, matrix, packed_matrix(constant, rows.meta["val"].shape[0]))
    packed.meta["val"] = matrix.meta["val"].t()
    made = editor.call(node, ONEDNN, rows, packed, bias, *NOTHING_MORE)
    node.replace_all_uses_with(made)
    editor.graph.erase_node(node)


def _transpose(
    editor: Editor, node: fx.Node, matrix: fx.Node, transposed: dict[fx.Node, fx.Node]
) -> None:
    if matrix not in transposed:
        reason = "measured: a transposed copy and its product are faster here"
        if not editor.decide("transpose_matrix", [matrix], True, reason):
            return
        plain = torch.contiguous_format
        transposed[matrix] = editor.call(node, aten.clone.default, matrix, memory_format=plain)
    node.replace_input_with(matrix, transposed[matrix])
