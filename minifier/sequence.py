"""Reduces the calls of graphs that a script made, in order, and writes them as one script.

For failures that a graph alone does not show: the state that earlier compiles left is part of them.
"""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Callable, Iterator, Sequence

from tc.minifier import writer
from tc.minifier.answer import Answer
from tc.minifier.case import Case, Input
from tc.minifier.passes import context, inputs, localise, nodes
from tc.minifier.reduce import Pass

Fails = Callable[[Sequence[Case]], bool]
#: those of `reduce.PASSES` that need no recorded values
PASSES: tuple[Pass, ...] = (
    nodes.needed_steps, nodes.delta_debugging, nodes.singles, nodes.fewer_outputs,
    inputs.no_gradients, inputs.smaller_shapes, inputs.merged, context.no_setup,
    context.fewer_options, context.fewer_settings,
)  # fmt: skip


def reduced(
    cases: Sequence[Case],
    fails: Fails,
    learn: Callable[[Case], Case],
    report: Callable[[Sequence[Case]], None],
    error_text: str = "",
) -> list[Case]:
    """Return fewer and smaller graphs that fail alike in the same order.

    Args:
        learn: returns a case with the facts about its values.
        report: is given each result on the way.
        error_text: the compiler's words; an operation that they name is a good guess.
    """

    def named(case: Case, fails: Callable[[Case], bool]) -> Iterator[Case]:
        yield from localise.named_steps(case, fails, error_text)

    left = list(cases)
    for place in reversed(range(len(cases))):
        fewer = left[:place] + left[place + 1 :]
        if fewer and fails(fewer):
            left = fewer
            report(left)
    for place in range(len(left)):
        case = learn(left[place])
        for one in (named, *PASSES):

            def alike(candidate: Case, place: int = place) -> bool:
                if not candidate.steps:
                    return False
                return fails([*left[:place], candidate, *left[place + 1 :]])

            for smaller in one(case, alike):
                case = smaller if smaller.facts else learn(smaller)
                left[place] = case
                report(left)
    return left


def sequence_text(cases: Sequence[Case], answer: Answer) -> str:
    """Return a script that compiles and calls each graph; inputs are random numbers."""
    cases = [with_made_inputs(case) for case in cases]
    imports = dict.fromkeys(line for case in cases for line in case.imports())
    setups = dict.fromkeys(case.setup for case in cases if case.setup)
    given = dict.fromkeys(text for case in cases for text in case.settings)
    parts = [*sorted(imports), *given, *setups]
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
