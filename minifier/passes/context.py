"""Leaves out what surrounds the graph: registered ops, settings, options of the compile call."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

from tc.minifier.case import Call, Case

Fails = Callable[[Case], bool]


def no_setup(case: Case, fails: Fails) -> Iterator[Case]:
    """Register no custom ops."""
    smaller = dataclasses.replace(case, setup="")
    needed = any("torch.ops." in step.form for step in case.steps)
    if case.setup and not needed and fails(smaller):
        yield smaller


def fewer_options(case: Case, fails: Fails) -> Iterator[Case]:
    """Compile with default options."""
    for option in case.call.options:
        left = tuple(one for one in case.call.options if one != option)
        smaller = dataclasses.replace(case, call=Call(case.call.compiler, left))
        if fails(smaller):
            case = smaller
            yield case


def fewer_settings(case: Case, fails: Fails) -> Iterator[Case]:
    """Leave compilers as they are set by default."""
    for setting in case.settings:
        left = tuple(one for one in case.settings if one != setting)
        smaller = dataclasses.replace(case, settings=left)
        if fails(smaller):
            case = smaller
            yield case
