"""PyTorch's compiled autograd, and compiled training steps, over graphs that tc compiled."""

from __future__ import annotations

import sys

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import tc


class Dropped(nn.Module):
    """Random masks and a size that changes."""

    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)

    def forward(self, x):
        return F.dropout(self.lin(x).relu(), 0.0) * x.shape[0]


MODELS = {
    "norm": lambda: nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.LayerNorm(4)),
    "dropout": Dropped,
    "transposed": lambda: nn.Sequential(nn.Linear(4, 4, bias=False), nn.Softmax(0)),
}


@pytest.fixture
def dynamo():
    torch.manual_seed(0)
    torch.compiler.reset()  # loads it
    tc.reset()
    module = sys.modules["torch._dynamo"]
    module.utils.counters.clear()
    yield module
    torch.compiler.reset()


def gradients(model, loss):
    model.zero_grad()
    loss().backward()
    return [one.grad.clone() for one in model.parameters()]


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("entrance", ["tc", "torch"])
@pytest.mark.parametrize("outer", ["tc", "eager"])
def test_the_backward_of_a_compiled_graph_is_recorded_whole(name, entrance, outer, dynamo, recwarn):
    model, x = MODELS[name](), torch.randn(3, 4)
    compiled = tc.compile(model) if entrance == "tc" else torch.compile(model, backend="tc")
    want = gradients(model, lambda: model(x).t().square().sum())
    for size in (3, 3, 5):
        x = torch.randn(size, 4)
        want = gradients(model, lambda x=x: model(x).t().square().sum())
        with dynamo.compiled_autograd._enable(torch.compile(backend=outer, fullgraph=True)):
            have = gradients(model, lambda x=x: compiled(x).t().square().sum())
        torch.testing.assert_close(have, want)
    assert not dynamo.utils.counters["graph_break"]
    assert not [one for one in recwarn if "lru_cache" in str(one.message)]  # tc's own code, traced


def test_hooks_and_breaks_of_forward_leave_one_backward_graph(dynamo):
    @torch.compile(backend="tc")
    def f(x):
        y = x.sin() + 10
        dynamo.graph_break()
        return (y * y).sum()

    x = torch.randn(3, requires_grad=True)
    x.register_hook(lambda grad: grad + 10)
    loss = f(x)
    dynamo.utils.counters.clear()
    with dynamo.compiled_autograd._enable(torch.compile(backend="tc", fullgraph=True)):
        loss.backward()
    torch.testing.assert_close(x.grad, 2 * (x.sin() + 10).detach() * x.detach().cos() + 10)
    assert dynamo.utils.counters["stats"]["unique_graphs"] == 1


def test_a_compiled_training_step_runs_the_compiled_backward(dynamo):
    model, x = MODELS["norm"](), torch.randn(3, 4)
    want = gradients(model, lambda: model(x).square().sum())
    model.zero_grad()

    @torch.compile(backend="tc")
    def step(x):
        loss = model(x).square().sum()
        loss.backward()
        return loss.detach()

    step(x)
    torch.testing.assert_close([one.grad for one in model.parameters()], want)
    # forward, and what follows the break at backward: none of backward's operations
    assert dynamo.utils.counters["stats"]["unique_graphs"] == 2
    assert sum(dynamo.utils.counters["graph_break"].values()) <= 2
