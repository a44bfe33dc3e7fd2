"""Freezing: parameters are constants while nobody writes to them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import tc
from tc.compiler.process import PROCESS

T = torch.Tensor


class Net(nn.Module):
    """Convolutions with normalisation, and a layer of one product."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.again = nn.Conv2d(8, 8, 3, padding=1)
        self.last = nn.Linear(8, 5)

    def forward(self, x: T) -> T:
        y = self.again(self.norm(self.conv(x)).relu()).relu()
        return self.last(y.mean((2, 3))).softmax(-1)


def frozen(net: nn.Module) -> nn.Module:
    compiled: nn.Module = tc.compile(net, options={"freezing": True})
    return compiled


def check(compiled: nn.Module, net: nn.Module, x: T) -> None:
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), net(x), rtol=1e-4, atol=1e-5)


def example() -> tuple[nn.Module, T]:
    tc.reset()
    torch.manual_seed(0)
    net = Net().eval()
    net.norm.running_var.uniform_(0.5, 2)
    return net, torch.randn(2, 3, 24, 24)


def test_a_frozen_network_gives_what_eager_does() -> None:
    net, x = example()
    compiled = frozen(net)
    check(compiled, net, x)
    check(compiled, net, x + 1)


STEPS = {"Adam": torch.optim.Adam, "AdamW": torch.optim.AdamW, "SGD": torch.optim.SGD}


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("fused", [False, True])
def test_an_optimizer_s_step_is_seen(name: str, fused: bool) -> None:
    net, x = example()
    optimizer = STEPS[name](net.parameters(), lr=0.5, fused=fused)
    compiled = frozen(net)
    check(compiled, net, x)
    for _ in range(2):
        net(x)[:, 0].sum().backward()
        optimizer.step()
        check(compiled, net, x)


def test_a_step_on_other_parameters_leaves_the_constants() -> None:
    net, x = example()
    other = nn.Linear(3, 3)
    compiled = frozen(net)
    with torch.no_grad():
        before = compiled(x)
    other(torch.ones(3)).sum().backward()
    torch.optim.SGD(other.parameters(), fused=True).step()
    with torch.no_grad():
        assert torch.equal(compiled(x), before)


def test_a_compiled_step_stays_one_graph() -> None:
    net, x = example()
    check(frozen(net), net, x)
    other = nn.Linear(3, 3)
    other(torch.ones(3)).sum().backward()
    step = tc.compile(torch.optim.SGD(other.parameters()).step, fullgraph=True)
    before = other.weight.clone()
    step()
    assert not torch.equal(before, other.weight)


@pytest.mark.sample(3)
@pytest.mark.parametrize("write", ["data", "vector", "parameter", "buffer", "load"])
def test_a_write_to_a_parameter_is_seen(write: str) -> None:
    net, x = example()
    compiled = frozen(net)
    check(compiled, net, x)
    with torch.no_grad():
        if write == "data":
            net.conv.weight.data = torch.randn_like(net.conv.weight)
        elif write == "vector":
            nn.utils.vector_to_parameters(
                torch.randn(sum(map(T.numel, net.parameters()))), net.parameters()
            )
        elif write == "parameter":
            net.conv.weight.mul_(-1)
        elif write == "buffer":
            net.norm.running_mean.add_(3)
        else:
            net.load_state_dict(Net().state_dict())
    check(compiled, net, x)


def test_a_parameter_replaced_by_another_is_seen() -> None:
    net, x = example()
    compiled = frozen(net)
    check(compiled, net, x)
    net.last.weight = nn.Parameter(torch.randn(5, 8))
    check(compiled, net, x)


def test_two_networks_of_one_class_keep_their_own_constants() -> None:
    net, x = example()
    other = Net().eval()
    one, two = frozen(net), frozen(other)
    check(one, net, x)
    check(two, other, x)
    check(one, net, x)


def test_running_statistics_continue() -> None:
    net, x = example()
    net.train()
    compiled = frozen(net)
    before = PROCESS.graphs
    with torch.no_grad():
        compiled(x)
        first = net.norm.running_mean.clone()
        compiled(x)
    assert PROCESS.graphs > before
    assert not torch.equal(first, net.norm.running_mean)


def test_gradients_are_computed_where_they_are_wanted() -> None:
    net, x = example()
    frozen(net)(x).sum().backward()
    assert net.conv.weight.grad is not None
