"""Properties of single tensors that the steps of this stage use: gradient, extent, layout."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import torch
from torch._prims_common import is_non_overlapping_and_dense_or_false as dense
from torch.fx.experimental.symbolic_shapes import guard_or_false


def wants_grad(value: Any) -> bool:
    """Return whether a value is a tensor that requires gradients."""
    return isinstance(value, torch.Tensor) and value.requires_grad


def extent(tensor: torch.Tensor) -> int:
    """Return the number of memory elements from a tensor's first to its last, inclusive."""
    if any(size == 0 for size in tensor.shape):
        return 0
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    return 1 + sum((size - 1) * stride for size, stride in steps)


def elements_apart(tensor: torch.Tensor) -> bool:
    """Return whether no two elements share a memory location; there may be gaps between them.

    Symbolic sizes have their values in this call, with a guard where that proves nothing in
    general.
    """
    if dense(tensor):
        return True
    end: Any = 1  # the extent of the dimensions so far
    dims = zip(tensor.stride(), tensor.shape, strict=True)
    for step, size in sorted(dims, key=_step_in_this_call):
        if guard_or_false(size == 1):
            continue
        if not guard_or_false(step >= end):
            return False
        end = step * (size - 1) + end
    return True


def _step_in_this_call(dimension: tuple[Any, Any]) -> int:
    step = dimension[0]
    return step if isinstance(step, int) else step.node.hint or 0


def layout_key(value: torch.Tensor) -> tuple[Any, ...]:
    """Return a tensor's layout as a value that compares without guarding on symbolic sizes."""
    return tuple(map(dim_key, (*value.shape, *value.stride())))


def dim_key(dim: Any) -> Hashable:
    """Return a size as a value that compares without guarding: a number or an expression."""
    return dim.node.expr if isinstance(dim, torch.SymInt) else int(dim)
