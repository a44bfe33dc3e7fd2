"""Leaves out what surrounds the graph: registered ops, settings, options of the compile call."""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Callable, Iterator

from tc.minifier.case import Call, Case
from tc.minifier.setup_code import definition_names

Fails = Callable[[Case], bool]


def no_setup(case: Case, fails: Fails) -> Iterator[Case]:
    """Register no custom ops, and define nothing else; or as little as possible."""
    statements = list(map(ast.unparse, ast.parse(case.setup).body))
    used = "\n".join([*(step.form for step in case.steps), str(case.call)])
    if statements and "torch.ops." not in used and fails(dataclasses.replace(case, setup="")):
        yield dataclasses.replace(case, setup="")
        return
    for place in reversed(range(len(statements))):
        fewer = statements[:place] + statements[place + 1 :]
        names = definition_names(statements[place])
        needed = any(re.search(rf"\b{name}\b", "\n".join([*fewer, used])) for name in names)
        smaller = dataclasses.replace(case, setup="\n".join(fewer))
        if not needed and fails(smaller):
            statements = fewer
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
