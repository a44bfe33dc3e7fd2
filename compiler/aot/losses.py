"""Replacements for losses whose decompositions in torch are wrong, or lack eager's checks."""

from __future__ import annotations

from typing import Any

import torch
from torch._decomp import get_decompositions

aten = torch.ops.aten
_op = aten.binary_cross_entropy.default
_binary_cross_entropy = get_decompositions([_op])[_op]


def binary_cross_entropy(input: Any, target: Any, weight: Any = None, reduction: int = 1) -> Any:
    """Compute the loss as torch's decomposition does, and check the input as eager does.

    Args:
        input: probabilities.
        target: of its shape, like ``weight``.
        reduction: 0 none, 1 mean, 2 sum.
    """
    is_probability = ((input >= 0) & (input <= 1)).all()
    aten._assert_async.msg(is_probability, "all elements of input should be between 0 and 1")
    if not reduction:  # eager's losses lie in memory as the input does, however the target lies
        target = aten.copy.default(input, target)
    return _binary_cross_entropy(input, target, weight, reduction)


def multilabel_margin_loss(input: Any, target: Any, reduction: int = 1) -> Any:
    """Stand in for `torch._C._nn.multilabel_margin_loss`.

    Torch's decomposition also counts entries of ``target`` after its first -1.

    Args:
        input: ``(classes)`` or ``(batch, classes)``.
        target: of its shape; each row lists classes, and ends at -1.
        reduction: 0 none, 1 mean over the batch, 2 sum.
    """
    torch._check(  # type: ignore[no-untyped-call]
        input.dim() <= 2 and input.shape == target.shape and 0 not in input.shape[-1:],
        lambda: f"multilabel_margin_loss of {tuple(input.shape)} with {tuple(target.shape)}",
    )
    scores, labels = torch.atleast_2d(input), torch.atleast_2d(target)  # type: ignore[no-untyped-call]
    place = torch.arange(scores.shape[1], device=input.device)
    end = torch.where(labels == -1, place, scores.shape[1]).amin(1, keepdim=True)
    listed = place < end
    chosen = torch.where(listed, labels, 0)
    # (batch, listed class, any class)
    meant = (listed.unsqueeze(2) & (chosen.unsqueeze(2) == place)).any(1, keepdim=True)
    margins = torch.relu(1 - scores.gather(1, chosen).unsqueeze(2) + scores.unsqueeze(1))
    counted = torch.where(listed.unsqueeze(2) & ~meant, margins, 0)
    each = counted.sum((1, 2)) / scores.shape[1]
    if reduction == 0:
        return each.reshape(input.shape[:-1])
    return each.mean() if reduction == 1 else each.sum()


def functional_multilabel_margin_loss(
    input: Any,
    target: Any,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Any:
    """Stand in for `torch.nn.functional.multilabel_margin_loss`."""
    if size_average is not None or reduce is not None:
        number = torch.nn._reduction.legacy_get_enum(size_average, reduce)
    else:
        number = torch.nn._reduction.get_enum(reduction)
    return multilabel_margin_loss(input, target, number)


def nll_loss_backward(
    grad_output: Any,
    input: Any,
    target: Any,
    weight: Any,
    reduction: int,
    ignore_index: int,
    total_weight: Any,
) -> Any:
    """Compute the gradient of `nll_loss` by comparing classes, which fuses; torch scatters.

    Args:
        grad_output: gradient of the loss: 0-d, or of the target's shape if ``reduction`` is 0.
        input: ``(classes)``, ``(batch, classes)`` or ``(batch, classes, height, width)``.
        target: of its shape without classes.
        weight: one a class, or None.
        reduction: 0 none, 1 mean over the weights counted, 2 sum.
        ignore_index: targets of this class count for nothing.
        total_weight: sum of the weights counted.
    """
    dim = min(input.dim() - 1, 1)
    if reduction == 1:
        grad_output = grad_output / total_weight
    elif reduction == 0:
        grad_output = grad_output.unsqueeze(dim)
    along = [-1 if d == dim else 1 for d in range(input.dim())]
    if weight is not None:
        grad_output = grad_output * weight.view(along)
    label = target.unsqueeze(dim)
    classes = torch.arange(input.shape[dim], device=input.device).view(along)
    chosen = (classes == label) & (label != ignore_index)
    return torch.where(chosen, -grad_output, 0).to(input.dtype)
