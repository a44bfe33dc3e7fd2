"""Gradients with respect to tensors that the compiled function made itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tc

grad = torch.autograd.grad


def of_an_inner_tensor(x: torch.Tensor) -> Any:
    y = x.sin()
    return grad((y * y).sum(), y)


def of_an_input_and_an_inner_tensor(x: torch.Tensor) -> Any:
    y = x.sin()
    return grad(y.sum(), [x, y], allow_unused=True)


def of_a_view(x: torch.Tensor) -> Any:
    x = x.view(-1)
    return grad((x**2).sum(), x)


def by_keywords(x: torch.Tensor) -> Any:
    hidden = torch.relu(x * 2)
    return grad(outputs=hidden.sum().max(), inputs=hidden)


def accumulated_in_an_inner_tensor(x: torch.Tensor) -> Any:
    y = x.sin()
    (y * y).sum().backward(inputs=[y])
    return y.grad, x.grad


def accumulated_by_function(x: torch.Tensor) -> Any:
    y = x.sin()
    torch.autograd.backward((y * y).sum(), inputs=[x, y])
    return y.grad, x.grad


def twice(x: torch.Tensor) -> Any:
    y = x.sin()
    (first,) = grad((y * y).sum(), y, create_graph=True)
    (first * first).sum().backward()
    return x.grad


def in_a_callee(x: torch.Tensor) -> Any:
    def inner(loss: torch.Tensor, of: torch.Tensor) -> torch.Tensor:
        return grad(loss, of)[0]

    y = x.sin() * 2
    return inner((y * y).sum(), y)


def of_two(x: torch.Tensor) -> Any:
    y = x.sin()
    z = y * 2
    return grad(z.sum(), (y, {"z": z}["z"]))


def penalty(x: torch.Tensor) -> Any:
    mixed = (0.3 * x + 0.7).requires_grad_()
    (slope,) = grad((mixed * mixed).sum(), mixed, create_graph=True)
    (slope.norm() - 1).square().backward()
    return x.grad


PROGRAMS: tuple[Callable[[torch.Tensor], Any], ...] = (
    of_an_inner_tensor,
    of_an_input_and_an_inner_tensor,
    of_a_view,
    by_keywords,
    accumulated_in_an_inner_tensor,
    accumulated_by_function,
    twice,
    in_a_callee,
    of_two,
    penalty,
)


@pytest.mark.sample(5)
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_gradients_of_inner_tensors(program: Callable[[torch.Tensor], Any], backend: str) -> None:
    results = []
    for call in (program, tc.compile(program, backend=backend)):
        x = torch.tensor([0.5, -0.25], requires_grad=True)
        results.append(call(x))
    torch.testing.assert_close(results[1], results[0])
