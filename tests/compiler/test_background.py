"""Compiles in the background: calls run eagerly meanwhile, results stay, the switch happens."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from contextlib import contextmanager

import pytest
import torch
from support import own_cache, python

import tc
from tc.compiler import pipeline
from tc.compiler.errors import StageError
from tc.compiler.frontend import background
from tc.compiler.runtime import build

OPTIONS = {"background": True}
X = torch.ones(3)


@pytest.fixture(autouse=True)
def own(tmp_path, monkeypatch):
    monkeypatch.setenv("TC_CACHE_DIR", str(tmp_path))
    tc.reset()
    yield
    background.wait()


@contextmanager
def held(monkeypatch):
    """Stop compiles in the background until the block ends."""
    go, begun, real = threading.Event(), threading.Event(), background._compiled

    def compiled(*args):
        begun.set()
        assert go.wait(60)
        return real(*args)

    monkeypatch.setattr(background, "_compiled", compiled)
    try:
        yield begun
    finally:
        go.set()


def said(events) -> list[str]:
    return [e.payload for e in events if getattr(e, "name", "") == "tc_background"]


def kinds(events) -> list[str]:
    return [e.kind for e in events if isinstance(e, tc.trace.AtenGraph)]


def function(x, w):
    return torch.nn.functional.dropout(torch.tanh(x @ w), 0.5).cumsum(0)


def steps(run, inputs):
    """Results and gradients of two steps."""
    found = []
    for seed in range(2):
        torch.manual_seed(seed)
        result = run(*inputs)
        found += [result, *torch.autograd.grad(result.sum(), inputs)]
    return found


def test_steps_before_during_and_after_the_switch_are_eagers(monkeypatch):
    inputs = [torch.randn(4, 4, requires_grad=True) for _ in range(2)]
    expected, run = steps(function, inputs), tc.compile(function, options=OPTIONS)
    with tc.trace.capture_events() as events:
        with held(monkeypatch) as begun:
            torch.testing.assert_close(steps(run, inputs), expected, rtol=0, atol=0)
            assert begun.wait(60)
            torch.testing.assert_close(steps(run, inputs), expected, rtol=0, atol=0)
            assert said(events) == [] and kinds(events) == []
        background.wait()
        assert said(events) == ["calls run compiled code from now on"]
        assert kinds(events) == ["joint", "forward", "backward"]
        torch.testing.assert_close(steps(run, inputs), expected)
        assert len(kinds(events)) == 3  # nothing is left to compile


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_the_compile_knows_the_modes_of_the_call(mode):
    inputs = [torch.randn(4, 4, requires_grad=True) for _ in range(2)]
    run = tc.compile(function, options=OPTIONS)
    with tc.trace.capture_events() as events, mode():
        torch.manual_seed(0)
        expected = function(*inputs)
        for _ in range(2):
            torch.manual_seed(0)
            found = run(*inputs)
            torch.testing.assert_close(found, expected)
            assert not found.requires_grad and found.is_inference() == expected.is_inference()
            background.wait()
    assert kinds(events) == ["inference"]


def test_autocast_of_the_call(monkeypatch):
    x = torch.randn(8, 8)
    run = tc.compile(lambda x: (x @ x).tanh(), options=OPTIONS)
    with torch.autocast("cpu", torch.bfloat16):
        first = run(x)
        background.wait()
        second = run(x)
    assert first.dtype is second.dtype is torch.bfloat16
    torch.testing.assert_close(second, first)


def test_other_functions_do_not_wait(monkeypatch):
    x = torch.randn(4)
    run = tc.compile(torch.tanh, options=OPTIONS)
    other = tc.compile(lambda x: x.sin() + 1)
    with held(monkeypatch) as begun:
        run(x)
        assert begun.wait(60)
        graphs = tc.compiler.api.graph_stats()["graphs"]
        torch.testing.assert_close(other(x), x.sin() + 1)  # by Python, this time
        assert tc.compiler.api.graph_stats()["graphs"] == graphs
    background.wait()
    torch.testing.assert_close(other(x), x.sin() + 1)
    assert tc.compiler.api.graph_stats()["graphs"] == graphs + 1


def test_one_that_fails_stays_eager_and_says_so(monkeypatch, caplog):
    x = torch.randn(4)
    monkeypatch.setattr(pipeline, "_compile", lambda *a: (_ for _ in ()).throw(ValueError("no")))
    run = tc.compile(lambda x: x.sin() + 1, options=OPTIONS)
    for _ in range(2):
        torch.testing.assert_close(run(x), x.sin() + 1)
        background.wait()
    assert "it runs eagerly, as it was compiled in the background" in caplog.text
    assert len(caplog.records) == 1


def test_without_a_compiler_it_runs_eagerly(monkeypatch, caplog):
    monkeypatch.setattr(
        build, "_compiled", lambda *a: (_ for _ in ()).throw(StageError("runtime.build", "no gcc"))
    )
    run = tc.compile(lambda x: x.sin() + 1.5, options=OPTIONS)
    x = torch.randn(4)
    for _ in range(2):
        torch.testing.assert_close(run(x), x.sin() + 1.5)
        background.wait()
    assert "no gcc" in caplog.text


@pytest.mark.parametrize("why", ["symbolic", "freezing", "sentinel"])
def test_what_is_compiled_before_it_is_called(why):
    x = torch.randn(4, 4)
    run = tc.compile(
        lambda x: x.sin() + 1,
        dynamic=True if why == "symbolic" else None,
        options={**OPTIONS, "freezing": why == "freezing"},
    )
    with (
        tc.trace.capture_events() as events,
        tc.config.patch(sentinel=1.0 if why == "sentinel" else 0.0),
        torch.no_grad(),
    ):
        torch.testing.assert_close(run(x), x.sin() + 1)
    assert len(said(events)) == 1 and why in said(events)[0]
    assert kinds(events) == ["inference"]


def test_settings_that_change_meanwhile_leave_it_eager(monkeypatch):
    run = tc.compile(lambda x: x.sin() + 1, options=OPTIONS)
    x = torch.randn(4)
    with tc.trace.capture_events() as events:
        with held(monkeypatch):
            run(x)
            torch.set_default_dtype(torch.float64)
        try:
            background.wait()
        finally:
            torch.set_default_dtype(torch.float32)
    assert said(events) == ["not compiled: settings of torch changed"]
    torch.testing.assert_close(run(x), x.sin() + 1)


def test_a_reset_meanwhile(monkeypatch):
    run = tc.compile(lambda x: x.sin() + 1, options=OPTIONS)
    x = torch.randn(4)
    with held(monkeypatch) as begun:
        run(x)
        assert begun.wait(60)
        thread = threading.Thread(target=tc.reset)
        thread.start()
        torch.testing.assert_close(run(x), x.sin() + 1)
    thread.join(60)
    for _ in range(2):
        torch.testing.assert_close(run(x), x.sin() + 1)
        background.wait()


def test_threads_that_call_meanwhile():
    inputs = [torch.randn(4, 4, requires_grad=True) for _ in range(2)]
    functions = [lambda x, w, k=k: torch.tanh(x @ w) * k for k in range(4)]
    runs = [tc.compile(f, options=OPTIONS) for f in functions]
    wrong: list[object] = []

    def calls() -> None:
        for _ in range(50):
            for run, f in zip(runs, functions, strict=True):
                found, expected = run(*inputs), f(*inputs)
                grads = [torch.autograd.grad(r.sum(), inputs) for r in (found, expected)]
                if not torch.allclose(found, expected, atol=1e-5) or not all(
                    torch.allclose(a, b, atol=1e-5) for a, b in zip(*grads, strict=True)
                ):
                    wrong.append(found)

    threads = [threading.Thread(target=calls) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_meanwhile(monkeypatch, one_thread):
    x = torch.randn(4)
    run = tc.compile(lambda x: x.sin() + 1, options=OPTIONS)
    with held(monkeypatch) as begun:
        run(x)
        assert begun.wait(60)
        child = os.fork()
        if child == 0:
            os._exit(0 if torch.allclose(run(x), x.sin() + 1) else 3)
        assert os.waitpid(child, 0)[1] == 0


ENDING = """
import threading, torch, tc
functions = [eval(f"lambda x: x.sin() + {k}") for k in range(12)]
for f in functions:
    run = tc.compile(f, options={"background": True})
    torch.testing.assert_close(run(torch.ones(3)), f(torch.ones(3)))
