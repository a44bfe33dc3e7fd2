"""Few rows, and tiny ones: which products of matrices loops compute rather than the library.

A product of few rows spends its time on reading the matrix. Where that lies transposed, as the
weight of a linear layer does, kernels that read it along memory and fetch it ahead are quicker
than what ATen calls (figures: `core/c_helpers/products.h`), and compute of the result what
follows. Small matrices that lie row by row have kernels that compute as quickly as the library's,
without the price of its call (figures: there).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from tc.compiler.library.editor import Editor, aten, fake, static_shape
from tc.compiler.library.products import EXACT, PRODUCTS
from tc.compiler.loops.lower.registry import CHOSEN, made_of_loops

#: measured against MKL: 1.0 to 1.8 times as quick with 64 rows, where what the caches hold is other
#: work's 1.0 to 2.8; 0.9 to 1.6 with 96
MOST_ROWS = 64
LEAST_COLUMNS = 4
#: elements of a vector; other depths leave a rest, which is slow
LANES = 16
#: of matrices that lie row by row: larger ones miss what the library gains by packing them, wider
#: results are written in too small pieces, and longer sums are less exact than its sums of blocks
#: (measured against MKL's own time within these bounds: 0.9 to 2 times as quick, warm or cold)
MOST_ROWS_OF_SMALL = 128
MOST_DEPTH, MOST_RESULTS = 1 << 10, 1 << 15
#: elements of such a matrix, and of one whose rows are multiplied with at most `BARELY_ROWS`
MOST_ELEMENTS, MOST_ELEMENTS_OF_BARELY = 1 << 16, 1 << 18
BARELY_ROWS = 4
#: results times depth; the reference interpreters hold as many numbers
MOST_WORK = 1 << 27
#: multiplications that loops make in less time than a call takes: on any device, and on a CPU
#: (measured against MKL: 0.9 to 1.9 times as quick, where the caches hold other work's 1.4 to 2.6).
#: Of few rows, kernels of products do better than loops above the first number.
TINY_WORK, TINY_WORK_ON_CPU = 1 << 10, 5 << 10


def compute_few_rows(editor: Editor) -> None:
    """Have loops compute products of few rows and a matrix that is transposed, or small."""
    if torch.backends.cpu.get_cpu_capability() != "AVX512":
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
        if not editor.decide("tiny_product", [node], True, "a call takes longer than its loops"):
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
    limit = TINY_WORK_ON_CPU if held.device.type == "cpu" else TINY_WORK
    return 0 < shape[0] * shape[1] * size[0] <= limit


def _reason(node: fx.Node) -> str:
    """Why a product is to be computed by loops; empty if it is not."""
    *bias, rows, matrix = node.args
    shape, depth_and_width = static_shape(rows), static_shape(matrix)
    if static_shape(node) is None or shape is None or depth_and_width is None:
        return ""
    if any(not _is_vector(part) for part in bias):
        return ""
    (count, depth), width = shape, depth_and_width[1]
    across, down = _steps(rows), _steps(matrix)
    work = count * depth * width
    if across is None or down is None or work <= TINY_WORK:
        return ""
    if (across, down) == ((depth, 1), (1, depth)):
        small = count <= MOST_ROWS and work <= MOST_WORK
        suits = small and depth % LANES == 0 and width >= LEAST_COLUMNS
        return f"few rows, at most {MOST_ROWS}, of a matrix that lies transposed" if suits else ""
    lie = 1 in across and down[0] >= width and down[1] == 1
    suits = lie and _is_small(count, depth, width)
    return f"at most {MOST_ROWS_OF_SMALL} rows of a small matrix" if suits else ""


def _is_small(count: int, depth: int, width: int) -> bool:
    """Whether a product with a matrix that lies row by row is within what was measured."""
    most = MOST_ELEMENTS_OF_BARELY if count <= BARELY_ROWS else MOST_ELEMENTS
    fits = count <= MOST_ROWS_OF_SMALL and depth <= MOST_DEPTH and depth * width <= most
    return fits and count * width <= MOST_RESULTS and depth > 1 and width > 1


def _is_vector(part: Any) -> bool:
    held = fake(part)
    return held is not None and held.dim() == 1 and held.dtype is torch.float32


def _steps(part: Any) -> tuple[int, ...] | None:
    held = fake(part)
    suits = held is not None and held.dtype is torch.float32 and held.device.type == "cpu"
    return held.stride() if held is not None and suits else None
