"""Symbolic sizes become arithmetic over sizes of inputs, each computed once."""

from __future__ import annotations

import pytest
import torch
from aot_harness import fake
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

import tc
from tc import trace
from tc.compiler.aot.artifact import Fallback
from tc.compiler.aot.symbols import SizeNodes

EXPRESSIONS = [
    lambda n, m: n + m + 3,
    lambda n, m: n * m * 2 - n,
    lambda n, m: n // 2,
    lambda n, m: (n + 1) % 4,
    lambda n, m: torch.sym_max(n, m * 2),
    lambda n, m: torch.sym_min(n, m),
    lambda n, m: torch.sym_float(n) / 2,
    lambda n, m: n / m,
    lambda n, m: n**2,
    lambda n, m: -n,
]


def sizes():
    """Return an input's node with two symbolic sizes, and the sizes."""
    mode = FakeTensorMode(shape_env=ShapeEnv())
    value = fake(mode, torch.zeros(11, 5), True)
    graph = fx.Graph()
    node = graph.placeholder("x")
    node.meta["val"] = value
    nodes = SizeNodes(graph)
    nodes.add_input(node, value)
    return nodes, *value.shape


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_arithmetic(expression):
    nodes, n, m = sizes()
    nodes.graph.output(nodes.node_for(expression(n, m)))
    module = fx.GraphModule({}, nodes.graph)
    for shape in ((11, 5), (8, 3), (30, 2)):
        assert module(torch.zeros(shape)) == expression(*shape)


def test_each_size_is_taken_once():
    nodes, n, m = sizes()
    nodes.node_for(n * 2 + m)
    nodes.node_for(n * 2 + 1)
    taken = nodes.graph.find_nodes(op="call_function", target=torch.ops.aten.sym_size.int)
    assert len(taken) == 2
    assert nodes.node_for(n * 2 + 1) is nodes.node_for(1 + 2 * n)


def test_unknown_symbol_is_refused():
    nodes, *_ = sizes()
    _, other, _ = sizes()
    with pytest.raises(Fallback, match="not the size of any input"):
        nodes.homes.clear()
        nodes.node_for(other)


def test_conditions_that_tracing_gradients_adds_are_guarded():
    tc.reset()
    graphs = []
    compiled = tc.compile(lambda x, w: x.cumsum(0).prod(1) * w[0], dynamic=True)

    def run(function, rows, columns):
        draw = torch.Generator().manual_seed(0)
        args = [torch.randn(*n, generator=draw).requires_grad_() for n in ((rows, columns), (4,))]
        out = function(*args)
        return [out, *torch.autograd.grad(out.sin().sum(), args)]

    for rows, columns in ((5, 4), (6, 4), (5, 2)):
        found = run(compiled, rows, columns)
        expected = run(lambda x, w: x.cumsum(0).prod(1) * w[0], rows, columns)
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other)
        graphs.append(tc.compiler.api.graph_stats()["graphs"])
    assert graphs[0] == graphs[1] < graphs[2]  # it asks about two columns


@pytest.mark.sample(1)
@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
@pytest.mark.parametrize(("factor", "eager"), [(1.5, False), (0.75, False), (1.7, True)])
def test_sizes_by_a_float_factor(mode, factor, eager):
    def function(x):
        return torch.nn.functional.interpolate(x, scale_factor=factor, mode=mode) * 2

    tc.reset()
    compiled = tc.compile(function, dynamic=True)
    with trace.capture_events() as events:
        for size in (6, 7, 9, 12):
            x = torch.randn(1, 2, size, 8, requires_grad=True)
            found, expected = compiled(x), function(x)
            torch.testing.assert_close(found, expected)
            for one, other in zip(
                torch.autograd.grad(found.sum(), x),
                torch.autograd.grad(expected.sum(), x),
                strict=True,
            ):
                torch.testing.assert_close(one, other)
    reported = [event.name for event in events if isinstance(event, trace.Artifact)]
    assert ("tc_graph_runs_eagerly" in reported) is eager


DIVIDED = {
    "var": lambda x: x.var(0, correction=2),
    "std of all": lambda x: x.std(correction=x.shape[1] * 2),
    "var_mean": lambda x: torch.var_mean(x, 0, correction=2, keepdim=True)[0],
    "of the program": lambda x: x * (3.0 / (x.shape[0] - 2)),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", DIVIDED)
def test_divisors_that_some_sizes_make_zero(name):
    """Formulas of gradients continue with an infinity, and the program's own division raises."""
    function = DIVIDED[name]
    compiled = tc.compile(function, dynamic=True)
    for size in (5, 7, 2, 9):
        x = torch.randn(size, 3, requires_grad=True)
        if name == "of the program" and size == 2:
            with pytest.raises(ZeroDivisionError):
                compiled(x)
            continue
        found, expected = compiled(x), function(x)
        torch.testing.assert_close(found, expected, equal_nan=True)
        (one,) = torch.autograd.grad(found.sum(), x)
        (other,) = torch.autograd.grad(expected.sum(), x)
        torch.testing.assert_close(one, other, equal_nan=True)
