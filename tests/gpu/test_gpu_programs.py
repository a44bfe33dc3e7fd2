"""On a GPU: compiled programs agree with eager. `make test-gpu` runs these; elsewhere they skip."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from loop_harness import check, trace
from loop_programs import PROGRAMS
from scatter_samples import CASES

import tc
from tc.compiler import loops
from tc.compiler.codegen.triton.stage import generate
from tc.compiler.core.gate import Gate
from tc.compiler.runtime.triton import load
from tc.compiler.schedule import gpu
from tc.trace import Autotune, OutputCode
from tc.trace.emit import capture_events

pytestmark = pytest.mark.gpu
T = torch.Tensor
GPU = torch.device("cuda:0")


def built(fn: Callable[..., Any], args: Any, mode: str = "fake") -> Callable[..., Any]:
    graph = loops.lower(trace(fn, args, mode), Gate(), GPU)
    graph.verify()
    return load(generate(gpu.plan(graph, Gate()), GPU))


def compare(fn: Callable[..., Any], args: Any, mode: str = "fake", **tolerance: float) -> None:
    want = fn(*args)
    check(built(fn, args, mode)(list(args)), want, **tolerance)


@pytest.mark.parametrize("mode", ["fake", "symbolic"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_program_agrees_with_eager(name: str, mode: str) -> None:
    fn, make = PROGRAMS[name]
    torch.manual_seed(0)
    with GPU:
        compare(fn, make(33), mode, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", PROGRAMS)
def test_symbolic_program_serves_other_sizes(name: str) -> None:
    fn, make = PROGRAMS[name]
    with GPU:
        call = built(fn, make(7), "symbolic")
        for size in (9, 64, 9, 1000):
            args = make(size)
            check(call(list(args)), fn(*args), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("mode", ["fake", "symbolic"])
@pytest.mark.parametrize("name", CASES)
def test_values_are_taken_in_at_computed_places(name: str, mode: str) -> None:
    fn, args = CASES[name]
    with GPU:
        compare(fn, tuple(a.to(GPU) for a in args), mode, rtol=1e-4, atol=1e-3)


def test_atomic_sums_of_many_values() -> None:
    with GPU:
        for dtype in (torch.float32, torch.bfloat16):
            x, y = torch.zeros(50, 64, dtype=dtype), torch.randn(1 << 16, 64).to(dtype)
            places = torch.randint(0, 50, (1 << 16,))
            got = built(lambda x, n, y: x.index_add(0, n, y), (x, places, y))([x, places, y])[0]
            want = x.double().index_add(0, places, y.double()).to(dtype)
            check((got,), want, rtol=2e-2, atol=1e-1)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_large_tensors(dtype: torch.dtype) -> None:
    def fn(x: T, w: T) -> tuple[T, ...]:
        y = F.gelu(x * w)
        return y, F.softmax(x, -1), F.layer_norm(x, (x.shape[-1],), w), x.amax(0), x.argmax(1)

    with GPU:
        compare(fn, (torch.randn(2048, 3000, dtype=dtype), torch.randn(3000, dtype=dtype)))


def test_sums_of_everything() -> None:
    with GPU:
        x = torch.randn(3000, 5000)
        compare(
            lambda x: (x.sum(), x.mean(), x.var(), x.sum(0), x.sum(1)), (x,), rtol=1e-4, atol=1e-2
        )


def test_inputs_that_are_not_aligned() -> None:
    with GPU:
        x = torch.randn(4097)
        call = built(lambda x: x * 2 + 1, (x[1:],))
        for start in (1, 0, 1):
            part = x[start : start + 4096]
            check(call([part]), part * 2 + 1)


def test_a_compiled_function() -> None:
    import tc

    with GPU:
        layer = torch.nn.Sequential(
            torch.nn.LayerNorm(64), torch.nn.Linear(64, 64), torch.nn.GELU()
        )
        x = torch.randn(128, 64)
        with torch.no_grad():
            torch.testing.assert_close(tc.compile(layer)(x), layer(x), rtol=1e-4, atol=1e-4)


def test_compiled_functions_run_triton_kernels() -> None:
    with GPU:
        net = torch.nn.Sequential(
            torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.LayerNorm(128)
        )
        compiled, x = tc.compile(net), torch.randn(32, 64)
        with capture_events() as events:
            found = torch.autograd.grad(compiled(x).square().sum(), net.parameters())
        wanted = torch.autograd.grad(net(x).square().sum(), net.parameters())
    check(found, wanted, rtol=1e-3, atol=1e-3)
    assert all("@triton.jit" in event.code for event in events.of(OutputCode))
    assert len(events.of(OutputCode)) == 2


def test_a_triton_kernel_of_the_users() -> None:
    from user_kernel import add

    with GPU:
        x, y = torch.randn(1000), torch.randn(1000)
        compiled = tc.compile(lambda x, y: add(x.sin(), y) * 2, fullgraph=True)
        check((compiled(x, y),), (x.sin() + y) * 2, rtol=1e-4, atol=1e-4)


def test_max_autotune_agrees_with_eager() -> None:
    with GPU:
        net = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.GELU())
        net = net.to(torch.bfloat16)
        x = torch.randn(512, 256, dtype=torch.bfloat16)
        for mode in ("max-autotune-no-cudagraphs", "max-autotune"):
            tc.reset()
            compiled = tc.compile(net, mode=mode)
            with torch.no_grad(), capture_events() as events:
                for _ in range(3):
                    check((compiled(x),), net(x), rtol=2e-2, atol=2e-2)
            assert events.of(Autotune)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there is one GPU here")
def test_a_program_runs_on_its_own_device() -> None:
    other = torch.device("cuda:1")
    x = torch.randn(1000, device=other)
    with torch.cuda.device(0):
        found = tc.compile(lambda x: (x.sin() + 1).softmax(0))(x)
    assert found.device == other
    check((found,), (x.sin() + 1).softmax(0), rtol=1e-4, atol=1e-4)


def test_launches_are_on_the_callers_stream() -> None:
    with GPU:
        compiled = tc.compile(lambda x: x * 2 + 1)
        x = torch.zeros(1 << 20)
        compiled(x)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.cuda._sleep(50_000_000)
            x.fill_(3)
            found = compiled(x)  # reads what the stream has not written yet
        torch.cuda.current_stream().wait_stream(side)
        check((found,), torch.full_like(x, 7))
