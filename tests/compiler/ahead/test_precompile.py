"""Functions compiled ahead: calls compile nothing, nothing has run, and what is left is said."""

from __future__ import annotations

import os
import random
import signal

import pytest
import torch
from ahead_programs import PROGRAMS, Counting
from support import own_cache

import tc
from tc import trace
from tc.compiler.ahead import precompile as home
from tc.compiler.ahead import workers
from tc.compiler.capture import hook

FAST = ("branches", "values", "no_grad", "object", "partial", "MLP, training", "in place")


@pytest.fixture(autouse=True)
def own(tmp_path, monkeypatch):
    monkeypatch.setenv("TC_CACHE_DIR", str(tmp_path))
    tc.reset()


def called(run, program):
    """Make the calls of a program; returns how many frames that compiles."""
    before = tc.counters["frames"]["total"]
    for inputs in program.calls():
        made = run(*inputs)
        if program.train:
            made.sum().backward()
    return tc.counters["frames"]["total"] - before


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", FAST)
def test_calls_compile_nothing(name):
    program = PROGRAMS[name]
    function = program.make()
    run = tc.compile(function)
    found = tc.precompile(run, program.inputs, sizes=dict(program.sizes) or None)
    assert found.complete, found
    assert called(run, program) == 0
    for inputs in program.calls():
        twins = [one.clone() if torch.is_tensor(one) else one for one in inputs]
        torch.testing.assert_close(run(*inputs), function(*twins))


@pytest.mark.parametrize("name", sorted(set(PROGRAMS) - set(FAST)))
@pytest.mark.slow
def test_calls_of_larger_programs_compile_nothing_either(name):
    program = PROGRAMS[name]
    run = tc.compile(program.make())
    found = tc.precompile(run, program.inputs, sizes=dict(program.sizes) or None)
    assert found.complete is program.complete, found
    if found.complete:
        for inputs in program.calls():
            before = tc.counters["frames"]["total"]
            run(*inputs)
            assert tc.counters["frames"]["total"] == before


def test_nothing_runs_and_nothing_changes():
    module = Counting()
    module.shapes.append(1)
    x = torch.randn(4, 8, requires_grad=True)
    before = {name: one.clone() for name, one in module.state_dict().items()}
    versions = [one._version for one in (*module.parameters(), *module.buffers())]
    states = random.getstate(), torch.get_rng_state()
    assert tc.precompile(tc.compile(module), (x,)).complete
    assert all(torch.equal(one, before[name]) for name, one in module.state_dict().items())
    assert not hasattr(module, "last") and module.shapes == [1]
    assert all(one.grad is None for one in (x, *module.parameters())) and x._version == 0
    assert [one._version for one in (*module.parameters(), *module.buffers())] == versions
    assert vars(x) == {} and random.getstate() == states[0]
    assert torch.equal(torch.get_rng_state(), states[1])


def test_backward_is_compiled_too(monkeypatch):
    from tc.compiler import deferred

    run = tc.compile(lambda x: (x.sin() * x).sum())
    assert tc.precompile(run, "x=4!grad").complete
    monkeypatch.setattr(deferred, "_built", lambda work: pytest.fail("backward is compiled"))
    x = torch.randn(4, requires_grad=True)
    run(x).backward()
    torch.testing.assert_close(x.grad, x.cos() * x + x.sin())


def test_what_follows_a_break_is_left_and_said():
    def function(x):
        y = x.sin()
        print("here")
        return y.cos()

    found = tc.precompile(tc.compile(function), "x=4")
    assert not found.complete and found.graphs == 1 and not found.errors
    assert "what follows" in found.remains[0] and "test_precompile.py" in found.remains[0]
    assert [one.title for one in found.cases[0].compiles[0].breaks]
    assert (
        "left to the first call" in str(found) and "left to the first call" in found._repr_html_()
    )


def test_a_program_that_raises_is_not_half_compiled(monkeypatch):
    warned = []
    monkeypatch.setattr(trace, "warn", warned.append)

    def function(x):
        y = x.sin()
        return y @ torch.ones(3, 3)

    run = tc.compile(function)
    found = tc.precompile(run, "x=2,4|3")
    assert len(found.errors) == 1 and "must have same reduction dim" in found.errors[0]
    assert "\n" not in found.errors[0]
    assert len(hook.cache_entries(function.__code__)) == 1  # of the size that fits
    assert found.cases[1].complete
    assert warned[0].startswith("tc.precompile: x=(2,4): it raises at ")
    with pytest.raises(RuntimeError):
        run(torch.ones(2, 4))
    assert run(torch.ones(2, 3)).shape == (2, 3)


