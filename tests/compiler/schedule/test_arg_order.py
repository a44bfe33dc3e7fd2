"""Positions that argmax and argmin give are those of the tensor as the user sees it."""

from __future__ import annotations

from itertools import permutations

import pytest
import torch
from loop_harness import compare


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", ["argmax", "argmin"])
@pytest.mark.parametrize("order", list(permutations(range(3))))
@pytest.mark.parametrize("dim", [None, 0, 1, 2])
def test_position_in_a_permuted_tensor(name: str, order: tuple[int, ...], dim: int | None) -> None:
    def find(x: torch.Tensor) -> torch.Tensor:
        return getattr(x.permute(order) * 2, name)(dim)

    compare(find, (torch.randn(4, 5, 6),))
