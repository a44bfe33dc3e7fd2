"""The names and parameters that users of `torch.compile` know, held against the installed torch."""

from __future__ import annotations

import inspect
from operator import attrgetter

import pytest
import torch

import tc
from tc.compiler import options
from tc.compiler.core.torch_settings import REASONS, names_of, why_no_effect
from tc.compiler.options import InductorOptions, config

#: names of `torch.compiler` that tc lacks -> what docs/settings.md says to use
ELSEWHERE = {
    "load_compiled_function": "saving.md",
    "PrecompileError": "tc-precompile.md",
    "set_enable_guard_collectives": "ranks",
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
    if name == "precompile":
        pytest.skip("torch 2.14's gives source code, tc's a folder: docs/settings.md")
    if name in ELSEWHERE:
        assert not hasattr(tc, name), "take it off the list"
        return
    theirs, got = parameters(getattr(torch.compiler, name)), parameters(getattr(tc, name))
    if set(theirs) != {"args", "kwargs"}:
        assert set(theirs) <= set(got)


def test_options_of_the_documentation_are_taken(warned):
    documented = ("epilogue_fusion", "max_autotune", "fallback_random", "shape_padding",
                  "triton.cudagraphs", "trace.enabled", "trace.graph_diagram")  # fmt: skip
    text = inspect.getdoc(torch.compile)
    assert all(f"`{name}`" in text for name in documented)
    InductorOptions.of(None, dict.fromkeys(documented, True))
    InductorOptions.of(None, dict.fromkeys(documented, True))
    assert len(warned) == len({*documented} - {*tc.list_options()}) == 2, "once each"
    assert all("has no effect: " in line for line in warned)


def _settings_of_torch(part):
    """Return the settings that torch itself lists, without what its modules have besides them."""
    if part == "_inductor":
        found = attrgetter("_inductor")(torch).list_options()
    else:
        found = list(attrgetter("_dynamo.config")(torch).get_config_copy())
    return [
        name for name in found
        if name != "TYPE_CHECKING" and not any(one.startswith("_") for one in name.split("."))
    ]  # fmt: skip


@pytest.mark.parametrize("part", ["_dynamo", "_inductor"])
def test_every_setting_of_torch_is_known_with_a_reason(part):
    listed = _settings_of_torch(part)
    assert len(listed) > 100 and set(listed) <= set(names_of(part))
    for name in listed:
        assert why_no_effect(part, name)
    assert why_no_effect(part, "no_such_setting") is None
    groups = {name.partition(".")[0] for name in names_of(part)}
    assert {name.rstrip(".") for name in REASONS[part]} <= {*names_of(part), *groups}


def test_every_option_of_inductor_is_taken_and_says_once_if_it_changes_nothing(warned):
    theirs = attrgetter("_inductor.config")(torch).get_config_copy()
    refused = []
    for name in _settings_of_torch("_inductor"):
        for _ in range(2):
            try:
                made = InductorOptions.of(None, {name: theirs.get(name)})
            except tc.exc.OptionError as error:
                refused.append((name, str(error)))
            else:
                assert name in tc.list_options() or made == InductorOptions()
    functions = [name for name, why in refused if "is a function that" in why]
    assert {name for name, _ in refused} == set(functions)  # hooks that this torch has set itself
    taken = set(_settings_of_torch("_inductor")) - set(tc.list_options()) - set(functions)
    assert len(warned) == len(taken) and all("has no effect: " in line for line in warned)
    under_torch = torch.compile(
        torch.neg, backend="tc", options={"coordinate_descent_tuning": True, "cpp.threads": -1}
    )
    torch.testing.assert_close(under_torch(torch.ones(2)), -torch.ones(2))


@pytest.mark.parametrize("name", ["post_grad_custom_post_pass", "pre_grad_custom_pass"])
def test_a_function_that_inductor_would_call_is_refused(name):
    with pytest.raises(tc.exc.OptionError, match=r"tc\.aot_backend gets the ATen graphs"):
        InductorOptions.of(None, {name: lambda graph: graph})


def test_settings_of_dynamo_are_taken_and_come_to_nothing(warned):
    before = dict(vars(config))
    with config.patch(guard_nn_modules=False, verbose=True, recompile_limit=3):
        assert (config.guard_nn_modules, config.recompile_limit) == (False, 3)
        with config.patch("guard_nn_modules", True):
            assert config.guard_nn_modules
        assert not config.guard_nn_modules
    assert vars(config) == before and not hasattr(config, "guard_nn_modules")
    assert warned == [
        "the setting 'guard_nn_modules' has no effect: it is about how PyTorch's Dynamo captures, "
        "and tc captures in its place",
        "the setting 'verbose' has no effect: TC_LOGS=+graph_breaks shows the calls that lead to "
        "a break",
    ]
    older = {"cache_size_limit": 3, "fail_on_cache_limit_hit": True,
             "ignore_logging_functions": {print}}  # fmt: skip
    with config.patch(older):
        assert config.recompile_limit == 3 and config.fail_on_recompile_limit_hit
        assert config.ignore_logger_methods == {print}
    assert vars(config) == before
    with pytest.raises(AttributeError, match=r"'verbose', as torch\._dynamo\.config has: TC"):
        config.verbose  # noqa: B018
    with pytest.raises(tc.exc.OptionError, match="no setting 'guard_nn_module'"):
        config.patch(guard_nn_module=True)


def test_settings_made_for_torch_alone_are_named_once(warned):
    theirs = attrgetter("_dynamo.config")(torch)
    options._warn_of_other_setting.cache_clear()
    changes = {"cache_size_limit": 64, "capture_scalar_outputs": True, "specialize_int": True}
    with theirs.patch(changes), config.patch(specialize_int=True):
        for number in (1.0, 2.0):
            tc.compile(lambda x, number=number: x + number)(torch.ones(2))
    options._warn_of_other_setting.cache_clear()
    tc.compile(lambda x: x + 3)(torch.ones(2))
    assert sorted(warned, reverse=True) == [
        "torch._dynamo.config.recompile_limit = 64 is not read by tc.compile; "
        "tc.config.recompile_limit is 8",
        "torch._dynamo.config.capture_scalar_outputs = True is not read by tc.compile; "
        "tc.config.capture_scalar_outputs is False",
    ]


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
