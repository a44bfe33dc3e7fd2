"""Strides of the results of ATen's elementwise kernels, where a dimension has size 1 or 0.

Elementwise kernels lay a new result out in the order in which they iterate: operands that agree
in layout are followed; else dimensions are sorted by the strides of the operands, one after
another, and strides of dimensions of size 1 take part. Torch's shape functions leave such
dimensions out, or take shortcuts that the kernels do not. No element lies elsewhere because of
that, but programs see strides, and what is called contiguous or channels last follows from them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Number
from typing import Any

import torch
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND as Promotion
from torch._prims_common import (
    elementwise_dtypes,
    make_channels_last_2d_strides_for,
    make_contiguous_strides_for,
)
from torch.fx.experimental.symbolic_shapes import (
    free_unbacked_symbols,
    statically_known_true,
)

aten = torch.ops.aten
Call = Callable[..., Any]

#: numbers that are parameters of kernels of one operand, not operands
PARAMETERS = frozenset(
    [
        *(aten.clamp.default, aten.clamp_max.default, aten.clamp_min.default),
        *(aten.clip.default, aten.celu.default, aten.elu.default, aten.hardshrink.default),
        *(aten.leaky_relu.default, aten.lerp.Scalar, aten.softplus.default),
        *(aten.pow.Tensor_Scalar, aten.pow.Scalar, aten.rrelu.default),
        *(aten.softshrink.default, aten.threshold.default, aten.threshold_backward.default),
        *(aten.addcmul.default, aten.addcdiv.default),
    ]
)


def operands_of(func: Any, args: Sequence[Any], kwargs: Any) -> list[Any]:
    """Return the operands of a call, in their order: tensors, and numbers used as tensors."""
    found = []
    for position, argument in enumerate(func._schema.arguments):
        named = kwargs.get(argument.name)
        value = args[position] if position < len(args) else named
        kind = str(argument.type).removeprefix("Optional[").removesuffix("]")
        if isinstance(value, torch.Tensor) or (
            isinstance(value, Number | torch.SymInt | torch.SymFloat | torch.SymBool)
            and (kind == "Tensor" or (kind == "number" and not _is_parameter(func, argument)))
        ):
            found.append(value)
    return found


def _is_parameter(func: Any, argument: Any) -> bool:
    return func in PARAMETERS or argument.name in ("alpha", "value")


def may_be_narrow(tensor: torch.Tensor) -> bool:
    """Return whether a dimension of a tensor has size 1 or 0, or may have."""
    unknown = [size for size in tensor.shape if type(size) is not int]
    if not tensor.dim() or (unknown and free_unbacked_symbols([*tensor.shape, *tensor.stride()])):
        return False
    return any(type(size) is int and size < 2 for size in tensor.shape) or any(
        not statically_known_true(size > 1) for size in unknown
    )


def are_unlike(operands: Sequence[Any]) -> bool:
    """Return whether operands of known layouts differ in them, so that kernels sort dimensions.

    Symbols are left to torch's shape functions: comparing them would add guards.
    """
    tensors = [o for o in operands if isinstance(o, torch.Tensor) and o.dim()]
    if any(type(n) is not int for t in tensors for n in (*t.shape, *t.stride())):
        return False
    return len({(t.shape, t.stride()) for t in tensors}) > 1 and not all(
        t.is_contiguous() for t in tensors
    )


def strides(
    call: Call, result: torch.Tensor, operands: Sequence[Any], of_own_type: int = 0
) -> list[Any]:
    """Return the strides that an elementwise kernel gives its new result.

    Args:
        call: runs an op on fake tensors.
        result: has the shape and the dtype of the result.
        operands: tensors and numbers, in the order of the kernel's operands.
        of_own_type: how many of them, the first, keep their dtypes, as a condition does.
    """
    read = [*operands[:of_own_type], *cast(call, result, operands[of_own_type:])]
    tensors = [o for o in read if isinstance(o, torch.Tensor)]
    return strides_over(list(result.shape), tensors, numbers=len(tensors) < len(operands))


def strides_over(
    shape: Sequence[Any], tensors: Sequence[torch.Tensor], numbers: bool = False
) -> list[Any]:
    """Return the strides of a new tensor that is made by iterating over others.

    Args:
        shape: of the new tensor.
        tensors: what is iterated over, in the order of the kernel's operands.
        numbers: whether a number is among the operands.
    """
    shape = list(shape)
    alike = not numbers and all(t.dim() == len(shape) and _equal(t.shape, shape) for t in tensors)
    if alike:
        if all(t.is_contiguous() for t in tensors):
            return list(make_contiguous_strides_for(tuple(shape)))
        if len(shape) == 4 and all(
            t.is_contiguous(memory_format=torch.channels_last) for t in tensors
        ):
            return list(make_channels_last_2d_strides_for(shape))
        last = tensors[-1]
        if all(map(is_dense, tensors)) and all(_equal(t.stride(), last.stride()) for t in tensors):
            return list(last.stride())
    return _sorted(shape, [_steps(t, shape) for t in tensors])


def copied_strides(tensor: torch.Tensor) -> list[Any]:
    """Return the strides of a copy of a tensor in another dtype or with other values.

    A dense tensor's are kept, whatever they are in dimensions of size one.
    """
    if is_dense(tensor):
        return list(tensor.stride())
    return _packed(tensor.shape, _inner_first(tensor.shape, [tensor.stride()]), max_with_one=True)


def cast(call: Call, result: torch.Tensor, operands: Sequence[Any]) -> Sequence[Any]:
    """Return the operands as kernels of the CPU read them: copies, where they have another dtype.

    A copy of a tensor with gaps or shared elements is dense, and so has other strides.
    """
    tensors = [o for o in operands if isinstance(o, torch.Tensor)]
    if result.device.type != "cpu" or all(map(is_dense, tensors)):
        return operands
    _, common = elementwise_dtypes(*operands, type_promotion_kind=Promotion.DEFAULT)
    if result.dtype.is_floating_point and not (common.is_floating_point or common.is_complex):
        common = result.dtype
    return [
        call(aten.empty_like.default, o)
        if isinstance(o, torch.Tensor) and o.dim() and o.dtype is not common and not is_dense(o)
        else o
        for o in operands
    ]


def is_dense(tensor: torch.Tensor) -> bool:
    """Return whether elements fill memory without gaps, none shared; sizes have their values."""
    if tensor.is_contiguous():
        return True
    if tensor.dim() == 1:
        return bool(tensor.shape[0] < 2 or tensor.stride(0) == 1)
    kept = [(s, n) for s, n in zip(tensor.stride(), tensor.shape, strict=True) if n > 1]
    expected: Any = 1
    while kept:
        following = next((pair for pair in kept if pair[0] == expected), None)
        if following is None:
            return False
        kept.remove(following)
        expected = expected * following[1]
    return True


def _equal(some: Sequence[Any], others: Sequence[Any]) -> bool:
    return all(a == b for a, b in zip(some, others, strict=True))


def _steps(tensor: torch.Tensor, shape: Sequence[Any]) -> list[Any]:
    """Return the stride of an operand for each dimension of the result; 0 where it repeats."""
    missing = len(shape) - tensor.dim()
    steps = [0] * missing
    for size, step, wanted in zip(tensor.shape, tensor.stride(), shape[missing:], strict=True):
        steps.append(0 if size == 1 and wanted != 1 else step)
    return steps


def _sorted(shape: Sequence[Any], steps: Sequence[Sequence[Any]]) -> list[Any]:
    """Return dense strides whose order is that of the operands' strides."""
    order = _inner_first(shape, steps)
    if order == [*reversed(range(len(shape)))]:
        return list(make_contiguous_strides_for(tuple(shape)))
    return _packed(shape, order, max_with_one=False)


