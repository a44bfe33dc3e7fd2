"""Prepacked weights: constant kernels and matrices in the blocked layout that oneDNN reads.

ATen's convolutions and products bring their weights into that layout at each call, or read them as
they lie; a constant is brought there once. In: a graph with constants. Out: the same graph, which
calls oneDNN with packed constants where that was measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import fx

from tc.compiler.core.tune import Tuner, Way
from tc.compiler.library.editor import Editor, aten, fake, static_shape
from tc.compiler.library.freeze import add_constant, held_constant

CONVOLUTION = aten.convolution.default
PACKED_CONVOLUTION = torch.ops.mkldnn._convolution_pointwise.default
#: no operation after a convolution or product, as oneDNN's calls take it
NOTHING_MORE: tuple[Any, ...] = ("none", [], "")


def onednn_computes_alike() -> bool:
    """Return whether oneDNN is there and multiplies 32-bit floats as such."""
    backend: Any = torch.backends.mkldnn
    full = backend.matmul.fp32_precision in ("none", "ieee")
    full = full and backend.conv.fp32_precision in ("none", "ieee")
    return full and torch._C._has_mkldnn and torch._C._get_mkldnn_enabled()


def packed_kernel(kernel: torch.Tensor, settings: list[Any], image: tuple[int, ...]) -> Any:
    """Return a convolution's kernel as oneDNN reads it for images of one size.

    Args:
        kernel: as ``aten.convolution`` takes it.
        settings: strides, padding and dilation of each dimension; whether it is transposed, which
            is not supported; padding of the output; groups.
        image: the shape of what is convolved.
    """
    pack = torch.ops.mkldnn._reorder_convolution_weight
    return pack(kernel, *_in_its_order(settings), list(image))


def _in_its_order(settings: list[Any]) -> tuple[Any, ...]:
    """Return the settings of ``aten.convolution`` as oneDNN's calls take them."""
    stride, padding, dilation, _, _, groups = settings
    return padding, stride, dilation, groups


def packed_matrix(matrix: torch.Tensor, rows: int) -> Any:
    """Return a matrix, as ``aten.mm`` takes it on the right, as oneDNN reads it for some rows."""
    return torch.ops.mkldnn._reorder_linear_weight(matrix.t().contiguous(), rows)


def pack_kernels(editor: Editor) -> None:
    """Have oneDNN convolve with kernels that were packed once, unless that is slower here."""
    if editor.tuner is None or not onednn_computes_alike():
        return
    for node in editor.graph.find_nodes(op="call_function", target=CONVOLUTION):
        image, kernel, bias, *settings = node.args
        held, shape = held_constant(kernel), static_shape(image)
        if held is None or shape is None or not _packs(node):
            continue
        if not _faster(editor.tuner, node, held):
            continue
        reason = "measured: not slower here with a packed kernel"
        if not editor.decide("pack", [node], True, reason):
            continue
        packed = add_constant(editor, kernel, packed_kernel(held, settings, shape))
        rest = (*_in_its_order(settings), *NOTHING_MORE)
        made = editor.call(node, PACKED_CONVOLUTION, image, packed, bias, *rest)
        made.meta["val"] = node.meta["val"]  # the layout that readers were promised
        node.replace_all_uses_with(made)
        editor.graph.erase_node(node)


def _packs(node: fx.Node) -> bool:
    """Return whether oneDNN convolves as a node does: images or volumes of 32-bit floats."""
    transposed, held = node.args[6], fake(node)
    if transposed or held is None or static_shape(node) is None or 0 in held.shape:
        return False
    if held.dim() not in (4, 5):  # it has no layout for the kernels of one dimension
        return False
    return all(used.meta["val"].dtype is torch.float32 for used in node.all_input_nodes)


def _faster(tuner: Tuner, node: fx.Node, kernel: torch.Tensor) -> bool:
    """Measure a convolution with its kernel as it lies and packed."""
    image, _, bias, *settings = node.args
    given = image.meta["val"]  # type: ignore[union-attr]
    shape, strides = tuple(given.shape), given.stride()

    def ways() -> Mapping[str, Way]:
        sample = torch.empty_strided(shape, strides, device="cpu").fill_(0.5)
        added = None if bias is None else torch.full((kernel.shape[0],), 0.5, device="cpu")
        packed = packed_kernel(kernel, settings, shape)
        rest = (*_in_its_order(settings), *NOTHING_MORE)
        return {
            "packed": lambda: PACKED_CONVOLUTION(sample, packed, added, *rest),
            "aten": lambda: CONVOLUTION(sample, kernel, added, *settings),
        }

    what = f"{shape}:{strides} by {tuple(kernel.shape)}:{kernel.stride()} {settings}"
    question = f"convolution {what} bias {bias is not None} float32, packed or aten"
    return tuner.fastest(question, ways) == "packed"
