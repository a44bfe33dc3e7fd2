"""What users say of tensors: which dimensions are dynamic or static, which stay where they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from tc.compiler.capture.dynamism import ADDRESS, MARKS, Mark
from tc.compiler.capture.torch_api.annotated import forbid
from tc.compiler.errors import OptionError

Dims = int | Sequence[int]


def mark_dynamic(
    t: torch.Tensor,
    index: Dims,
    *,
    hint_override: int | None = None,
    min: int | None = None,
    max: int | None = None,
) -> None:
    """Make dimensions of a tensor dynamic from the first compile on, and never constants.

    Compiling raises `ConstraintViolationError` where code needs one fixed size, or distinguishes
    sizes within the bounds; `maybe_mark_dynamic` allows both. Sizes 0 and 1 get code of their own
    all the same. A mark of this kind overrides `mark_static`.

    Args:
        t: the tensor, before it is first passed to a compiled function.
        index: a dimension, or several.
        hint_override: accepted for programs written for torch; kernels here use no hint.
        min, max: bounds of the size, both included.

    Raises:
        OptionError: there is no such dimension.
        ForbiddenCall: called in compiled code.
    """
    _mark(t, index, Mark("dynamic", min, max))


def maybe_mark_dynamic(t: torch.Tensor, index: Dims) -> None:
    """Make dimensions of a tensor dynamic; code that needs a fixed size makes them constants.

    Raises:
        OptionError: there is no such dimension.
    """
    _mark(t, index, Mark("maybe"))


def mark_unbacked(
    t: torch.Tensor,
    index: Dims,
    hint_override: int | None = None,
    strict: bool = False,
    *,
    min: int | None = None,
    max: int | None = None,
) -> None:
    """Make dimensions of a tensor dynamic, with one code for all sizes, 0 and 1 too.

    A condition on the size is a graph break (`torch._check` states what is known of it). Compiling
    raises `ConstraintViolationError` where code needs one fixed size. An operation that fits two
    sizes to each other (``x + y``) checks at run time that they are equal, and raises RuntimeError
    where eager would repeat a size of 1.

    Args:
        hint_override, strict: accepted for programs written for torch; it is always strict here.
        min, max: bounds of the size, both included; with any, the size is as `mark_dynamic` has it.

    Raises:
        OptionError: there is no such dimension.
    """
    _mark(t, index, Mark("unbacked", min, max))


def mark_static(t: Any, index: Dims | None = None) -> Any:
    """Keep dimensions of a tensor (all, if none is named) static, or numbers of a module class.

    Returns:
        The class, where one is given: usable as its decorator.

    Raises:
        OptionError: there is no such dimension, or `t` is neither.
    """
    if isinstance(t, type) and issubclass(t, torch.nn.Module):
        return t  # numbers that modules hold are constants anyway
    if not isinstance(t, torch.Tensor):
        raise OptionError(f"mark_static takes a tensor or a module class, not {t!r}")
    _mark(t, range(t.dim()) if index is None else index, Mark("static"))
    return None


def mark_static_address(t: torch.Tensor, guard: bool = False) -> None:
    """Declare that a tensor stays at its address from call to call.

    Args:
        guard: compile again when it does not; otherwise nothing relies on it.

    Raises:
        OptionError: `t` is no tensor.
    """
    if not isinstance(t, torch.Tensor):
        raise OptionError(f"mark_static_address takes a tensor, not {t!r}")
    setattr(t, ADDRESS, "guarded" if guard else "unguarded")


def _mark(tensor: torch.Tensor, index: Dims, mark: Mark) -> None:
    marks: dict[int, Mark] = dict(getattr(tensor, MARKS, {}))
    for dim in [index] if isinstance(index, int) else index:
        if not -tensor.dim() <= dim < tensor.dim():
            raise OptionError(f"dimension {dim} of a tensor with {tensor.dim()} dimensions")
        before = marks.get(dim % tensor.dim())
        if mark.kind == "static" and before is not None and before.kind == "dynamic":
            continue
        marks[dim % tensor.dim()] = mark
    setattr(tensor, MARKS, marks)
    if is_traceable_wrapper_subclass(tensor):
        for name in tensor.__tensor_flatten__()[0]:
            inner = getattr(tensor, name)
            if isinstance(inner, torch.Tensor) and inner.dim() == tensor.dim():
                _mark(inner, index, mark)


for _function in (mark_dynamic, maybe_mark_dynamic, mark_unbacked, mark_static_address):
    forbid(_function)
