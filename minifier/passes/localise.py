"""Guesses which steps are to blame, so that few questions are needed where a guess is right.

Where values are wrong, one compile that returns all of them shows where they begin to differ; a
crash may say what it was about.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from tc.minifier.case import Case
from tc.minifier.passes.inputs import tiny

Fails = Callable[[Case], bool]
Names = Sequence[str]
DifferingOutputs = Callable[[Case], Sequence[int]]
TRIED = 3


def first_wrong_steps(case: Case, fails: Fails, differing: DifferingOutputs) -> Iterator[Case]:
    """Keep the steps whose values are wrong although those they take are right.

    Returning every value changes what is fused and reused, so this is a guess; what it does not
    find is left to the search.
    """
    if len(case.steps) < 2:
        return
    names = [step.name for step in case.steps if case.is_tensor(step.name)]
    exposed = dataclasses.replace(case, outputs=tuple(names))
    wrong = {names[place] for place in differing(exposed) if place < len(names)}
    roots = [name for name in names if name in wrong and not wrong & taken(case, name)]
    guesses = [[name] for name in roots[:TRIED]]
    if len(roots) > 1:
        guesses.append(roots)
    yield from _first_that_fails(case, guesses, fails)


def _first_that_fails(case: Case, guesses: Sequence[Names], fails: Fails) -> Iterator[Case]:
    """Keep one set of steps alone; the first on single numbers, if it fails there as well."""
    sets = [case.keep(guess) for guess in guesses]
    for smaller in [*map(tiny, sets[:1]), *sets]:
        if len(smaller.steps) < len(case.steps) and fails(smaller):
            yield smaller
            return


def named_steps(case: Case, fails: Fails, error_text: str) -> Iterator[Case]:
    """Keep a step whose op the compiler's error names; errors print much, so rare ops go first."""
    words = set(re.findall(r"[a-z_]+[a-z0-9]*", error_text))
    often = Counter(called(step.form) for step in case.steps)
    named = [step for step in case.steps if called(step.form) in words]
    rare = sorted(named, key=lambda one: often[called(one.form)])[:TRIED]
    yield from _first_that_fails(case, [[step.name] for step in rare], fails)


def called(form: str) -> str:
    """What a step calls: ``tanh`` of ``torch.tanh($0)`` and of ``$0.tanh()``; else nothing."""
    found = re.match(r"(?:[\w$]+\.)*(\w+)\(", form)
    return found[1] if found else ""


def taken(case: Case, name: str) -> set[str]:
    """The values that a step takes, through tuples and numbers too."""
    makers = {step.name: step for step in case.steps}
    found: set[str] = set()
    todo = list(makers[name].refs)
    while todo:
        ref = todo.pop()
        if ref in found:
            continue
        found.add(ref)
        if ref in makers and not case.is_tensor(ref):
            todo.extend(makers[ref].refs)
    return found
