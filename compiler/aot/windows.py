"""Windows of images as views, and sums of windows as padded sums.

torch's decompositions gather and scatter with tensors of indices. Kernel size, dilation and stride
are numbers, so each element's place is known here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._decomp import get_decompositions

aten = torch.ops.aten
#: larger windows are summed by torch's decomposition: each element of theirs is a term of its own
MOST_TERMS = 64
_scattered = get_decompositions([aten.col2im.default])[aten.col2im.default]

Pair = Sequence[int]


def im2col(x: Tensor, kernel: Pair, dilation: Pair, padding: Pair, stride: Pair) -> Tensor:
    """Return all windows of images.

    Args:
        x: ``(batch, channels, height, width)``, or without ``batch``.
        kernel, dilation, padding, stride: for height and width.

    Returns:
        ``(batch, channels * elements of a window, windows)``.
    """
    if x.dim() == 3:
        return im2col(x.unsqueeze(0), kernel, dilation, padding, stride).squeeze(0)
    if any(padding):
        x = aten.constant_pad_nd(x, [padding[1], padding[1], padding[0], padding[0]], 0)
    for dim, (size, apart, step) in enumerate(zip(kernel, dilation, stride, strict=True), 2):
        x = x.unfold(dim, (size - 1) * apart + 1, step)
        x = x[..., ::apart]
    batch, channels, high, wide, *_ = x.shape
    windows = x.permute(0, 1, 4, 5, 2, 3)
    return windows.reshape(batch, channels * kernel[0] * kernel[1], high * wide)


def col2im(
    x: Tensor, size: Sequence[Any], kernel: Pair, dilation: Pair, padding: Pair, stride: Pair
) -> Tensor:
    """Return images whose elements are the sums of all elements of windows that lie there.

    Args:
        x: ``(batch, channels * elements of a window, windows)``, or without ``batch``.
        size: height and width of the images.
        kernel, dilation, padding, stride: for height and width.

    Returns:
        ``(batch, channels, height, width)``.
    """
    if kernel[0] * kernel[1] > MOST_TERMS:
        result: Tensor = _scattered(x, size, kernel, dilation, padding, stride)
        return result
    if x.dim() == 2:
        return col2im(x.unsqueeze(0), size, kernel, dilation, padding, stride).squeeze(0)
    axes = range(2)
    padded = [size[i] + 2 * padding[i] for i in axes]
    counts = [(padded[i] - dilation[i] * (kernel[i] - 1) - 1) // stride[i] + 1 for i in axes]
    steps = [-(-padded[i] // stride[i]) for i in axes]  # rows of one remainder by the stride
    channels = x.shape[1] // (kernel[0] * kernel[1])
    windows = x.view(x.shape[0], channels, *kernel, *counts)
    places = [
        [[*_at(kernel[i], dilation[i], stride[i], rest)] for rest in range(stride[i])] for i in axes
    ]
    planes = [
        [_sum_of_placed(windows, steps, rows, columns) for columns in places[1]]
        for rows in places[0]
    ]
    image = planes[0][0]
    if max(stride) > 1:
        rows = torch.stack([torch.stack(row, -1) for row in planes], 3)
        image = rows.view(*rows.shape[:2], steps[0] * stride[0], steps[1] * stride[1])
    top, left = padding
    return image[:, :, top : top + size[0], left : left + size[1]].contiguous()


def _at(kernel: int, dilation: int, stride: int, remainder: int) -> Iterator[tuple[int, int]]:
    """Yield the elements of a window whose place has a remainder by the stride, and quotients."""
    for element in range(kernel):
        quotient, rest = divmod(element * dilation, stride)
        if rest == remainder:
            yield element, quotient


def _sum_of_placed(
    windows: Tensor,
    steps: Sequence[Any],
    rows: Sequence[tuple[int, int]],
    columns: Sequence[tuple[int, int]],
) -> Tensor:
    """Return the sum of some elements of all windows, each moved to its place."""
    high, wide = windows.shape[4:]
    total = None
    for row, down in rows:
        for column, right in columns:
            margins = [right, steps[1] - wide - right, down, steps[0] - high - down]
            term = aten.constant_pad_nd(windows[:, :, row, column], margins, 0)
            total = term if total is None else total + term
    return total if total is not None else windows.new_zeros((*windows.shape[:2], *steps))
