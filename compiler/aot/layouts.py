"""Properties of single tensors that the steps of this stage use: gradient, extent, layout."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import torch
from torch._prims_common import is_non_overlapping_and_dense_or_false as dense
from torch._prims_common import make_channels_last_strides_for, make_contiguous_strides_for
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


def holds(tensor: torch.Tensor, view: torch.Tensor) -> bool:
    """Return whether a tensor has all elements of a view of its storage; no if that is unknown.

    Symbolic sizes have their values in this call, with a guard where that proves nothing in
    general.
    """
    if any(guard_or_false(size == 0) for size in view.shape):
        return True
    if not dense(tensor):
        return False
    before = view.storage_offset() - tensor.storage_offset()
    return guard_or_false(before >= 0) and guard_or_false(before + extent(view) <= tensor.numel())


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


#: layouts that an operation may ask for by name: its number of dimensions (None: any), its strides
FORMS = (
    (torch.contiguous_format, None, make_contiguous_strides_for),
    (torch.channels_last, 4, make_channels_last_strides_for),
    (torch.channels_last_3d, 5, make_channels_last_strides_for),
)


def is_row_major(value: torch.Tensor) -> bool:
    """Return whether a tensor is evidently contiguous; guards on nothing."""
    return form_of(value) is torch.contiguous_format


def differ_in_layout_alone(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether tensors of one shape have strides that differ where it matters.

    The stride of a dimension of size one says nothing.
    """
    if tuple(map(dim_key, one.shape)) != tuple(map(dim_key, other.shape)):
        return False
    rows = zip(map(dim_key, one.shape), _strides(one), _strides(other), strict=True)
    return any(a != b for size, a, b in rows if size != 1)


def form_of(value: torch.Tensor) -> torch.memory_format | None:
    """Return the named layout that a tensor evidently has; None: another one."""
    for form, rank, strides_for in FORMS:
        fits = rank in (None, value.dim())
        if fits and _strides(value) == tuple(map(dim_key, strides_for(value.shape))):
            return form
    return None


def _strides(value: torch.Tensor) -> tuple[Hashable, ...]:
    return tuple(map(dim_key, value.stride()))


def dim_key(dim: Any) -> Hashable:
    """Return a size as a value that compares without guarding: a number or an expression."""
    return dim.node.expr if isinstance(dim, torch.SymInt) else int(dim)
