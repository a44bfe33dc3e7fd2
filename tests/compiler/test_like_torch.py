"""The names and parameters that users of `torch.compile` know, held against the installed torch."""

from __future__ import annotations

import inspect

import pytest
import torch

import tc
from tc.compiler import options
from tc.compiler.options import NO_EFFECT, InductorOptions

#: names of `torch.compiler` that tc lacks -> what docs/settings.md says to use
ELSEWHERE = {
    "load_compiled_function": "saving.md",
    "set_enable_guard_collectives": "ranks",
}
#: functions that users of `torch.compile` call by position, whose parameters have other names here
BY_POSITION = {
    name
    for name in torch.compiler.__all__
    if name.startswith(("keep_", "skip_")) and "_unsafe" in name
}


def parameters(function):
    found = inspect.signature(function).parameters.values()
    return {p.name: (p.kind, p.default) for p in found}


@pytest.fixture
def warned(monkeypatch):
    said = []
    monkeypatch.setattr("tc.trace.warn", said.append)
    options._warn_of_no_effect.cache_clear()
    yield said
    options._warn_of_no_effect.cache_clear()


def test_compile_takes_what_torch_compile_takes():
    assert parameters(torch.compile).items() <= parameters(tc.compile).items()


@pytest.mark.parametrize("name", sorted(set(torch.compiler.__all__) - {"compile", "config"}))
def test_names_of_torch_compiler(name):
    if name in ELSEWHERE:
        assert not hasattr(tc, name), "take it off the list"
        return
    theirs, ours = parameters(getattr(torch.compiler, name)), parameters(getattr(tc, name))
    if name in BY_POSITION:
        assert len(ours) >= len(theirs)
    elif set(theirs) != {"args", "kwargs"}:
        assert set(theirs) <= set(ours)


def test_options_of_the_documentation_are_taken(warned):
    documented = ("epilogue_fusion", "max_autotune", "fallback_random", "shape_padding",
                  "triton.cudagraphs", "trace.enabled", "trace.graph_diagram")  # fmt: skip
    text = inspect.getdoc(torch.compile)
    assert all(f"`{name}`" in text for name in documented)
    InductorOptions.of(None, dict.fromkeys(documented, True))
    InductorOptions.of(None, dict.fromkeys(documented, True))
    assert len(warned) == len(NO_EFFECT), "once each"
    assert all("has no effect: " in line for line in warned)


def test_a_limit_of_recompiles_of_one_call():
    def f(x):
        return x + 1

    graphs = []
    stop = tc.on_graph(graphs.append)
    limited = tc.compile(f, dynamic=False, recompile_limit=2)
    for size in range(2, 7):
        limited(torch.ones(size))
    stop()
    assert len(graphs) == 2
    strict = tc.compile(lambda x: x + 2, dynamic=False, recompile_limit=2, fullgraph=True)
    with pytest.raises(tc.exc.FailOnRecompileLimitHit):
        for size in range(2, 7):
            strict(torch.ones(size))


def test_isolated_calls_share_no_code():
    graphs = []
    stop = tc.on_graph(graphs.append)

    def f(x):
        return x + 1

    try:
        for settings in ({}, {}, {"isolate_recompiles": True}, {"isolate_recompiles": True}):
            tc.compile(f, **settings)(torch.ones(3))
    finally:
        stop()
    assert len(graphs) == 3


def test_an_isolated_region_has_a_limit_of_its_own():
    def f(x):
        return x + 1

    graphs = []
    stop = tc.on_graph(graphs.append)

    def compiled(**settings):
        """Graphs made by calls with four sizes."""
        before, call = len(graphs), tc.compile(f, dynamic=False, **settings)
        for size in (3, 4, 5, 6):
            torch.testing.assert_close(call(torch.ones(size)), torch.full((size,), 2.0))
        return len(graphs) - before

    try:
        assert compiled(recompile_limit=2) == 2
        assert compiled(recompile_limit=3, isolate_recompiles=True) == 3
        assert compiled(recompile_limit=1, isolate_recompiles=True) == 1
        assert compiled(recompile_limit=2) == 0  # as the first one asked
        assert compiled(isolate_recompiles=True) == 4
    finally:
        stop()


@pytest.mark.parametrize(
    "asked",
    [{"mode": 3}, {"options": {3: 1}}, {"recompile_limit": -1}, {"recompile_limit": "a"},
     {"recompile_limit": True}],
    ids=str,
)  # fmt: skip
def test_values_of_other_types_are_refused_in_a_sentence(asked):
    with pytest.raises(tc.exc.OptionError, match=next(iter(asked))):
        tc.compile(torch.sin, **asked)


def test_the_name_of_a_region_is_in_its_trace():
    from tc import trace

    with trace.capture_events() as events:
        tc.compile(lambda x: x + 1, name="step")(torch.ones(3))
    (metrics,) = events.of(trace.Metrics)
    assert metrics.config["name"] == "step"
