"""Circular padding as views and one concatenation, where torch writes into parts of new memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def pad(input: Tensor, pad: Sequence[Any], mode: str = "constant", value: Any = None) -> Tensor:
    """Stand in for `torch.nn.functional.pad`.

    Rows come round by views, whose index is a remainder computed once a row, and elements of a row
    are three runs of memory. With gradients it is torch's: those of views would be sums.
    """
    trained = torch.is_grad_enabled() and input.requires_grad
    if mode != "circular" or trained or not _comes_round_once(input, pad):
        return torch.nn.functional.pad(input, pad, mode, value)
    for pair in reversed(range(len(pad) // 2)):
        dim, before, after = input.dim() - 1 - pair, pad[2 * pair], pad[2 * pair + 1]
        size = input.shape[dim]
        if not pair:
            ends = input.narrow(dim, size - before, before), input.narrow(dim, 0, after)
            input = torch.cat((ends[0], input, ends[1]), dim)
        elif before or after:
            shape = list(input.shape)
            input = input.unsqueeze(dim).expand(*shape[:dim], 3, *shape[dim:])
            input = input.reshape(*shape[:dim], 3 * size, *shape[dim + 1 :])
            input = input.narrow(dim, size - before, size + before + after)
    return input.clone(memory_format=torch.contiguous_format)


def _comes_round_once(input: Tensor, pad: Sequence[Any]) -> bool:
    """Return whether these are the pads of an image, none of which is negative or too large."""
    if not all(type(n) is int and n >= 0 for n in pad) or len(pad) != 2 * (input.dim() - 2):
        return False
    sizes = input.shape[:1:-1]
    return all(type(n) is int for n in input.shape) and all(
        max(pad[2 * k : 2 * k + 2]) <= n for k, n in enumerate(sizes)
    )
