"""`tc.compile` with GPU kernels: all of the pipeline, with Triton's interpreter for a GPU."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from kills import together
from torch import fx

import tc
from tc.compiler import pipeline
from tc.compiler.core.tune import Tuner
from tc.compiler.devices import gpus
from tc.trace import Autotune, Cache, OutputCode, Span
from tc.trace.emit import capture_events

CPU = torch.device("cpu")


@pytest.fixture
def on_gpu(interpreter, monkeypatch):
    """Kernels are made for a GPU, which is the CPU here."""
    tc.reset()
    monkeypatch.setattr(pipeline, "gpu_of", lambda module: CPU)
    with tc.config.patch(fx_graph_cache=False):
        yield


def test_inference_and_training_run_triton_kernels(on_gpu):
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.LayerNorm(16))
    compiled = tc.compile(net)
    x = torch.randn(4, 8)
    with torch.no_grad(), capture_events() as events:
        torch.testing.assert_close(compiled(x), net(x))
    assert "@triton.jit" in events.of(OutputCode)[0].code
    loss = lambda f: f(x).square().sum()  # noqa: E731
    wanted = torch.autograd.grad(loss(net), net.parameters())
    with capture_events() as events:
        found = torch.autograd.grad(loss(compiled), net.parameters())
    assert len(events.of(OutputCode)) == 2  # forward and backward
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


def test_dynamic_sizes_and_random_numbers(on_gpu):
    soft = tc.compile(lambda x: F.softmax(x * 2, -1), dynamic=True)
    for size in (5, 9, 33):
        x = torch.randn(3, size)
        torch.testing.assert_close(soft(x), F.softmax(x * 2, -1))
    with tc.config.patch(fallback_random=False):
        kept = tc.compile(lambda x: F.dropout(x, 0.25, True))(torch.ones(4000))
    tc.reset()
    assert abs((kept == 0).float().mean() - 0.25) < 0.03


def test_max_autotune_takes_what_is_fastest(on_gpu, monkeypatch):
    class Memory(dict):
        def read(self, kind, key):
            return self.get(key)

        def write(self, kind, key, content):
            self[key] = content
            return True

    def measure(ways, rounds):
        for way in ways.values():
            way()
        return {name: float(number == 0) for number, name in enumerate(ways)}

    memory = Memory()
    monkeypatch.setattr(pipeline, "gpu_tuner", lambda device: Tuner(memory, "m", True, measure))
    net = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU())
    compiled = tc.compile(net, mode="max-autotune-no-cudagraphs")
    x = torch.randn(70, 16)
    with torch.no_grad(), capture_events() as events:
        torch.testing.assert_close(compiled(x), net(x), rtol=1e-4, atol=1e-4)
    assert "tl.dot(" in events.of(OutputCode)[0].code
    reported = [event for event in events.of(Autotune) if event.question.startswith("mm ")]
    assert reported[0].chosen.startswith("triton")
    assert memory


@pytest.fixture
def on_disk(on_gpu, one_thread, tmp_path, monkeypatch):
    """Programs are kept, in a folder of the test's."""
    monkeypatch.setenv("TC_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("TC_FORCE_DISABLE_CACHES", raising=False)
    with tc.config.patch(fx_graph_cache=True):
        yield tmp_path


def compiled_again(function, *args, **settings):
    """The result of a function compiled as by another process; whether it was found; the code."""
    tc.reset()
    with capture_events() as events:
        result = tc.compile(function, **settings)(*args)
    stages = {event.name for event in events if isinstance(event, Span)}
    hits = [event.hit for event in events.of(Cache)]
    assert hits and all((stage in stages) != hits[0] for stage in ("aot", "schedule", "codegen"))
    return result, hits, events


def test_programs_are_found_on_disk(on_disk):
    x = torch.randn(6, 300)
    function = lambda x: F.softmax(x * 2, -1)  # noqa: E731
    for expected in (False, True):
        result, hits, events = compiled_again(function, x)
        torch.testing.assert_close(result, function(x))
        assert hits == [expected]
        assert "@triton.jit" in events.of(OutputCode)[0].code


def test_another_process_finds_a_program(on_disk):
    x = torch.randn(6, 300)
    function = lambda x: x.exp().sum(1)  # noqa: E731
    compiled_again(function, x)

    def second():
        result, hits, _ = compiled_again(function, x)
        torch.testing.assert_close(result, function(x))
        assert hits == [True]

    assert together(1, second) == [0]


def test_programs_with_gradients_are_found_on_disk(on_disk):
    x = torch.randn(6, 30, requires_grad=True)
    function = lambda x: F.layer_norm(x.sin(), (30,))  # noqa: E731
    for expected in (False, True):
        result, hits, _ = compiled_again(function, x)
        wanted = torch.autograd.grad(function(x).square().sum(), x)
        torch.testing.assert_close(torch.autograd.grad(result.square().sum(), x), wanted)
        assert hits == [expected]


def test_what_was_chosen_is_kept_with_the_program(on_disk, monkeypatch):
    def measure(ways, rounds):
        return {name: float(number != 2) for number, name in enumerate(ways)}

    def nowhere(device):
        return Tuner(Nowhere(), "m", True, measure)

    monkeypatch.setattr(pipeline, "gpu_tuner", nowhere)
    x, function = torch.randn(3000), lambda x: x.sin() * 3
    mode = "max-autotune-no-cudagraphs"
    _, _, first = compiled_again(function, x, mode=mode)
    monkeypatch.setattr(pipeline, "gpu_tuner", lambda device: pytest.fail("asked again"))
    _, hits, second = compiled_again(function, x, mode=mode)
    assert hits == [True]
    assert first.of(OutputCode)[0].code == second.of(OutputCode)[0].code
    (chosen,) = first.of(Autotune)
    assert chosen.chosen != next(iter(chosen.seconds))


class Nowhere:
    """Keeps nothing."""

    def read(self, kind, key):
        return None

    def write(self, kind, key, content):
        return False


def graph_on(*devices):
    """A graph of which each input's fake is on the next device."""
    graph = fx.Graph()
    for k, device in enumerate(devices):
        graph.placeholder(f"x{k}").meta["val"] = type(
            "Fake", (torch.Tensor,), {"device": torch.device(device)}
        )()
    graph.output(())
    return fx.GraphModule({}, graph)


@pytest.mark.parametrize(
    ("devices", "gpu"),
    [
        (("cpu", "cpu"), None),
        (("cuda:0", "cuda:0"), "cuda:0"),
        (("cpu", "cuda:1"), "cuda:1"),
        (("cuda:0", "cuda:1"), None),
        ((), None),
    ],
)
def test_a_graph_has_kernels_for_the_one_gpu_its_tensors_are_on(devices, gpu, monkeypatch):
    monkeypatch.setattr(gpus, "triton_available", lambda: True)
    assert gpus.gpu_of(graph_on(*devices)) == (gpu and torch.device(gpu))
    monkeypatch.setattr(gpus, "triton_available", lambda: False)
    with capture_events() as events:
        assert gpus.gpu_of(graph_on(*devices)) is None
    assert [event.name for event in events] == (["tc_no_gpu_kernels"] if gpu else [])
