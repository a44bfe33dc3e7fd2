"""What is kept for backward lives no longer than backward needs it."""

from __future__ import annotations

import weakref

import pytest
import torch
from aot_harness import interpreted, trace_training

from tc.compiler import aot


def chain(x, w):
    for _ in range(4):
        x = torch.tanh(x @ w).mm(w)
    return x


def arguments():
    return torch.randn(8, 8).double(), torch.randn(8, 8).double().requires_grad_()


def gradients(*, again):
    """Run backward once or twice; returns for each run how many kept values were alive when it
    had emptied its list, and the gradient."""
    args = arguments()
    graphs = trace_training(chain, args)
    places = [i for i, saved in enumerate(graphs.partition.saved) if saved.kind == "extra"]
    assert len(places) >= 4
    compute, alive = interpreted(graphs.backward), []

    def backward(args):
        watches = [weakref.ref(args[i]) for i in places]
        copies = [arg.clone() for arg in args]
        args.clear()
        alive.append(sum(watch() is not None for watch in watches))
        return compute(copies)

    (out,) = aot.wrap_training(graphs, interpreted(graphs.forward), backward)(*args)
    if again:
        out.sum().backward(retain_graph=True)
    out.sum().backward()
    eager = args[1].detach().requires_grad_()
    (chain(args[0], eager).sum() * (1 + again)).backward()
    torch.testing.assert_close(args[1].grad, eager.grad)
    return alive, len(places)


def test_backward_holds_nothing_that_its_program_let_go():
    assert gradients(again=False)[0] == [0]


def test_a_retained_graph_keeps_its_values_until_it_is_let_go():
    alive, count = gradients(again=True)
    assert alive == [count, 0]


def test_a_second_backward_is_refused_as_in_eager():
    args = arguments()
    graphs = trace_training(chain, args)
    run = aot.wrap_training(graphs, interpreted(graphs.forward), interpreted(graphs.backward))
    (out,) = run(*args)
    out.sum().backward()
    with pytest.raises(RuntimeError, match="a second time"):
        out.sum().backward()


def test_an_input_gradient_that_is_the_tangent_itself():
    x = torch.randn(3, requires_grad=True)
    graphs = trace_training(lambda x: x + 1, [x])
    run = aot.wrap_training(graphs, interpreted(graphs.forward), interpreted(graphs.backward))
    run(x)[0].backward(torch.arange(3.0))
    assert x.grad.tolist() == [0, 1, 2]