def test_hooks_and_lazy_modules_are_left_to_the_first_call():
    module = torch.nn.Linear(3, 3)
    module.register_forward_pre_hook(lambda module, args: pytest.fail("it runs"))
    found = tc.precompile(tc.compile(module), "input=2,3")
    assert "forward pre hooks of Linear" in found.remains[0]
    lazy = torch.nn.LazyLinear(3)
    found = tc.precompile(tc.compile(lazy), "input=2,3")
    assert not found.complete and lazy.has_uninitialized_params()


def test_code_of_other_sizes_is_used_after_the_recompile_limit():
    def function(x):
        return x * x.shape[0]

    run = tc.compile(function, dynamic=False)
    with tc.config.patch(recompile_limit=2):
        assert tc.precompile(run, "x=3|4").complete
        assert "recompile_limit (2)" in tc.precompile(run, "x=5").remains[0]
        run(torch.ones(7))  # runs eagerly, and is the call that reaches the limit
        before = tc.counters["frames"]["total"]
        assert run(torch.ones(3)).sum() == 9 and run(torch.ones(4)).sum() == 16
        assert tc.counters["frames"]["total"] == before


def test_what_was_prepared_is_dropped_by_a_reset_and_when_definitions_change():
    def function(x):
        return x + 1

    run = tc.compile(function)
    tc.precompile(run, "x=3")
    tc.reset()
    assert not hook.cache_entries(function.__code__)
    tc.precompile(run, "x=3")
    assert not tc.precompile(run, "x=3").graphs  # there is code already
    assert run(torch.ones(3)).sum() == 6


def test_precompiled_code_belongs_to_equal_settings():
    def function(x):
        return x + 1

    tc.precompile(function, "x=3", dynamic=False)
    run, before = tc.compile(function, dynamic=False), tc.counters["frames"]["total"]
    run(torch.ones(3))
    assert tc.counters["frames"]["total"] == before
    tc.compile(function)(torch.ones(3))
    assert tc.counters["frames"]["total"] == before + 1
    with pytest.raises(tc.exc.OptionError, match="the function is compiled"):
        tc.precompile(run, "x=3", dynamic=True)


@pytest.mark.parametrize(
    ("inputs", "says"),
    [
        ("y=3", "missing a required argument: 'x'"),
        ("x=3 y=3", "unexpected keyword"),
        ([], "empty list"),
        (None, "missing a required argument"),
    ],
)
def test_inputs_that_the_function_does_not_take(inputs, says):
    def function(x):
        return x + 1

    with pytest.raises(tc.exc.OptionError, match=says):
        tc.precompile(function, inputs)


def test_functions_of_the_script_stay_in_this_process(monkeypatch):
    def function(x):
        return x + 1

    def refuse(*args):
        pytest.fail("a worker starts")

    monkeypatch.setattr(home, "compiled_by_workers", refuse)
    with tc.config.patch(fx_graph_cache=True):
        found = tc.precompile(function, "x=3|4", workers=2)
        assert found.complete and found.workers == 0
        assert "is not found by its name" in str(found)
        other = tc.precompile(function, "x=5", workers=2, backend="eager")
        assert "tc's own backend" in str(other)
    with tc.config.patch(fx_graph_cache=False):
        assert "cache on disk, which is off" in str(tc.precompile(function, "x=6", workers=2))


def test_workers_fill_the_cache_and_one_that_is_killed_costs_its_case(tmp_path, monkeypatch):
    from ahead_programs import branches

    own_cache(tmp_path)

    started = []
    start = workers.subprocess.Popen

    def popen(command, **settings):
        process = start(command, **settings)
        started.append(process)
        return process

    monkeypatch.setattr(workers.subprocess, "Popen", popen)
    heard = []

    def progress(done, of, text):
        heard.append((done, of))
        if done == 1:
            os.kill(started[0].pid, signal.SIGKILL)

    inputs = "x=12|16|14,16 w=16,4"
    with tc.config.patch(fx_graph_cache=True):
        found = tc.precompile(branches, inputs, workers=1, progress=progress)
    assert found.complete and found.workers == 1 and found.graphs == 3
    assert found.cases[0].compiles[0].from_cache == 1  # by the worker
    assert "SIGKILL" in str(found) and (1, 3) in heard
    assert all(process.poll() is not None for process in started)
