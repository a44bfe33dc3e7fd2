"""Settings: changed for a block or a function, and back; names that do not exist."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

import tc
from tc.compiler import api
from tc.compiler.core.torch_settings import why_no_effect
from tc.compiler.errors import OptionError
from tc.compiler.options import VARIABLES, InductorOptions, Options, config, settings_changed
from tc.trace import Metrics, OutputCode
from tc.trace.emit import capture_events


def test_patch_as_block_and_as_decorator_nested():
    before = config.recompile_limit

    @config.patch("recompile_limit", 3)
    def inner():
        with config.patch({"recompile_limit": 4}, suppress_errors=True):
            assert (config.recompile_limit, config.suppress_errors) == (4, True)
        return config.recompile_limit

    assert [inner(), inner()] == [3, 3]
    assert (config.recompile_limit, config.suppress_errors) == (before, False)
    with pytest.raises(ZeroDivisionError), config.patch(recompile_limit=1):
        raise ZeroDivisionError
    assert config.recompile_limit == before


def test_older_names_of_torch_mean_the_same():
    with config.patch(cache_size_limit=2):
        assert config.recompile_limit == config.cache_size_limit == 2


def test_random_numbers_are_always_in_the_order_of_eager():
    with config.patch(fallback_random=True):
        x = torch.rand(100, requires_grad=True)
        compiled = tc.compile(torch.nn.functional.dropout, options={"fallback_random": True})
        torch.manual_seed(0)
        got = compiled(x)
        torch.manual_seed(0)
        assert torch.equal(got == 0, torch.nn.functional.dropout(x) == 0)


def test_modes_are_names_of_options():
    modes = tc.list_mode_options()
    assert modes["max-autotune"] == tc.list_mode_options("max-autotune")
    for name in {name for options in modes.values() for name in options}:
        assert name in tc.list_options() or why_no_effect("_inductor", name)
    for mode, options in modes.items():
        assert InductorOptions.of(mode, {}) == InductorOptions.of(None, options)
        assert torch.equal(tc.compile(torch.neg, mode=mode)(torch.ones(3)), -torch.ones(3))


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"options": {"max_autotun": True}}, "did you mean 'max_autotune'"),
        (
            {"options": {"cpp.threads": "2"}},
            "'cpp.threads' takes a number of threads, or 0 or -1 for torch's own, not '2'",
        ),
        ({"options": {"cpp_threads": 2}}, "did you mean 'cpp.threads'"),
        ({"options": {"max-autotune": 1}}, "takes True or False, not 1"),
        ({"mode": "max-autotun"}, "did you mean 'max-autotune'"),
        ({"mode": "max-autotune", "options": {"freezing": True}}, "not both"),
    ],
)
def test_options_that_mean_nothing_are_refused_at_once(settings, says):
    with pytest.raises(RuntimeError, match=says):
        tc.compile(torch.neg, **settings)


def test_kernels_use_the_threads_asked_for():
    x = torch.randn(64, 4096)

    def source(**options):
        tc.reset()
        with capture_events() as events:
            assert torch.allclose(tc.compile(lambda x: x.exp(), **options)(x), x.exp())
        return events.of(OutputCode)[0].code

    with config.patch(threads=3):
        assert "num_threads(3)" in source()
        assert "num_threads(2)" in source(options={"cpp.threads": 2})
    assert "num_threads" not in source(options={"cpp.threads": 1})


def test_unknown_names_are_refused_with_the_nearest():
    for change in (
        lambda: config.patch(recompile_limt=1),
        lambda: setattr(config, "recompile_limt", 1),
    ):
        with pytest.raises(OptionError, match="recompile_limit"):
            change()
    assert not hasattr(config, "recompile_limt")


def test_a_backend_with_settings_compiles_as_compile_would() -> None:
    taken: list[dict[str, Any]] = []

    def backend(gm: Any, inputs: Any, **settings: Any) -> Any:
        taken.append(settings)
        return gm.forward

    for settings in ({"mode": "max-autotune"}, {"options": {"level": 3}}, {}):
        mode, options = settings.get("mode"), settings.get("options")
        chosen = api.with_settings(backend, mode, options)
        tc.compile(lambda x: x + 1, backend=chosen)(torch.ones(2))
    assert taken == [{"mode": "max-autotune"}, {"options": {"level": 3}}, {}]
    default = api.with_settings("inductor", None, {"freezing": True, "guard_filter_fn": any})
    assert default.keywords["options"].freezing
    with pytest.raises(OptionError, match="no mode 'fast'"):
        api.with_settings("inductor", "fast", None)


def test_what_is_not_at_its_default_is_reported(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    plain = Options(lambda graph, inputs: graph, "mine")
    assert settings_changed(plain) == {}
    monkeypatch.setenv("TC_BISECT", "3")
    asked = replace(
        plain,
        dynamic=True,
        extra=(("speed", {"much"}),),
        inductor=InductorOptions(triton_cudagraphs=True),
    )
    with config.patch(recompile_limit=3, reorderable_logging_functions={print}):
        assert settings_changed(asked) == {
            "dynamic": (True, None),
            "options.triton.cudagraphs": (True, False),
            "options.speed": (["much"], None),
            "config.recompile_limit": (3, 8),
            "config.reorderable_logging_functions": (["print"], []),
            "env.TC_BISECT": ("3", None),
        }


def test_settings_are_in_the_metrics_of_a_compile():
    with capture_events() as reported, config.patch(recompile_limit=3):
        tc.compile(lambda x: x + 1, fullgraph=True)(torch.ones(2))
    (metrics,) = [event for event in reported if isinstance(event, Metrics)]
    assert metrics.config["backend"] == "inductor"
    assert (metrics.config["fullgraph"], metrics.config_defaults["fullgraph"]) == (True, False)
    assert metrics.config_defaults["config.recompile_limit"] == 8
