"""Forward and backward on disk: each may be there without the other, and both have to fit."""

from __future__ import annotations

import json

import pytest
import torch
from graph_cache_harness import entries, recorded_steps, recording, running, same_twice, steps

import tc
from tc.compiler.cache.graph_cache import KIND
from tc.compiler.runtime import store


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TC_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("TC_FORCE_DISABLE_CACHES", raising=False)
    with tc.config.patch(fx_graph_cache=True):
        tc.reset()
        yield tmp_path


def forward_and_backward(folder):
    """Return the paths of a training graph's entries."""

    def is_backward(path):
        return json.loads(store.entry(KIND, path.name).content)["fields"]["contract"] is None

    return sorted(entries(folder), key=is_backward)


def test_forward_without_an_entry_is_compiled_with_its_backward(folder):
    expected = steps(same_twice)
    recorded_steps(same_twice)
    forward_and_backward(folder)[0].unlink()
    for hit in (False, True):
        found, events = recorded_steps(same_twice)
        torch.testing.assert_close(found, expected)
        assert events.looks() == [hit]


@pytest.mark.parametrize("which", range(2))
def test_forward_and_backward_of_different_cuts_are_no_pair(folder, which):
    expected = steps(same_twice)
    recorded_steps(same_twice)
    entry = forward_and_backward(folder)[which]
    content, events = store.entry(KIND, entry.name)
    pair = json.loads(content)["fields"]["pair"].encode()
    store.write(KIND, entry.name, content.replace(pair, b"0" * len(pair)), bytes(events))
    for hit in (False, True):
        found, events = recorded_steps(same_twice)
        torch.testing.assert_close(found, expected)
        assert events.looks() == [hit]


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("function", "cast"), [(running, False), (same_twice, False), (same_twice, True)]
)
def test_a_backward_that_nobody_has_compiled_is_compiled_by_itself(folder, function, cast):
    def under_autocast(x, w):
        with torch.autocast("cpu", torch.bfloat16, enabled=cast):
            return compiled_function(x, w)

    compiled_function = function
    expected = steps(under_autocast)
    compiled_function = tc.compile(function)
    with recording():
        steps(under_autocast)
    forward_and_backward(folder)[1].unlink()
    for stages in ({"aot", "codegen"}, set()):
        tc.reset()
        with recording() as events:
            found = steps(under_autocast)
        torch.testing.assert_close(found, expected)
        assert events.looks() == [True]
        assert events.stages() & {"aot", "codegen"} == stages
        assert len(entries(folder)) == 2


def one_size_only(x, w):
    return torch.sgn(x * w).sum() + (x * w).mean()  # the gradient of sgn asks for numbers


def test_backward_of_one_size_is_not_run_for_another():
    compiled = tc.compile(one_size_only)
    for size in (8, 21, 15, 21):
        grads = []
        for run in (one_size_only, compiled):
            w = torch.ones((), requires_grad=True)
            run(torch.linspace(-2, 3, size), w).backward()
            grads.append(w.grad)
        torch.testing.assert_close(*grads)


def partly(function):
    """Compile again; return the gradients of the first output, of the last, and of all."""
    tc.reset()
    found = []
    with recording() as events:
        compiled = tc.compile(function)
        for used in (slice(1), slice(2, 3), slice(None)):
            torch.manual_seed(0)
            x, w = (torch.rand(n, 5, requires_grad=True) for n in (4, 5))
            outputs = compiled(x, w)[used]
            ones = [torch.ones_like(out) for out in outputs]
            found.append(torch.autograd.grad(outputs, [x, w], ones))
    return found, events


def test_a_backward_for_some_outputs_has_an_entry_of_its_own(folder):
    expected, _ = partly(same_twice)
    assert len(entries(folder)) == 4  # forward; backward of the first, the last, all
    for missing in (False, True):
        if missing:
            for path in entries(folder):
                fields = json.loads(store.entry(KIND, path.name).content)["fields"]
                if fields["contract"] is not None and not fields["operations"]:
                    path.unlink()
        found, events = partly(same_twice)
        torch.testing.assert_close(found, expected)
        assert events.looks() == [True]
        assert events.stages() & {"aot", "codegen"} == ({"aot", "codegen"} if missing else set())
        assert len(entries(folder)) == 4
