"""Sizes that guards have made 1: the element that broadcasts is read, whatever the expression."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import tc

#: parts of a tensor whose last dimension has size 1 at the size that is given
PARTS: dict[str, tuple[int, Callable[[torch.Tensor], torch.Tensor]]] = {
    "narrow": (3, lambda x: x.narrow(-1, 1, x.size(-1) // 2)),
    "slice": (5, lambda x: x[..., x.size(-1) // 2 : x.size(-1) // 2 + x.size(-1) // 4]),
    "chunk": (3, lambda x: x.chunk(2, -1)[-1]),
    "split": (7, lambda x: x.split(6, -1)[-1]),
    "difference": (4, lambda x: x[..., 3:]),
    "steps": (4, lambda x: x[..., :: x.size(-1) - 1][..., 1:]),
    "windows": (4, lambda x: x.unfold(-1, x.size(-1), 1).sum(-1)),
    "cat": (2, lambda x: torch.cat([x[..., 2:], x[..., 1:]], -1)),
}
USES: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "plus": lambda x, part: part + x.flip(-1),
    "where": lambda x, part: torch.where(x > 0, part, x),
    "expand": lambda x, part: part.expand(x.shape) * 2,
    "normalised": lambda x, part: (x - part).softmax(-1) * part,
    "in place": lambda x, part: (x * 1).mul_(part),
    "assigned": lambda x, part: x.clone().copy_(part),
    "index": lambda x, part: x[torch.arange(2)[:, None] % x.size(0), 0] + part.reshape(-1)[0],
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("part", PARTS)
def test_a_part_broadcasts_where_its_size_is_one(part: str, use: str, grad: bool) -> None:
    size, take = PARTS[part]

    def f(x: torch.Tensor) -> torch.Tensor:
        return USES[use](x, take(x))

    compiled = tc.compile(f, dynamic=True)
    for rows in (3, 4):
        x = torch.randn(rows, size)
        one, other = x.clone().requires_grad_(grad), x.clone().requires_grad_(grad)
        got, want = compiled(one), f(other)
        torch.testing.assert_close(got, want)
        if grad:
            got.sum().backward()
            want.sum().backward()
            torch.testing.assert_close(one.grad, other.grad)
