"""Writes all calls of graphs that a script made, in order, as one script.

For failures that a graph alone does not show: the state that earlier compiles left is part of them.
"""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Sequence

from tc.minifier import writer
from tc.minifier.answer import Answer
from tc.minifier.case import Case, Input


def sequence_text(cases: Sequence[Case], answer: Answer) -> str:
    """Return a script that compiles and calls each graph; inputs are random numbers."""
    cases = [with_made_inputs(case) for case in cases]
    imports = dict.fromkeys(line for case in cases for line in case.imports())
    setups = dict.fromkeys(case.setup for case in cases if case.setup)
    parts = [*sorted(imports), *setups]
    for number, case in enumerate(cases):
        last = number == len(cases) - 1
        body = writer.body(case, answer if last else Answer("ok"))
        parts += [f"def call_{number}():", textwrap.indent("\n".join(body), "    ")]
    parts += [f"call_{number}()" for number in range(len(cases))]
    return "\n".join(parts) + "\n"


def with_made_inputs(case: Case) -> Case:
    """Return a case whose inputs are random numbers in place of what was recorded."""

    def made(item: Input) -> Input:
        return dataclasses.replace(item, fill="randn") if item.fill == "recorded" else item

    return dataclasses.replace(case, inputs=tuple(map(made, case.inputs)))
