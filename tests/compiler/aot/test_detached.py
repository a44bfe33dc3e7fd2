"""Detached tensors share memory with what they were made of, and gradients they do not."""

from __future__ import annotations

import pytest
import torch

import tc


def detached_and_scaled(x):
    y = x.detach()
    y.mul_(x.mean())
    return y


def detached_inside(w):
    x = w * 2
    y = x.detach()
    y.mul_(w)
    return x, y


@pytest.mark.parametrize("backend", ["inductor", "aot_eager"])
@pytest.mark.parametrize("program", [detached_and_scaled, detached_inside])
def test_gradients_written_to_a_detached_tensor_are_its_own(program, backend):
    tc.reset()
    found = []
    for function in (program, tc.compile(program, backend=backend)):
        torch.manual_seed(0)
        w = torch.randn(4, requires_grad=True)
        result = function(w * 1.0)
        for value in result if isinstance(result, tuple) else (result,):
            value.cos().sum().backward(retain_graph=True)
        found.append((result, w.grad))
    torch.testing.assert_close(*found)


class Reversed(torch.autograd.Function):
    """A view whose gradient is reversed, as for adversarial training."""

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return -gradient


def reversed_input(x):
    return Reversed.apply(x)


def reversed_beside_what_it_views(x):
    y = x * 2
    return y, Reversed.apply(y)


def view_of_reversed(x):
    return Reversed.apply(x).view(2, 2)


def viewed_without_gradients(x):
    with torch.no_grad():
        y = x.view(2, 2)
    return y.requires_grad_()


@pytest.mark.parametrize("backend", ["inductor", "aot_eager"])
@pytest.mark.parametrize(
    "program",
    [
        reversed_input, reversed_beside_what_it_views, view_of_reversed, viewed_without_gradients,
    ],
)  # fmt: skip
def test_a_view_that_is_returned_has_the_gradient_of_what_made_it(program, backend):
    tc.reset()
    found = []
    for function in (program, tc.compile(program, backend=backend)):
        x = torch.arange(4.0, device="cpu", requires_grad=True)
        result = function(x)
        values = result if isinstance(result, tuple) else (result,)
        sum((i + 1) * value.cos().sum() for i, value in enumerate(values)).backward()
        found.append((result, x.grad, [value.is_leaf for value in values]))
    assert found[0][2] == found[1][2]
    torch.testing.assert_close(*(one[:2] for one in found))


@pytest.mark.parametrize("leaf", [True, False])
@pytest.mark.parametrize("grad", [True, False])
def test_detached_outputs_are_no_views(leaf, grad):
    """`detach_()` refuses views, so that a state which is returned detached has to be none."""

    def detached(x):
        return x.detach(), x[0].detach(), x.T.detach(), x.view(-1)[1:].detach(), x.detach()[0]

    given = torch.ones(3, 4).requires_grad_(grad)
    given = given if leaf else given * 1
    found, wanted = tc.compile(detached)(given), detached(given)
    for one, other in zip(found, wanted, strict=True):
        assert one._is_view() == other._is_view()
        assert one.data_ptr() == other.data_ptr()
        version = given._version
        one.add_(1)
        assert given._version == version + 1
    for one in found[:-1]:
        assert one.detach_() is one
