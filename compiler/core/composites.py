"""Functions of torch that treat fake tensors otherwise than real ones, and their stand-ins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def one_hot(tensor: torch.Tensor, num_classes: int = -1) -> torch.Tensor:
    """Stand in for `torch.nn.functional.one_hot`, which does other things with fake tensors."""
    return torch._C._nn.one_hot(tensor, num_classes).contiguous()


def max_pool1d(input: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    """Stand in for `torch.nn.functional.max_pool1d`.

    On a CPU, and without gradients, it has a kernel of its own.

    Raises:
        NotImplementedError: the kernel may not have code for the type.
    """
    if input.device.type == "cpu" and not input.is_floating_point():
        raise NotImplementedError(f"max_pool1d of {input.dtype}")
    result = torch.nn.functional.max_pool1d(input, *args, **kwargs)
    if not isinstance(result, torch.Tensor):  # with indices
        return result
    trained = torch.is_grad_enabled() and input.requires_grad
    return result if trained or input.device.type != "cpu" else result.contiguous()


def fused_moving_avg_obs_fake_quant(
    input: torch.Tensor,
    observer_on: torch.Tensor,
    fake_quant_on: torch.Tensor,
    running_min: torch.Tensor,
    running_max: torch.Tensor,
    scale: torch.Tensor,
    zero_point: torch.Tensor,
    averaging_const: float,
    quant_min: int,
    quant_max: int,
    ch_axis: int,
    per_row_fake_quant: bool = False,
    symmetric_quant: bool = False,
) -> Any:
    """Stand in for the function of that name, whose fake does not know that it resizes arguments.

    Raises:
        NotImplementedError: a range or a scale has not a number a channel yet.
    """
    observed = running_min, running_max, scale, zero_point
    if per_row_fake_quant and any(one.shape != (input.shape[ch_axis],) for one in observed):
        raise NotImplementedError("fused_moving_avg_obs_fake_quant resizes an argument")
    return torch.fused_moving_avg_obs_fake_quant(
        input, observer_on, fake_quant_on, *observed, averaging_const, quant_min, quant_max,
        ch_axis, per_row_fake_quant, symmetric_quant,
    )  # fmt: skip


#: functions that do other things to fake tensors than to real ones -> stand-ins for them, whose
#: results are those of eager
COMPOSITES: dict[Any, Callable[..., Any]] = {
    torch._C._nn.one_hot: one_hot,
    torch.max_pool1d: max_pool1d,
    torch.nn.functional.max_pool1d: max_pool1d,
    torch.fused_moving_avg_obs_fake_quant: fused_moving_avg_obs_fake_quant,
}
