"""Graphs on several GPUs: where they are split, what the parts are, that they compute the same."""

from __future__ import annotations

import weakref

import pytest
import torch
from loop_harness import copied, trace
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from tc.compiler import pipeline
from tc.compiler.core.gate import Gate
from tc.compiler.core.gpu import GpuProgram
from tc.compiler.devices import gpus
from tc.compiler.options import InductorOptions
from tc.trace import CudaGraph
from tc.trace.emit import capture_events

FIRST, SECOND = torch.device("cuda:0"), torch.device("cuda:1")


@pytest.fixture(autouse=True)
def with_triton(monkeypatch):
    monkeypatch.setattr(gpus, "triton_available", lambda: True)


def across(x, w, v):
    """Layers on two GPUs, and back."""
    h = (x @ w).relu()
    there = h.to(SECOND)
    y = (there.sin() @ v).exp()
    return (y.to(FIRST) + h).tanh(), y


def fakes(*where):
    return [torch.empty(8, 8, device=device) for device in where]


def graph(fn, *where):
    """The ATen graph of a function of matrices on these devices; no GPU is needed for it."""
    with FakeTensorMode():
        return make_fx(fn)(*fakes(*where))


def test_a_graph_is_cut_where_the_gpu_changes():
    parts = gpus.split(graph(across, FIRST, FIRST, SECOND))
    assert list(parts.gpus.values()) == [FIRST, SECOND, FIRST]
    targets = []
    for name in parts.gpus:
        calls = [n for n in parts.whole.get_submodule(name).graph.nodes if n.op == "call_function"]
        targets.append([str(call.target) for call in calls])
    assert targets[0] == ["aten.mm.default", "aten.relu.default"]
    assert targets[1][0] == targets[2][0] == "aten._to_copy.default"


@pytest.mark.parametrize("where", [("cpu",), (FIRST,), (FIRST, "cpu"), (SECOND, SECOND)])
def test_other_graphs_are_not_cut(where):
    assert gpus.split(graph(lambda *x: x[0] + 1, *where)) is None


def test_each_part_is_a_program_for_its_gpu(monkeypatch):
    """What each part allocates is on its GPU, and so is the program as a whole."""
    made = []

    def run(program):
        made.append(program)
        return lambda args: ()

    monkeypatch.setattr(pipeline, "run", run)
    options = InductorOptions(triton_cudagraphs=True)
    module = graph(across, FIRST, FIRST, SECOND)
    with capture_events() as events:
        pipeline._aten_graph(module, "inference", pipeline.Request(Gate(), options, {}), None)
    assert all(isinstance(program, GpuProgram) for program in made)
    assert [program.device for program in made] == ["cuda:0", "cuda:1", "cuda:0"]
    for program in made:
        assert "@triton.jit" in program.triton_source
        assert "empty_strided_cuda(" in program.wrapper_source  # on the current GPU
    assert not any(program.replay for program in made)
    assert [(e.action, e.cause) for e in events.of(CudaGraph)] == [("refused", "elsewhere")]


def several(x, y):
    """Values with several results, unused ones, values returned twice, constants among results."""
    top, where = x.max(1)
    z = (y * 2).sin()
    return top + z.sum(1), where, None, z, z, x


def writing(x, y):
    x.copy_((x + 1).cos())
    y.add_(x.sum(0))
    return x * 2


def moves(x, y):
    return (x.sin() + y) * y.cos(), x.sin()


@pytest.mark.parametrize("function", [several, writing, moves])
def test_parts_in_turn_compute_the_same(function, monkeypatch):
    """On the CPU, where every other operation is taken to be of another GPU."""
    args = [torch.randn(6, 6), torch.randn(6, 6)]
    module = trace(torch.func.functionalize(function), args)
    numbers = {node: k % 2 for k, node in enumerate(module.graph.nodes)}
    places = (FIRST, SECOND)
    monkeypatch.setattr(gpus, "gpu_of_node", lambda node: places[numbers.get(node, 0)])
    parts = gpus.split(module)
    assert len(parts.gpus) >= 3
    seen = []

    def compile_part(part, gpu):
        seen.append(gpu)

        def run(given):
            results = part(*given)
            given.clear()
            return results if isinstance(results, tuple | list) else (results,)

        return run

    call = gpus.in_turn(parts, compile_part)
    wanted_args, given = copied(args), copied(args)
    wanted = function(*wanted_args)
    boxed = list(given)
    found = call(boxed)
    assert boxed == []
    torch.testing.assert_close(found, wanted if isinstance(wanted, tuple) else (wanted,))
    torch.testing.assert_close(given, wanted_args)
    assert set(seen) >= set(places)


def test_values_are_dropped_after_their_last_use():
    module = graph(across, FIRST, FIRST, SECOND)
    alive = []

    def compile_part(part, gpu):
        results = part.graph.output_node().args[0]
        count = len(results) if isinstance(results, tuple) else 1

        def run(given):
            alive.append([ref() is not None for ref in watched])
            given.clear()
            return tuple(torch.zeros(1) for _ in range(count))

        return run

    args = [torch.zeros(1) for _ in range(3)]
    watched = [weakref.ref(a) for a in args]
    call = gpus.in_turn(gpus.split(module), compile_part)
    call(args)
    assert alive == [[True, True, True], [False, False, True], [False, False, False]]


REFUSED = {
    "an input is written to before the end": lambda x, y: (
        torch.ops.aten.copy_.default(x, x + 1) + 1,
        y + 1,
    ),
    "an input is copied into another": lambda x, y: torch.ops.aten.copy_.default(y, x),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_is_not_cut_is_reported(why):
    module = graph(REFUSED[why], FIRST, SECOND)
    with capture_events() as events:
        assert gpus.split(module) is None
    assert why in events[0].payload


def test_symbolic_sizes_are_not_cut(monkeypatch):
    module = make_fx(lambda x, y: x + y, tracing_mode="symbolic")(torch.ones(3), torch.ones(3))
    nodes = list(module.graph.nodes)
    monkeypatch.setattr(gpus, "gpu_of_node", lambda node: (FIRST, SECOND)[nodes.index(node) % 2])
    with capture_events() as events:
        assert gpus.split(module) is None
    assert "a size is symbolic" in events[0].payload


def test_without_triton_nothing_is_cut(monkeypatch):
    monkeypatch.setattr(gpus, "triton_available", lambda: False)
    with capture_events() as events:
        assert gpus.split(graph(across, FIRST, FIRST, SECOND)) is None
    assert "triton is not installed" in events[0].payload
