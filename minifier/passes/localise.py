"""Finds in one compile where values begin to differ: each value of a graph is returned."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence

from tc.minifier.case import Case

Fails = Callable[[Case], bool]
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
    for guess in guesses:
        smaller = case.keep(guess)
        if len(smaller.steps) < len(case.steps) and fails(smaller):
            yield smaller
            return


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
