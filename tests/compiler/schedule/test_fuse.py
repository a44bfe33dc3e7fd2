"""What is fused, and what looking for it costs."""

from __future__ import annotations

import pytest
import torch

import tc
from tc.compiler.schedule import fuse


def joined(x: torch.Tensor, count: int) -> torch.Tensor:
    return torch.stack([x * (i + 1) for i in range(count)], 1).tanh()


@pytest.mark.sample(1)
@pytest.mark.parametrize("gradients", [False, True])
def test_rewritten_bodies_grow_with_the_pieces_and_not_with_their_square(gradients, monkeypatch):
    made = []
    member = fuse._member
    monkeypatch.setattr(fuse, "_member", lambda *args: made.append(1) or member(*args))

    def bodies(count: int) -> int:
        made.clear()
        x = torch.randn(8, 8, requires_grad=gradients)
        result = tc.compile(joined)(x, count)
        torch.testing.assert_close(result, joined(x, count))
        if gradients:
            result.sum().backward()
        return len(made)

    few = bodies(20)
    assert 0 < bodies(60) <= 5 * few
