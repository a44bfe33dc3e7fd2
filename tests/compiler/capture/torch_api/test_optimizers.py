"""Steps of torch's optimizers: one graph for all steps, called on their own or by a function."""

from __future__ import annotations

import copy

import pytest
import torch
from support import succeed
from torch import optim

import tc
from tc import trace
from tc.compiler import api

# what an optimizer takes, and how many graphs its steps need: SGD's momentum appears after one
OPTIMIZERS = [
    (optim.SGD, {"lr": 0.1}, 1),
    (optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True}, 2),
    (optim.Adam, {"lr": 0.1, "fused": True}, 1),
    (optim.AdamW, {"amsgrad": True}, 1),
    (optim.RMSprop, {"centered": True, "momentum": 0.5}, 1),
    (optim.Adagrad, {}, 1),
    (optim.Adadelta, {}, 1),
    (optim.Adamax, {}, 1),
    (optim.NAdam, {}, 1),
    (optim.Rprop, {}, 1),
    (optim.AdamW, {"foreach": True, "maximize": True}, 1),
    (optim.RMSprop, {"foreach": True, "centered": True}, 1),
    (optim.Adagrad, {"foreach": True}, 1),
    (optim.Adadelta, {"foreach": True}, 1),
    (optim.Adamax, {"foreach": True}, 1),
    (optim.Adamax, {"foreach": True, "weight_decay": 0.1, "maximize": True}, 1),
    (optim.NAdam, {"foreach": True}, 1),
    (optim.Rprop, {"foreach": True}, 1),
]


@pytest.fixture(autouse=True)
def fresh():
    tc.reset()


def train(model, optimizer, step, steps=3):
    x = torch.linspace(-1, 1, 12).reshape(3, 4)
    for number in range(steps):
        optimizer.zero_grad()
        model(x + number).square().sum().backward()
        step()
    return [parameter.detach().clone() for parameter in model.parameters()]


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("kind", "options", "graphs"), OPTIMIZERS, ids=lambda value: getattr(value, "__name__", None)
)
def test_a_compiled_step_is_one_graph(kind, options, graphs):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 2))
    twin = copy.deepcopy(model)
    eager, compiled = (kind(one.parameters(), **options) for one in (model, twin))
    want = train(model, eager, eager.step)
    got = train(twin, compiled, tc.compile(compiled.step, backend="eager"))
    torch.testing.assert_close(got, want)
    assert api.graph_stats() == {"graphs": graphs, "graph_breaks": 0}


def test_a_step_inside_of_a_function_breaks_once_and_is_a_graph_of_its_own():
    model = torch.nn.Linear(4, 2)
    optimizer = optim.Adam(model.parameters())

    def stepping(x):
        y = x + 1
        optimizer.step()
        return y * 2

    model(torch.ones(1, 4)).sum().backward()
    before = model.weight.detach().clone()
    assert tc.compile(stepping, backend="eager")(torch.ones(1)).tolist() == [4.0]
    assert not torch.equal(before, model.weight)
    assert api.graph_stats() == {"graphs": 3, "graph_breaks": 1}
    tc.reset()
    with pytest.raises(tc.exc.Unsupported, match="TC116"):
        tc.compile(stepping, backend="eager", fullgraph=True)(torch.ones(1))


@pytest.mark.slow
def test_a_step_is_one_graph_after_torch_compile_ran_in_the_process():
    program = """
import torch, tc
from tc.compiler import api
torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1))
weight = torch.nn.Parameter(torch.ones(2))
weight.grad = torch.ones(2)
step = tc.compile(torch.optim.Adam([weight], fused=True).step, backend="eager")
step(), step()
assert api.graph_stats() == {"graphs": 1, "graph_breaks": 0}, api.graph_stats()
"""
    succeed("-c", program)


def test_what_a_step_raises_it_raises_compiled():
    weight = torch.nn.Parameter(torch.ones(3))
    weight.grad = torch.ones(3).to_sparse()
    optimizer = optim.Adamax([weight])
    with pytest.raises(RuntimeError) as eager:
        optimizer.step()
    with pytest.raises(RuntimeError, match=str(eager.value)):
        tc.compile(optimizer.step, backend="eager")()


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_lbfgs_runs_as_python_and_its_closure_is_captured(search):
    def run(compile_):
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 4)
        optimizer = optim.LBFGS(model.parameters(), lr=0.1, line_search_fn=search)
        forward = []

        def step(x):
            def closure():
                optimizer.zero_grad()
                loss = (model(x) - x.roll(1, 0)).square().mean()
                forward.append(loss.item())
                loss.backward()
                return loss

            return optimizer.step(closure)

        step = compile_(step)
        losses = [step(torch.linspace(-1, 1, 12).reshape(3, 4) + i) for i in range(3)]
        return losses, forward, [parameter.detach() for parameter in model.parameters()]

    with trace.capture_events() as events:
        got = run(lambda step: tc.compile(step, backend="eager"))
    torch.testing.assert_close(got, run(lambda step: step))
    breaks = [one.stack[-1].file for one in events.of(trace.GraphBreak)]
    assert breaks and not any("lbfgs" in file for file in breaks)
