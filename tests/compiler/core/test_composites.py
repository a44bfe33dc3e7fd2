"""Functions that do other things to fake tensors than to real ones."""

import copy

import pytest
import torch

import tc


class Observed(torch.nn.Module):
    """A fake quantisation with running ranges, whose kernel sizes the ranges at its first call."""

    def __init__(self, per_row):
        super().__init__()
        size = (0,) if per_row else (1,)
        for name in ("low", "high"):
            self.register_buffer(name, torch.zeros(size))
        self.register_buffer("scale", torch.ones(1))
        self.register_buffer("zero", torch.zeros(1, dtype=torch.int32))
        self.register_buffer("on", torch.ones(1, dtype=torch.int64))
        self.per_row = per_row

    def forward(self, x):
        ranges = self.low, self.high, self.scale, self.zero
        settings = 0.1, -128, 127, 0, self.per_row, True
        return torch.fused_moving_avg_obs_fake_quant(x, self.on, self.on, *ranges, *settings) + 1


@pytest.mark.sample(2)
@pytest.mark.parametrize("way", [tc.compile, lambda m: torch.compile(m, backend="tc")])
@pytest.mark.parametrize("per_row", [False, True])
def test_a_kernel_that_sizes_its_arguments_sizes_them_as_in_eager(per_row, way):
    torch.manual_seed(0)
    module = Observed(per_row)
    compiled = copy.deepcopy(module)
    run = way(compiled)
    for rows in (3, 3, 3):
        x, y = (torch.randn(rows, 4, generator=torch.manual_seed(rows)) for _ in range(2))
        x.requires_grad_(), y.requires_grad_()
        result, expected = run(x), module(y)
        assert torch.equal(result, expected)
        result.square().sum().backward()
        expected.square().sum().backward()
        assert torch.allclose(x.grad, y.grad)
        for found, wanted in zip(compiled.buffers(), module.buffers(), strict=True):
            assert found.shape == wanted.shape and torch.allclose(found, wanted)
