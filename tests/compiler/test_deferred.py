"""Backward is compiled when it is first called: once, as part of the compile it belongs to."""

from __future__ import annotations

import gc
import threading
import time
import weakref

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import tc
from tc import trace
from tc.compiler.deferred import Deferred, Work


@pytest.fixture(autouse=True)
def fresh():
    tc.reset()


def product(x, w):
    return (x * w).sin().sum()


def leaf(n=3):
    return torch.arange(1.0, n + 1, requires_grad=True)


class Backward:
    """A compiler of backward graphs that counts, and can be slow or fail."""

    def __init__(self, seconds=0.0, error=None):
        self.calls, self.seconds, self.error = 0, seconds, error

    def __call__(self, gm, example_inputs):
        self.calls += 1
        time.sleep(self.seconds)
        if self.error is not None:
            raise self.error
        return gm.forward


def forward(gm, example_inputs):
    return gm.forward


def gradient(function, x, w):
    return torch.autograd.grad(function(x, w), x)[0]


def test_the_time_of_a_backward_is_reported():
    f = tc.compile(product, backend=tc.aot_backend(forward, Backward(seconds=0.02)))
    with trace.capture_events() as events:
        gradient(f, leaf(), leaf())
    there, back = (one for one in events if isinstance(one, trace.Metrics))
    assert (there.is_forward, back.is_forward) == (True, False)
    assert (back.compile_id, back.co_name) == (there.compile_id, there.co_name)
    assert back.entire_frame_compile_time_s >= 0.02


def test_a_call_without_backward_compiles_none():
    backward = Backward()
    f = tc.compile(product, backend=tc.aot_backend(forward, backward))
    x, w = leaf(), leaf()
    out = f(x, w)
    f(x, w)
    assert backward.calls == 0
    out.backward()
    torch.testing.assert_close(x.grad, gradient(product, leaf(), w))
    gradient(f, x, w)
    assert backward.calls == 1


@pytest.mark.usefixtures("only_new_garbage")
def test_what_it_was_made_of_is_let_go():
    class Graph:
        pass

    graph = Graph()
    known = weakref.ref(graph)
    work = Work(lambda made_of=graph: tuple, tuple, trace.StackFrame("f.py", 1, "f"))
    deferred = Deferred(work)
    assert deferred([1]) == (1,)
    del work, graph
    gc.collect()
    assert known() is None and deferred([2]) == (2,)


def test_events_belong_to_the_compile_of_the_forward():
    f, other = tc.compile(product), tc.compile(lambda x: x.cos().sum())
    x, w = leaf(), leaf()
    out, last = f(x, w), None
    with trace.capture_events() as first:
        last = other(leaf())
    with trace.capture_events() as events:
        worker = threading.Thread(target=out.backward)
        worker.start()
        worker.join()
        last.backward()
    ids = [s.compile_id for s in events.stamped if isinstance(s.event, trace.OutputCode)]
    (second,) = [s.compile_id for s in first.stamped if isinstance(s.event, trace.OutputCode)]
    assert len(ids) == 2 and ids[1] == second and ids[0] != second
    spans = [e for e in events.of(trace.Span) if e.name == "runtime.build"]
    assert {e.args["compile_id"] for e in spans} == set(map(str, ids))
    assert all(e.args["stage"].startswith("backward_compile/inductor_compile/") for e in spans)


def test_threads_share_one_compile():
    backward = Backward(seconds=0.05)
    f = tc.compile(product, backend=tc.aot_backend(forward, backward))
    leaves = [leaf() for _ in range(4)]
    outs = [f(x, leaf()) for x in leaves]
    workers = [threading.Thread(target=out.backward) for out in outs]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert backward.calls == 1
    for x in leaves:
        torch.testing.assert_close(x.grad, gradient(product, leaf(), leaf()))


def test_an_error_names_the_function_and_is_reported():
    backward = Backward(error=ValueError("no such op"))
    f = tc.compile(product, backend=tc.aot_backend(forward, backward))
    out = f(leaf(), leaf())
    with (
        trace.capture_events() as events,
        pytest.raises(tc.exc.BackendCompilerFailed, match="bw_compiler raised ValueError: no such"),
    ):
        out.backward(retain_graph=True)
    (reported,) = events.of(trace.CompileError)
    (stamped,) = [s for s in events.stamped if s.event is reported]
    assert reported.file == __file__ and reported.line == product.__code__.co_firstlineno
    assert stamped.compile_id is not None and reported.stage == "backend"
    backward.error = None
    out.backward()
    assert backward.calls == 2


def test_errors_may_be_suppressed(caplog):
    backward = Backward(error=ValueError("no such op"))
    f = tc.compile(product, backend=tc.aot_backend(forward, backward))
    x, w = leaf(), leaf()
    with tc.config.patch(suppress_errors=True):
        torch.testing.assert_close(gradient(f, x, w), gradient(product, x, w))
    gradient(f, x, w)
    assert backward.calls == 1
    assert "compiling the backward of product" in caplog.text


def test_the_compile_is_not_seen_by_modes_of_the_users():
    class Count(TorchDispatchMode):
        ops = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.ops += 1
            return func(*args, **(kwargs or {}))

    def backward(gm, example_inputs):
        for _ in range(100):
            torch.ones(2).sin()
        return gm.forward

    f = tc.compile(product, backend=tc.aot_backend(forward, backward))
    out = f(leaf(), leaf())
    with Count() as mode:
        out.backward()
    assert 0 < mode.ops < 100


def test_backward_inside_compiled_code():
    @tc.compile
    def step(x, w):
        loss = product(x, w)
        loss.backward()
        return loss.detach() + 1

    x, y, w = leaf(), leaf(), leaf()
    step(x, w)
    product(y, w).backward()
    torch.testing.assert_close(x.grad, y.grad)


def test_a_backward_without_some_gradients_belongs_to_the_compile_of_its_function():
    def f(x, y):
        return x.sin() * y, y.exp()

    x, y = (torch.ones(3, requires_grad=True) for _ in range(2))
    with trace.capture_events() as events:
        first, _ = tc.compile(f)(x, y)
        first.sum().backward()  # the second result has no gradient
    belongs = {one.compile_id for one in events.stamped if isinstance(one.event, trace.AtenGraph)}
    assert len(belongs) == 1 and None not in belongs
