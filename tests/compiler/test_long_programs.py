"""Functions of many steps compile as short ones do, while a trace is written, too."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import tc
from tc.compiler.errors import UserError
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


@pytest.mark.sample(1)
@pytest.mark.parametrize("program", [adds, sizes])
def test_many_steps_with_a_trace(program: Program) -> None:
    x = torch.rand(3, 4, dtype=torch.float64, requires_grad=True)
    with capture_events():
        result = tc.compile(program, dynamic=program is sizes, fullgraph=True)(x)
        (given,) = torch.autograd.grad(result.sum(), x)
    torch.testing.assert_close(result, program(x))
    torch.testing.assert_close(given, torch.autograd.grad(program(x).sum(), x)[0])


def _doubled(size: float, steps: int) -> float:
    for step in range(steps):
        size = size // 2 + size % 3 + step
    return size


def _multiplied(size: float, steps: int) -> float:
    for step in range(steps):
        size = (size + 0.5) * (size - step) / (size + 2.0)
    return size


def _bits(size: int, steps: int) -> int:
    for step in range(steps):
        size = (size ^ step) + (size & 7) - (size >> 1)
    return size


@pytest.mark.sample(1)
@pytest.mark.parametrize("formula", [_doubled, _multiplied, _bits])
@pytest.mark.parametrize("steps", [5, 60])
def test_numbers_that_double_in_each_step(formula: Callable[..., Any], steps: int) -> None:
    """Sixty steps would have 2**60 nodes: a longer expression is a constant, guarded."""

    def program(x: torch.Tensor, size: float) -> tuple[torch.Tensor, float]:
        return x * formula(size, steps), formula(x.shape[0], steps)

    compiled = tc.compile(program)
    for length, size in ((5, 3.25), (9, 7.5), (16, 4.75), (9, 7.5)):
        given = size if formula is _multiplied else int(size)
        x = torch.rand(length, dtype=torch.float64)
        for one, other in zip(compiled(x, given), program(x, given), strict=True):
            torch.testing.assert_close(one, other)


@pytest.mark.sample(1)
@pytest.mark.parametrize("formula", [_doubled, _multiplied, _bits])
def test_numbers_of_data_that_double_in_each_step(formula: Callable[..., Any]) -> None:
    """No constant can be guarded: the graph breaks where an expression gets too long."""

    def program(x: torch.Tensor, number: torch.Tensor, steps: int) -> torch.Tensor:
        return x * formula(number.item(), steps)

    kind = torch.float64 if formula is _multiplied else torch.int64
    compiled = tc.compile(program)
    with tc.config.patch(capture_scalar_outputs=True):
        for value, steps in ((7, 5), (9, 60), (12, 60)):
            given = torch.ones(3, dtype=torch.float64), torch.tensor(value, dtype=kind), steps
            torch.testing.assert_close(compiled(*given), program(*given))
        if formula is _doubled:
            with pytest.raises(UserError, match="has over"):
                tc.compile(program, fullgraph=True)(*given)


def test_sizes_that_triple_in_each_layer() -> None:
    """Convolutions with "same" padding: the sizes become constants where they are too long."""

    def program(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        for _ in range(6):
            pads = [max((math.ceil(n / 2) - 1) * 2 + 3 - n, 0) for n in x.shape[2:]]
            x = F.pad(x, [p for n in reversed(pads) for p in (n // 2, n - n // 2)])
            x = F.conv1d(x, weight, stride=2)
        return x

    compiled = tc.compile(program, backend="aot_eager")
    for size in (160, 150, 180, 150):
        given = torch.rand(1, 1, size), torch.rand(1, 1, 3) / 3
        torch.testing.assert_close(compiled(*given), program(*given))
