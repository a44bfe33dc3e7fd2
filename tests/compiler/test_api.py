"""What `tc.compile` takes: functions of all kinds, written in Python or not."""

from __future__ import annotations

import functools
import gc
import operator

import pytest
import torch
import torch.nn.functional as F

import tc
from tc.compiler.api import graph_stats

X = torch.linspace(-2, 2, 16).view(4, 4)


@pytest.mark.parametrize(
    ("function", "args"),
    [
        (torch.exp, (X,)),
        (torch.Tensor.add, (X, X)),
        (operator.matmul, (X, X)),
        (torch.ops.aten.sin.default, (X,)),
        (functools.partial(torch.add, alpha=2), (X, X)),
        (functools.partial(lambda x, y: (x * y).sin(), y=3), (X,)),
        (torch.einsum, ("ij,jk->ik", X, X)),
        (F.gelu, (X,)),
        (F.softmax, (X, -1)),
        (torch.vmap(torch.sin), (X,)),
        (torch.nn.Linear(4, 4).forward, (X,)),
    ],
    ids=str,
)
def test_callables_without_a_frame_of_their_own_are_captured(function, args):
    tc.reset()
    compiled = tc.compile(function, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(*args), function(*args))
    assert graph_stats() == {"graphs": 1, "graph_breaks": 0}


def test_what_the_garbage_collector_calls_is_left_alone():
    phases = []

    def callback(phase, info):
        phases.append((phase, torch.ones(1) + 1))

    tc.reset()
    gc.callbacks.append(callback)
    try:
        tc.compile(lambda x: (gc.collect(), x + 1)[1], backend="eager")(X)
    finally:
        gc.callbacks.remove(callback)
    assert {phase for phase, _ in phases} == {"start", "stop"}
    assert graph_stats()["graphs"] == 1


def test_classes_are_called_as_they_are():
    class Doubled:
        def __init__(self, x):
            self.value = x * 2

    tc.reset()
    made = tc.compile(Doubled, backend="eager")(X)
    assert type(made) is Doubled and torch.equal(made.value, X * 2)
