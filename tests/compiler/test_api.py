"""What `tc.compile` takes: functions of all kinds, written in Python or not."""

from __future__ import annotations

import copy
import functools
import gc
import operator
import pickle

import pytest
import torch
import torch.nn.functional as F

import tc
from tc.compiler import api
from tc.compiler.api import graph_stats
from tc.compiler.capture.opcodes import OPCODES
from tc.compiler.errors import StageError, Unsupported
from tc.compiler.process import PROCESS

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
)
def test_callables_without_a_frame_of_their_own_are_captured(function, args):
    tc.reset()
    compiled = tc.compile(function, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(*args), function(*args))
    assert graph_stats() == {"graphs": 1, "graph_breaks": 0}


@pytest.mark.usefixtures("only_new_garbage")
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


@pytest.mark.parametrize(
    ("opcode", "callee", "line"),
    [("CONTAINS_OP", "", 'if "a" in names:'), ("CALL", "torch.cos", "return torch.cos(x)")],
)
def test_a_failure_of_capture_reports_the_line(opcode, callee, line, monkeypatch):
    def inner(x, names):
        if "a" in names:
            return torch.cos(x)
        return x

    def outer(x):
        return inner(torch.sin(x), ["a"]) + 1

    handler = OPCODES.get(opcode)

    def failing(frame, one):
        if frame.code.co_name != "inner":
            return handler(frame, one)
        handler(frame, one)
        raise ZeroDivisionError("no handler")

    monkeypatch.setitem(OPCODES._rows, opcode, failing)
    with pytest.raises(StageError, match=f"in {callee or opcode}: no handler") as raised:
        tc.compile(outer, backend="eager")(X)
    found = api.error_context(raised.value)
    assert (found.opcode, found.callee, found.code) == (opcode, callee, "")
    assert found.place.loc == line
    assert [frame.name for frame in found.stack] == ["outer", "inner"]


def test_a_break_that_is_an_error_reports_its_code():
    def function(x):
        print("now")
        return x + 1

    with pytest.raises(Unsupported) as raised:
        tc.compile(function, fullgraph=True)(X)
    found = api.error_context(raised.value)
    assert (found.code, found.place.loc) == ("TC104", 'print("now")')
    assert api.error_context(ValueError("x")) is None


def test_listeners_get_each_graph_until_they_are_stopped():
    seen = []
    stop = tc.on_graph(lambda gm: seen.append(len(gm.graph.nodes)))
    f = tc.compile(lambda x: x.sin() + 1)
    f(torch.ones(2))
    stop()
    stop()
    f(torch.ones(2, dtype=torch.float64))
    assert seen == [4]


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_a_copy_of_a_compiled_module_shares_its_code(copied):
    compiled, x = tc.compile(torch.nn.Linear(3, 3)), torch.ones(2, 3)
    compiled(x)
    before = tc.counters["stats"]["unique_graphs"]
    torch.testing.assert_close(copied(compiled)(x), compiled(x))
    assert tc.counters["stats"]["unique_graphs"] == before


@pytest.mark.parametrize("name", ["max_pool2d", "adaptive_max_pool2d", "adaptive_avg_pool2d"])
def test_a_function_of_torch_that_is_asked_for_is_compiled(name: str) -> None:
    function = getattr(torch.nn.functional, name)
    x = torch.randn(1, 2, 8, 8)
    before = PROCESS.graphs
    assert torch.equal(tc.compile(function, fullgraph=True)(x, 2), function(x, 2))
    assert PROCESS.graphs == before + 1
