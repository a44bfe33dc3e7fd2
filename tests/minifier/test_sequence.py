"""Graphs in order are reduced as graphs, and written as one script."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch
from minifier_scripts import chain

from tc.minifier import sequence
from tc.minifier.answer import Answer
from tc.minifier.case import Case


def needs(cases: Sequence[Case]) -> bool:
    """Whether two graphs are left, and a product of sines in the last."""
    if len(cases) < 2:
        return False
    return any("$0 + $1" in step.form for step in cases[-1].steps)


def test_graphs_and_calls_that_are_not_needed_go() -> None:
    cases = [chain(4), chain(5), chain(7)]
    reports: list[Sequence[Case]] = []
    left = sequence.reduced(cases, needs, lambda case: case, reports.append)
    assert len(left) == 2 and reports
    assert [len(case.steps) for case in left] == [1, 1]


def test_the_script_calls_each_graph() -> None:
    text = sequence.sequence_text([chain(2), chain(3)], Answer("ok"))
    calls: list[int] = []

    class Compiler:
        @staticmethod
        def compile(f: object) -> object:
            calls.append(1)
            return f

    text = text.replace("import tc\n", "")
    exec(text, {"tc": Compiler, "torch": torch})
    assert calls == [1, 1]


def test_what_the_script_set_of_its_compilers_is_set_as_long_as_it_is_needed() -> None:
    given = ("torch.use_deterministic_algorithms(True)", "tc.config.specialize_int = True")
    cases = [dataclasses.replace(chain(length), settings=given) for length in (2, 3)]
    lines = sequence.sequence_text(cases, Answer("ok")).splitlines()
    assert [lines.count(one) for one in given] == [1, 1]
    assert lines.index(given[0]) < lines.index("def call_0():")

    def fails(some: Sequence[Case]) -> bool:
        return needs(some) and given[0] in sequence.sequence_text(some, Answer("ok"))

    left = sequence.reduced(cases, fails, lambda case: case, lambda some: None)
    assert {text for case in left for text in case.settings} == {given[0]}
