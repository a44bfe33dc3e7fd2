"""What every step of this stage asks of single tensors: gradient, extent, layout as a key."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import torch


def wants_grad(value: Any) -> bool:
    """Whether a value is a tensor that has gradients."""
    return isinstance(value, torch.Tensor) and value.requires_grad


def extent(tensor: torch.Tensor) -> int:
    """Return how many elements of memory lie between a tensor's first and last, inclusive."""
    if any(size == 0 for size in tensor.shape):
        return 0
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    return 1 + sum((size - 1) * stride for size, stride in steps)


def layout_key(value: torch.Tensor) -> tuple[Any, ...]:
    """Return a tensor's layout as a value that compares without guarding on symbolic sizes."""
    return tuple(map(dim_key, (*value.shape, *value.stride())))


def dim_key(dim: Any) -> Hashable:
    """Return a size as a value that compares without guarding: a number or an expression."""
    return dim.node.expr if isinstance(dim, torch.SymInt) else int(dim)