print("end", flush=True)
"""


def test_a_process_that_ends_meanwhile(tmp_path):
    own_cache(tmp_path)
    begun = time.monotonic()
    done = python("-c", ENDING, variables={"TC_TEST_END": "whole"}, warm=True)
    assert (done.returncode, done.stderr) == (0, ""), time.monotonic() - begun


# -- errors of functions that must compile -----------------------------------------------------
def breaking(x):
    print(end="")
    return x.cos()


@contextmanager
def compiling_something(monkeypatch):
    """Have a compile in the background for the length of the block, and a moment after it."""
    with held(monkeypatch) as begun:
        tc.compile(lambda x: x.sin() + 1, options=OPTIONS)(torch.ones(3))
        assert begun.wait(60)
        yield


@pytest.mark.sample(2)
@pytest.mark.parametrize("options", [None, OPTIONS])
@pytest.mark.parametrize("strict", [True, False])
def test_a_graph_break_is_an_error_while_something_else_is_compiled(monkeypatch, options, strict):
    found = []

    def call():
        try:
            with tc.error_on_graph_break(True) if strict else contextlib.nullcontext():
                found.append(tc.compile(breaking, fullgraph=not strict, options=options)(X))
        except Exception as error:
            found.append(error)

    with compiling_something(monkeypatch):
        caller = threading.Thread(target=call)
        caller.start()
        caller.join(0.5)
        assert not found, "it waits"
    caller.join(60)
    assert [type(one) for one in found] == [tc.exc.Unsupported]


def test_others_do_not_wait(monkeypatch):
    with compiling_something(monkeypatch):
        assert torch.equal(tc.compile(breaking)(X), X.cos())


def test_a_compile_that_fails_is_raised_by_the_next_call_under_fullgraph(monkeypatch):
    def fails(*args):
        raise ZeroDivisionError("of a pass")

    monkeypatch.setattr(pipeline.Inductor, "__call__", fails)
    for fullgraph in (True, False):
        compiled = tc.compile(lambda x: x.sin() + 2, fullgraph=fullgraph, options=OPTIONS)
        torch.testing.assert_close(compiled(X), X.sin() + 2)
        background.wait()
        if not fullgraph:
            torch.testing.assert_close(compiled(X), X.sin() + 2)
            continue
        for _ in range(2):
            with pytest.raises(StageError, match="of a pass"):
                compiled(X)
