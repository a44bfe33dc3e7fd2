"""Stand-ins of losses against eager."""

from __future__ import annotations

from itertools import product

import pytest
import torch
import torch.nn.functional as F

from tc.compiler.aot.losses import nll_loss_backward

SHAPES = ((5,), (4, 5), (3, 5, 2, 4))
CASES = list(product(SHAPES, range(3), (True, False), (torch.float32, torch.bfloat16)))


@pytest.mark.sample(14)
@pytest.mark.parametrize(("shape", "reduction", "weighted", "dtype"), CASES)
def test_gradient_of_nll_loss(
    shape: tuple[int, ...], reduction: int, weighted: bool, dtype: torch.dtype
) -> None:
    x = torch.randn(shape, dtype=dtype, requires_grad=True)
    classes = x.shape[min(x.dim() - 1, 1)]
    target = torch.randint(0, classes, (shape[:1] + shape[2:])[: x.dim() - 1])
    weight = torch.rand(classes, dtype=dtype) if weighted else None
    name = ("none", "mean", "sum")[reduction]
    for ignored in (-100, 1, 3):
        loss = F.nll_loss(x, target, weight, ignore_index=ignored, reduction=name)
        given = torch.randn_like(loss)
        [want] = torch.autograd.grad(loss, x, given)
        counted = target[target != ignored]
        total = torch.ones(classes, dtype=dtype) if weight is None else weight
        got = nll_loss_backward(
            given, x.detach(), target, weight, reduction, ignored, total[counted].sum()
        )
        assert got.dtype == dtype
        torch.testing.assert_close(got, want)


def test_classes_that_are_not_the_target_get_no_gradient_of_a_loss_that_overflowed() -> None:
    x, target = torch.randn(2, 3), torch.tensor([2, 0])
    got = nll_loss_backward(torch.tensor(torch.inf), x, target, None, 2, -100, torch.tensor(2.0))
    assert torch.equal(got, torch.tensor([[0, 0, -torch.inf], [-torch.inf, 0, 0]]))
