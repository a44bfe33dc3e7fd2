"""The cache of graphs: what is saved, keys, refusals; no kill, damage or race harms a load."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from contextlib import contextmanager

import pytest
import torch
from graph_cache_harness import (
    compiled,
    entries,
    recorded_steps,
    recording,
    running,
    same_twice,
    steps,
)
from kills import killed_at, together
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.checkpoint import checkpoint

import tc
from tc import trace
from tc.compiler import pipeline
from tc.compiler.cache import graph_key
from tc.compiler.cache.graph_cache import KIND
from tc.compiler.core.gate import Gate
from tc.compiler.runtime import store


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TC_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("TC_FORCE_DISABLE_CACHES", raising=False)
    with tc.config.patch(fx_graph_cache=True):
        tc.reset()
        yield tmp_path


def twice(function, *args, **settings):
    """Compile and call twice; the second finds the first's entry."""
    first, events = compiled(function, *args, **settings)
    assert events.looks() == [False], events.why_not()
    second, events = compiled(function, *args, **settings)
    assert events.looks() == [True]
    return first, second, events


def two_ops(x, y):
    return torch.sin(x) + y


def test_the_second_compile_does_nothing_after_capture():
    x, y = torch.randn(4, 5), torch.randn(4, 5)
    first, second, events = twice(two_ops, x, y)
    torch.testing.assert_close(second, two_ops(x, y))
    assert torch.equal(first, second)
    assert not events.stages() & {"aot", "loops.lower", "schedule", "codegen", "graph_cache.keep"}


def test_all_is_reported_on_a_hit_too():
    x = torch.randn(4, 6)
    got = (trace.AtenGraph, trace.Artifact, trace.Fusion, trace.Kernels, trace.Provenance,
            trace.OutputCode, trace.OutputGraph, trace.StageRan)  # fmt: skip

    def function(x):
        return torch.softmax(x @ x.t(), -1).sum(0), x.exp()

    runs = []
    for _ in range(2):
        _, events = compiled(function, x)
        runs.append([repr(e) for e in events if isinstance(e, got)])
    assert runs[0] == runs[1]
    assert {
        "AtenGraph", "Artifact", "Fusion", "Kernels", "Provenance", "OutputCode", "OutputGraph",
        "StageRan",
    } == {text.partition("(")[0] for text in runs[1]}  # fmt: skip


def test_parts_of_the_key_are_reported():
    _, events = compiled(two_ops, torch.randn(3), torch.randn(3))
    (event,) = [e for e in events if isinstance(e, trace.Cache)]
    assert {"graph", "inputs", "options", "state", "tc", "torch"} <= set(event.parts)
    json.dumps(dict(event.parts))


# -- what callers get ------------------------------------------------------------------------------
def writes(x, y):
    x.mul_(2)
    return x[1:], y.sum(), x, None, 7, y.t()


def makes(x):
    return x * torch.tensor([1.0, 2.0, 3.0]), torch.arange(3)


def no_kernel(x):
    return x.view(-1)


def sets_modes(x):
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        y = x @ x
    with torch.autocast("cpu", enabled=False):
        return y, x @ x


@pytest.mark.parametrize("function", [writes, makes, no_kernel, sets_modes])
def test_results_are_as_eager(function):
    arguments = [torch.randn(3, 3)] + [torch.randn(3, 3)] * (function is writes)
    expected_inputs = [a.clone() for a in arguments]
    expected = function(*expected_inputs)
    inputs = [a.clone() for a in arguments]
    compiled(function, *inputs)
    inputs = [a.clone() for a in arguments]
    result, events = compiled(function, *inputs)
    assert events.looks() == [True]
    torch.testing.assert_close(result, expected)
    torch.testing.assert_close(inputs, expected_inputs)
    if function is writes:
        assert result[2] is inputs[0]
        assert result[0].data_ptr() == inputs[0][1:].data_ptr()


def test_inputs_that_overlap_run_as_eager():
    def function(x, y):
        x.mul_(2)
        return y + 1

    for _ in range(2):
        tc.reset()
        run = tc.compile(function)
        run(torch.randn(3), torch.randn(3))
        got, eager = torch.arange(6.0), torch.arange(6.0)
        result = run(got[:3], got[1:4])
        torch.testing.assert_close(result, function(eager[:3], eager[1:4]))
        torch.testing.assert_close(got, eager)