def _inner_first(shape: Sequence[Any], steps: Sequence[Sequence[Any]]) -> list[int]:
    """Return the dimensions in the order of the operands' strides, the smallest first."""
    found = [*reversed(range(len(shape)))]
    for position in range(1, len(shape)):
        moved = position
        for before in reversed(range(position)):
            order = _compare(shape, steps, found[before], found[moved])
            if order < 0:
                break
            if order > 0:
                found[before], found[moved] = found[moved], found[before]
                moved = before
    return found


def _packed(shape: Sequence[Any], order: Sequence[int], max_with_one: bool) -> list[Any]:
    """Return strides without gaps for dimensions in an order, the innermost first.

    Args:
        shape: the sizes.
        order: the dimensions.
        max_with_one: whether a dimension of size 0 counts as one of size 1.
    """
    found: list[Any] = [0] * len(shape)
    step: Any = 1
    for dim in order:
        found[dim] = step
        if not max_with_one or shape[dim] > 1:
            step = step * shape[dim]
    return found


def _compare(shape: Sequence[Any], steps: Sequence[Sequence[Any]], inner: int, outer: int) -> int:
    """Return 1 where two dimensions must be exchanged, -1 where not, 0 where nothing says so."""
    for of_operand in steps:
        one, other = of_operand[inner], of_operand[outer]
        if one == 0 or other == 0:
            continue
        if one != other:
            return -1 if one < other else 1
        if shape[inner] > shape[outer]:
            return 1
    return 0
