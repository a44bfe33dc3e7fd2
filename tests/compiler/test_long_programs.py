"""Functions of many steps compile as short ones do, while a trace is written, too."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import tc
from tc.trace.emit import capture_events

STEPS = 700  # a recursion of one Python frame for each would end at a thousand
Program = Callable[[torch.Tensor], torch.Tensor]


def adds(x: torch.Tensor) -> torch.Tensor:
    for _ in range(STEPS):
        x = x + 1.5
    return x


def sizes(x: torch.Tensor) -> torch.Tensor:
    size = x.shape[0]
    for step in range(STEPS):
        size = size + 3 if step % 2 else size * 2 // 2
    return x + size


@pytest.mark.parametrize("program", [adds, sizes])
def test_many_steps_with_a_trace(program: Program) -> None:
    x = torch.rand(3, 4, dtype=torch.float64, requires_grad=True)
    with capture_events():
        result = tc.compile(program, dynamic=program is sizes, fullgraph=True)(x)
        (given,) = torch.autograd.grad(result.sum(), x)
    torch.testing.assert_close(result, program(x))
    torch.testing.assert_close(given, torch.autograd.grad(program(x).sum(), x)[0])
