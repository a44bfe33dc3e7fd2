"""Each setting, option and argument has a row; what it does not take is refused where it is set."""

from __future__ import annotations

import inspect
from dataclasses import fields

import pytest
import torch

import tc
from tc import trace
from tc.compiler.api import GUARD_FILTER
from tc.compiler.core import settings
from tc.compiler.core.settings import FROM_ENVIRONMENT, SETTINGS, check, from_environment
from tc.compiler.errors import OptionError
from tc.compiler.options import Config, config

#: kind -> (values that it takes, values that it does not)
VALUES = {
    settings.FLAG: ((True, False), (1, 0, None, "yes", "True", torch.tensor(True))),
    settings.COUNT: ((0, 8, 1 << 40), (-1, -3, True, 2.0, "x", None)),
    settings.THREADS: ((-1, 0, 8), (-2, True, 2.0, "x", None)),
    settings.SECONDS: ((0, 1, 0.5), (-1, -0.5, float("nan"), float("inf"), "x", True, None)),
    settings.SHARE: (
        (0, 1, 0.01, "1/1000", "0.5", "0"),
        (2, 2.0, -0.1, "x", "1/0", "1000", "1/2/3", "nan", float("nan"), True, None, [1]),
    ),
    settings.ACTIONS: (("report", "eager", "raise"), ("foo", "rais", "", None, 1)),
    settings.CHECKS: (("", "graphs", "stages", "kernels"), ("foo", "kernel", None, 1, True)),
    settings.FUNCTIONS: (
        (set(), {print}, [print, max], frozenset((len,))), (print, {"print"}, None, "print", {1})
    ),
    settings.FUNCTION: ((print, all), (3, "print", [print])),
    SETTINGS["dynamic"]: ((None, True, False), ("yes", 0, 1, "None")),
    SETTINGS["recompile_limit"]: ((None, 0, 3), (-1, True, "3", 2.5)),
    SETTINGS["name"]: ((None, "a name"), (3, b"x", ["x"])),
    SETTINGS["options"]: ((None, {}, {"a": 1}), (["freezing"], "freezing", {1: 2}, 3, True)),
    settings.ANY: ((None, 3), ()),
}  # fmt: skip
#: texts that environment variables of a kind do not take
TEXTS = {
    settings.FLAG: ("yes", "true", "2", "-1"),
    settings.SECONDS: ("soon", "-1", "nan", "inf"),
    settings.SHARE: ("often", "1/0", "2", "-1"),
    settings.CHECKS: ("all", "graph"),
}


def setters(name):
    """Return the ways to set what a name of the table names."""
    home, _, inner = name.partition(".")
    if home == "config":
        yield lambda value: setattr(config, inner, value)
        yield lambda value: config.patch(inner, value)
        yield lambda value: Config(**{inner: value})
    elif home == "options" and inner:
        yield lambda value: tc.compile(torch.neg, options={inner: value})
    else:
        yield lambda value: tc.compile(torch.neg, **{name: value})
        yield lambda value: tc.compile(**{name: value})


def test_all_that_can_be_set_has_a_row():
    own = {f"config.{setting.name}" for setting in fields(Config)}
    options = {f"options.{name}" for name in (*tc.list_options(), GUARD_FILTER)}
    assert set(SETTINGS) == own | options | set(inspect.signature(tc.compile).parameters)
    assert {kind for _, kind in SETTINGS.rows()} == set(VALUES)


@pytest.mark.parametrize("name", SETTINGS)
def test_what_a_setting_takes(name):
    for value in VALUES[SETTINGS[name]][0]:
        check(name, value)


@pytest.mark.parametrize("name", [name for name in SETTINGS if VALUES[SETTINGS[name]][1]])
def test_what_it_does_not_take_is_refused_where_it_is_set(name):
    before = vars(config).copy()
    shown = name.rpartition("options.")[2] if "options." in name else name
    for value in VALUES[SETTINGS[name]][1]:
        for put in setters(name):
            with pytest.raises(OptionError) as refused:
                put(value)
            text = str(refused.value)
            assert shown in text and " takes " in text and f", not {value!r}" in text
            assert "bug" not in text and "\n" not in text
    assert vars(config) == before


@pytest.mark.parametrize("variable", FROM_ENVIRONMENT)
def test_environment_variables_are_refused_alike(variable, monkeypatch):
    for text in TEXTS[FROM_ENVIRONMENT[variable]]:
        monkeypatch.setenv(variable, text)
        with pytest.raises(OptionError, match=f"the variable {variable} takes .*, not '{text}'"):
            Config()
    monkeypatch.setenv(variable, "")
    assert from_environment(variable, "the default") == "the default"


def test_variables_set_what_they_name(monkeypatch):
    given = {"TC_CHECK": "stages", "TC_DISABLE": "1", "TC_FX_GRAPH_CACHE": "0",
             "TC_PROFILE_EAGER": "1", "TC_RANK_CHECK": "2.5", "TC_SENTINEL": "1/7"}  # fmt: skip
    assert set(given) == set(FROM_ENVIRONMENT)
    for variable, text in given.items():
        monkeypatch.setenv(variable, text)
    made = Config()
    assert (made.check, made.disable, made.fx_graph_cache) == ("stages", True, False)
    assert (made.profile_eager, made.rank_check, made.sentinel) == (True, 2.5, "1/7")


def raising(entries):
    raise KeyError("x")


@pytest.mark.parametrize(
    ("keep", "says"),
    [
        (lambda entries: [True], r"returned 1 values for \d+ guards"),
        (lambda entries: None, r"raised TypeError"),
        (raising, r"raised KeyError"),
    ],
)
def test_a_guard_filter_that_fails_is_no_bug_of_the_compiler(keep, says):
    compiled = tc.compile(lambda x, n: x + n, options={"guard_filter_fn": keep})
    with trace.capture_events() as events, pytest.raises(OptionError, match=says) as refused:
        compiled(torch.ones(2), 3)
    assert "bug" not in str(refused.value)
    assert not events.of(trace.CompileError)