def test_random_numbers_are_drawn_as_in_eager():
    def function(x):
        return torch.nn.functional.dropout(x, 0.5) + torch.rand(3)

    x = torch.ones(3)
    for _ in range(2):
        torch.manual_seed(3)
        result, _ = compiled(function, x)
        torch.manual_seed(3)
        torch.testing.assert_close(result, function(x))


# -- graphs with gradients -------------------------------------------------------------------------
def unused(x, w):
    return (x * 2).sum(), w.detach() + 1


def held(x, w):
    return (x @ w * torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0])).cumsum(0).tanh()


def without_gradients_inside(x, w):
    with torch.no_grad():
        scale = (x @ w).abs().max()
    return (x @ w) / scale


class Doubled(torch.autograd.Function):
    """Its gradient is twice the sine's."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.saved_tensors[0].cos() * 2


def checkpointed(x, w):
    return checkpoint(lambda x: torch.tanh(x @ w), x, use_reentrant=False).sin()


def by_a_function(x, w):
    return Doubled.apply(x @ w)


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "function",
    [
        *(running, unused, same_twice, held),
        *(without_gradients_inside, checkpointed, by_a_function),
    ],
)
def test_the_second_compile_with_gradients_does_nothing_after_capture(function):
    expected = steps(function)
    for hit in (False, True):
        found, events = recorded_steps(function)
        assert events.looks() == [hit], events.why_not()
        torch.testing.assert_close(found, expected)
    assert not events.stages() & {"aot", "loops.lower", "schedule", "codegen", "graph_cache.keep"}


def test_gradients_many_in_one_are_computed_by_the_operations_kept():
    def function(x):
        return torch.softmax(x.view(2, 6), -1).as_strided((3, 4), (4, 1)) * x.sin()

    x = torch.randn(3, 4, requires_grad=True)
    given = torch.randn(5, 3, 4)
    [want] = torch.autograd.grad(function(x), x, given, is_grads_batched=True)
    for hit in (False, True):
        result, events = compiled(function, x)
        assert events.looks() == [hit]
        got = torch.autograd.grad(result, x, given, is_grads_batched=True, retain_graph=True)
        torch.testing.assert_close(got, (want,))
        torch.autograd.grad(result.sum(), x, retain_graph=True)  # its entry is kept when it runs
        firsts = [torch.autograd.grad(o.sum(), x, create_graph=True) for o in (result, function(x))]
        second = [torch.autograd.grad(first.sum(), x) for [first] in firsts]
        torch.testing.assert_close(*second)


def test_all_is_reported_on_a_hit_with_gradients_too():
    got = (trace.AtenGraph, trace.Partition, trace.Fusion, trace.Kernels, trace.Provenance,
            trace.OutputCode)  # fmt: skip
    runs = []
    for _ in range(2):
        _, events = recorded_steps(same_twice)
        runs.append(sorted(repr(e) for e in events if isinstance(e, got)))
    assert runs[0] == runs[1]
    assert any("joint" in text for text in runs[1])


def test_graphs_of_atens_operations_have_entries_where_the_captured_one_has_none():
    def function(x, w):
        return torch.vmap(lambda row: torch.tanh(row @ w))(x).sin()

    expected, looks = steps(function), []
    for _ in range(2):
        found, events = recorded_steps(function)
        torch.testing.assert_close(found, expected)
        assert "training graph: it is marked tc_levelled" in events.why_not()
        looks.append(events.looks())
    assert looks == [[False, False], [True, True]]


# -- keys ------------------------------------------------------------------------------------------
@contextmanager
def switched(switch, value, back):
    switch(value)
    try:
        yield
    finally:
        switch(back)


def on_line(n):
    names = {"torch": torch}
    source = "\n" * n + "def f(x, y): return torch.sin(x) + y\n"
    exec(compile(source, "/nowhere/user.py", "exec"), names)
    return names["f"]


BASE = torch.randn(4, 4)
INPUTS = {
    "size": (torch.randn(4, 5), torch.randn(4, 5)),
    "dtype": (torch.randn(4, 4).double(), torch.randn(4, 4)),
    "stride": (torch.randn(4, 4).t(), torch.randn(4, 4)),
    "offset": (torch.randn(5, 4)[1:], torch.randn(4, 4)),
    "memory": (BASE[:, 0], BASE[:, 1]),
    "same": (BASE, BASE),
}


def test_keys_distinguish_inputs():
    seen = []
    with torch.no_grad():
        for arguments in ((torch.randn(4, 4), torch.randn(4, 4)), *INPUTS.values()):
            result, events = compiled(on_line(1), *arguments)
            torch.testing.assert_close(result, torch.sin(arguments[0]) + arguments[1])
            seen += events.looks()
    assert seen == [False] * 7


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "changed",
    [
        lambda: switched(torch.set_default_dtype, torch.float64, torch.float32),
        lambda: switched(torch.use_deterministic_algorithms, True, False),
        lambda: switched(
            torch.set_num_threads, torch.get_num_threads() + 1, torch.get_num_threads()
        ),
        lambda: tc.config.patch(threads=3),
        lambda: torch.autocast("cpu"),
        lambda: torch.no_grad(),
    ],
)  # fmt: skip
def test_keys_distinguish_settings(changed):
    arguments = torch.randn(3, 3), torch.randn(3, 3)
    assert compiled(on_line(1), *arguments)[1].looks() == [False]
    with changed():
        assert compiled(on_line(1), *arguments)[1].looks() == [False]
    assert compiled(on_line(1), *arguments)[1].looks() == [True]


@pytest.mark.parametrize("variable", ["TC_ANYTHING", "ATEN_CPU_CAPABILITY"])
def test_keys_distinguish_variables(variable, monkeypatch):
    arguments = torch.randn(3), torch.randn(3)
    compiled(on_line(1), *arguments)
    monkeypatch.setenv(variable, "avx2")
    assert compiled(on_line(1), *arguments)[1].looks() == [False]


def test_keys_distinguish_graphs():
    x = torch.randn(3, 3)
    functions = [
        lambda x: x * 2.0,
        lambda x: x * 2,
        lambda x: x * 2.0000001,
        lambda x: x / 2.0,
        lambda x: x.sum(0),
        lambda x: x.sum(1),
        lambda x: x.sum([1]),
        lambda x: x[1:],
        lambda x: x[:1],
        lambda x: x.to(torch.float64),
        lambda x: x.to(torch.float16),
        lambda x: checkpoint(torch.sin, x, use_reentrant=False),
        lambda x: checkpoint(torch.cos, x, use_reentrant=False),
        lambda x: checkpoint(lambda x: x * torch.tensor([1.0, 2.0, 3.0]), x, use_reentrant=False),
        lambda x: checkpoint(lambda x: x * torch.tensor([1.0, 2.0, 4.0]), x, use_reentrant=False),
    ]
    for _ in range(2):
        for function in functions:
            result, events = compiled(function, x)
            torch.testing.assert_close(result, function(x))
    assert events.looks() == [True]


# -- keys of graphs on GPUs, which need none -------------------------------------------------------
def key_on(device, *more):
    """The key of a graph whose input is on a device."""
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.output((graph.call_function(torch.add, (x, 1), dict(more)),))
    with FakeTensorMode():
        examples = [torch.empty(4, device=device)]
    return graph_key.key_of(fx.GraphModule({}, graph), examples, {})


def test_keys_distinguish_devices(monkeypatch):
    keys = [key_on(device) for device in ("cpu", "cuda:0", "cuda:1")]
    assert len({key.digest for key in keys}) == 3
    assert key_on("cuda:1").digest == keys[2].digest
    assert ["gpus" in key.parts for key in keys] == [False, True, True]
    assert "gpus" in key_on("cpu", ("device", torch.device("cuda:0"))).parts
    monkeypatch.setattr(graph_key, "gpu_identity", lambda: "another GPU")
    assert key_on("cpu").digest == keys[0].digest
    assert key_on("cuda:0").digest != keys[1].digest


def test_keys_distinguish_the_precision_of_products():
    matmul = torch.backends.cuda.matmul
    set_precision = functools.partial(setattr, matmul, "fp32_precision")
    found = [key_on("cuda:0").digest]
    with switched(set_precision, "tf32", "none"):  # torch's older switch may not be read then
        found.append(key_on("cuda:0").digest)
    for name in ("high", "medium"):
        with switched(torch.set_float32_matmul_precision, name, "highest"):
            found.append(key_on("cpu").digest)
    assert len(set(found)) == len(found)


def test_tensors_of_other_devices_are_refused():
    with pytest.raises(graph_key.Uncached, match="a tensor is on meta"):
        key_on("meta")


def test_keys_distinguish_user_lines():
    arguments = torch.randn(3), torch.randn(3)
    compiled(on_line(1), *arguments)
    assert compiled(on_line(2), *arguments)[1].looks() == [False]
    assert compiled(on_line(1), *arguments)[1].looks() == [True]


def holding(values):
    """Compile a graph that holds a tensor; returns what runs it, the tensor, and the events."""
    graph, held = torch.fx.Graph(), torch.tensor(values)
    x = graph.placeholder("x")
    graph.output((graph.call_function(torch.mul, (x, graph.get_attr("held"))),))
    module = torch.fx.GraphModule({"held": held}, graph)
    with recording() as events, torch.no_grad():
        run = pipeline.inductor(module, [torch.ones(len(values))], pipeline.PROCESS.gate)
    return run, held, events


def test_elements_of_constants_count():
    assert holding([1.0, 2.0, 3.0])[2].looks() == [False]
    assert holding([1.0, 2.0, 4.0])[2].looks() == [False]
    run, held, events = holding([1.0, 2.0, 3.0])
    assert events.looks() == [True]
    held.mul_(10)
    torch.testing.assert_close(run(torch.ones(3))[0], torch.tensor([10.0, 20.0, 30.0]))


def test_large_constants_are_refused():
    _, _, events = holding([1.0] * 100_000)
    assert events.looks() == []
    assert "large constant" in events.why_not()


def test_code_of_the_compiler_counts(monkeypatch):
    arguments = torch.randn(3), torch.randn(3)
    compiled(two_ops, *arguments)
    monkeypatch.setattr(graph_key, "own_code", lambda: "edited")
    assert compiled(two_ops, *arguments)[1].looks() == [False]


# -- what has no entry -----------------------------------------------------------------------------


def test_functions_of_the_users_are_refused():
    @tc.allow_in_graph
    def mine(x):
        return x * 3

    _, events = compiled(lambda x: mine(x) + 1, torch.randn(3))
    assert events.looks() == []
    assert "of the user's" in events.why_not()


def test_operators_of_the_users_are_refused():
    library = torch.library.Library("tc_cache_test", "FRAGMENT")
    library.define("triple(Tensor x) -> Tensor")
    library.impl("triple", lambda x: x * 3, "CompositeExplicitAutograd")
    _, events = compiled(lambda x: torch.ops.tc_cache_test.triple.default(x) + 1, torch.randn(3))
    assert True not in events.looks()
    assert "of the user's" in events.why_not()


@pytest.mark.parametrize("options", [{"fx_graph_cache": False}, {"freezing": True}])
def test_options_that_keep_out(options):
    for _ in range(2):
        with torch.no_grad():
            _, events = compiled(two_ops, torch.randn(3), torch.randn(3), options=options)
        assert events.looks() == []


def test_a_bisected_compile_takes_every_step(monkeypatch):
    x = torch.randn(3), torch.randn(3)
    compiled(two_ops, *x)
    monkeypatch.setattr(pipeline.PROCESS, "gate", Gate({"loops": 1}))
    assert compiled(two_ops, *x)[1].looks() == []


def test_disabled_caches_leave_nothing(folder, monkeypatch):
    monkeypatch.setenv("TC_FORCE_DISABLE_CACHES", "1")
    _, events = compiled(two_ops, torch.randn(3), torch.randn(3))
    assert events.looks() == []
    assert not (folder / KIND).exists()


# -- kills, damage, races --------------------------------------------------------------------------
@pytest.mark.sample(3)
@pytest.mark.parametrize("damage", ["cut", "empty", "flip", "other", "old"])
def test_damaged_entries_are_misses(folder, damage):
    x, y = torch.randn(3), torch.randn(3)
    compiled(two_ops, x, y)
    (entry,) = entries(folder)
    content = entry.read_bytes()
    entry.unlink()
    made = {
        "other": b'{"class": "Path", "fields": {}}',
        "old": b'{"class": "Kept", "fields": {"programme": 1}}',
    }
    if damage in made:
        store.write(KIND, entry.name, made[damage], trace.packed(()))
    else:
        entry.write_bytes(
            {
                "cut": content[:-9],
                "empty": b"",
                "flip": content[:50] + bytes([content[50] ^ 1]) + content[51:],
            }[damage]
        )
    result, events = compiled(two_ops, x, y)
    assert events.looks() == [False]
    torch.testing.assert_close(result, two_ops(x, y))
    assert compiled(two_ops, x, y)[1].looks() == [True]


def test_missing_library_is_built_again(folder):
    x, y = torch.randn(3), torch.randn(3)
    compiled(two_ops, x, y)
    for library in (folder / "lib").rglob("*.so"):
        library.unlink()
    result, events = compiled(two_ops, x, y)
    assert events.looks() == [True]
    torch.testing.assert_close(result, two_ops(x, y))


def checked(x, y):
    tc.reset()
    torch.testing.assert_close(tc.compile(two_ops)(x, y), two_ops(x, y))


def checked_training():
    tc.reset()
    found, expected = steps(tc.compile(same_twice)), steps(same_twice)
    torch.testing.assert_close(found, expected)


@pytest.mark.slow
def test_killed_at_every_step_of_a_compile_with_gradients(folder):
    compiled(lambda x: x.cos(), torch.randn(8))
    step = 0
    while killed_at(step, str(folder), checked_training):
        checked_training()
        for path in entries(folder):
            if step % 2:
                path.unlink()
        step += 1
    assert step >= 6


def train():
    compiled(lambda x: x.cos(), torch.randn(8))
    assert (together(3, checked_training), checked_training()) == ([0] * 3, None)


@pytest.mark.slow
def test_processes_that_train_the_same_at_once(folder):
    # In a process of its own: autograd does not train in forks once it has made threads.
    program = "import runpy, sys; sys.path = sys.argv[2:]; runpy.run_path(sys.argv[1])['train']()"
    subprocess.run([sys.executable, "-c", program, __file__, *sys.path], check=True)


@pytest.mark.slow
def test_killed_at_every_step_of_a_compile(folder):
    x, y = torch.randn(8), torch.randn(8)
    with torch.no_grad():
        compiled(lambda x: x.cos(), x)  # extensions are built once, by another test's kills
        step = 0
        while killed_at(step, str(folder), lambda: checked(x, y)):
            checked(x, y)
            for path in [*entries(folder), *(folder / "lib").rglob("*.so")]:
                if step % 2:
                    path.unlink()  # the next victim writes again
            step += 1
    assert step >= 6


def test_processes_that_compile_the_same_at_once(folder):
    x, y = torch.randn(8), torch.randn(8)
    compiled(lambda x: x.cos(), x)
    assert together(4, lambda: checked(x, y)) == [0] * 4
    checked(x, y)


def test_no_compiler_is_one_sentence_and_eager_where_asked(monkeypatch):
    x, y = torch.randn(8), torch.randn(8)
    monkeypatch.setenv("CC", "no-such-compiler")
    tc.reset()
    with pytest.raises(tc.exc.StageError, match="'no-such-compiler' is not on PATH"):
        tc.compile(two_ops)(x, y)
    tc.reset()
    with tc.config.patch(suppress_errors=True):
        torch.testing.assert_close(tc.compile(two_ops)(x, y), two_ops(x, y))


def test_functions_of_python_are_parts_of_keys():
    """A symbolic number is rounded by Python's own function, which every process finds."""
    assert graph_key._function_name(round) == "round"
    with pytest.raises(graph_key.Uncached, match="a function of the user's"):
        graph_key._function_name(key_on)
