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
