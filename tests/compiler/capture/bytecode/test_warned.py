"""Warnings name the program's lines at every stack level, whichever frames of tc there are."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import pytest
import torch

import tc


def _helper(level):
    warnings.warn("from a helper", stacklevel=level)


def directly(x, level):
    warnings.warn("directly", stacklevel=level)
    return x + 1


def in_a_helper(x, level):
    _helper(level)
    return x + 1


def after_a_break(x, level):
    y = x + 1
    print(end="")
    warnings.warn("after a break", FutureWarning, stacklevel=level)
    return y + 1


def in_a_helper_after_a_break(x, level):
    y = x + 1
    print(end="")
    _helper(level)
    return y + 1


def where_a_helper_breaks(x, level):
    y = x + 1
    _breaking_helper(level)
    return y + 1


def _breaking_helper(level):
    print(end="")
    warnings.warn(UserWarning("an instance"), stacklevel=level)


def under_filters(x, level):
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("under filters", stacklevel=level)
        return x + 1


class Module(torch.nn.Module):
    """A module that warns."""

    def forward(self, x, level):
        warnings.warn("from a module", stacklevel=level)
        return x + 1


PROGRAMS = (
    directly, in_a_helper, after_a_break, in_a_helper_after_a_break, where_a_helper_breaks,
    under_filters,
)  # fmt: skip


def _called_from_here(function, level):
    return function(torch.ones(2), level)


def _warned(function: Any, level: int) -> list[Any]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        _called_from_here(function, level)
    return [(str(one.message), one.category, one.filename, one.lineno) for one in caught]


@pytest.mark.sample(9)
@pytest.mark.parametrize("level", [0, 1, 2, 3, 4, 5, 10_000])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_a_level_means_the_frame_that_it_means_in_eager(program, level):
    tc.reset()  # a function at its recompile limit runs as Python, which counts frames of tc
    compiled = tc.compile(program, backend="eager")
    runs = [functools.partial(_warned, each, level) for each in (program, compiled)]
    for _ in range(3):
        wanted, found = (run() for run in runs)
        assert found == wanted
        assert len(found) == 1


def test_a_module_names_its_caller_past_the_frames_of_tc():
    module = Module()
    compiled = tc.compile(module, backend="eager")
    wanted, found = (_warned(each, 1) for each in (module, compiled))
    assert found == wanted


def recorded_inside(x):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        _helper(1)
        _helper(2)
        warnings.warn("here", stacklevel=1)
        y = x + 1
    return y, [(str(one.message), one.filename, one.lineno) for one in caught]


def test_what_the_program_records_names_its_lines():
    compiled = tc.compile(recorded_inside, backend="eager")
    for _ in range(2):
        assert compiled(torch.ones(2))[1] == recorded_inside(torch.ones(2))[1]


def unusual(x, kwargs):
    warnings.warn("unusual", **kwargs)
    return x + 1


@pytest.mark.parametrize("kwargs", [{"category": int}, {"stacklevel": "1"}, {"nothing": 1}])
def test_calls_that_are_refused_raise_as_in_eager(kwargs):
    compiled = tc.compile(unusual, backend="eager")
    for each in (unusual, compiled):
        with pytest.raises(TypeError):
            each(torch.ones(2), kwargs)


def test_a_warning_is_shown_once_a_line():
    compiled = tc.compile(directly, backend="eager")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(3):
            _called_from_here(compiled, 2)
    assert len(caught) == 1
