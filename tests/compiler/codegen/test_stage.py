"""Kernels that are equal up to names are printed once; those that differ in one fact are not."""

from __future__ import annotations

import pytest
import torch

import tc
from tc.compiler.codegen import stage

#: what one of four layers has other than the rest
CHANGES = {
    "nothing": {},
    "a constant": {"scale": 1.5},
    "a shape": {"width": 24},
    "a type": {"dtype": torch.float64},
}


def layer(x, width=16, scale=0.5, dtype=torch.float32):
    x = x[:, :width].to(dtype)
    return torch.softmax(torch.tanh(x) * scale, -1).cumsum(-1)


@pytest.mark.parametrize("change", CHANGES)
def test_equal_kernels_are_printed_once(change, monkeypatch):
    def model(*inputs):
        return [layer(x, **(CHANGES[change] if k == 2 else {})) for k, x in enumerate(inputs)]

    printed = []
    real = stage.generate_kernel

    def generate(kernel, *rest):
        printed.append(kernel)
        return real(kernel, *rest)

    monkeypatch.setattr(stage, "generate_kernel", generate)
    inputs = [torch.randn(8, 24) for _ in range(4)]
    with torch.no_grad():
        torch.testing.assert_close(tc.compile(model)(*inputs), model(*inputs))
    assert len(printed) == (1 if change == "nothing" else 2)  # a layer is a kernel
    assert len(set(printed)) == len(printed)
    assert all(kernel.name == "" and not kernel.origins for kernel in printed)
