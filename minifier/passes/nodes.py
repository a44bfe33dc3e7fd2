"""Leaves steps out: any subset of a graph is a case, so only the steps a failure needs remain."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tc.minifier.case import Case

Fails = Callable[[Case], bool]


def needed_steps(case: Case, fails: Fails) -> Iterator[Case]:
    """Keep the steps that are needed, found one at a time by binary search over prefixes.

    With what is known to be needed, find the shortest prefix that fails: its last step is needed
    too. Right whenever a failure stays when more steps are kept; what it misses is left to
    `delta_debugging`.
    """
    names = [step.name for step in case.steps]
    needed: list[str] = []
    end = len(names)
    while end:
        if needed and fails(case.keep(needed)):
            yield case.keep(needed)
            return
        low, high = 0, end  # prefixes of length `low` pass, `high` fails
        while high - low > 1:
            middle = (low + high) // 2
            if fails(case.keep([*names[:middle], *needed])):
                high = middle
                yield case.keep([*names[:high], *needed])
            else:
                low = middle
        needed.append(names[high - 1])
        end = high - 1
    if fails(case.keep(needed)):
        yield case.keep(needed)


def delta_debugging(case: Case, fails: Fails) -> Iterator[Case]:
    """Leave out ever smaller runs of steps until none can be missed."""
    size = len(case.steps) // 2
    while size:
        start, shrunk = 0, False
        while start < len(case.steps) and len(case.steps) > 1:
            names = [step.name for step in case.steps]
            smaller = case.keep([*names[:start], *names[start + size :]])
            if smaller.steps and len(smaller.steps) < len(case.steps) and fails(smaller):
                case, shrunk = smaller, True
                yield case
            else:
                start += size
        if size == 1 and not shrunk:
            break
        size = size if shrunk and size == 1 else size // 2


def singles(case: Case, fails: Fails) -> Iterator[Case]:
    """Keep one step of a few: for failures that leaving out a single one hides."""
    if 2 < len(case.steps) <= 5:
        for step in case.steps:
            alone = case.keep([step.name])
            if len(alone.steps) < len(case.steps) and fails(alone):
                yield alone
                return


def bypass(case: Case, fails: Fails) -> Iterator[Case]:
    """Put an earlier value of the same shape in place of a step's: keeps what hangs together."""
    place = 0
    while place < len(case.steps) and len(case.steps) > 1:
        step = case.steps[place]
        fact = case.facts.get(step.name)
        smaller = case
        for ref in reversed(step.refs):
            other = case.facts.get(ref)
            if fact is None or other is None or fact.kind != "tensor":
                continue
            if (fact.shape, fact.dtype) == (other.shape, other.dtype):
                candidate = case.without(step.name, ref)
                if candidate.outputs and fails(candidate):
                    smaller = candidate
                    break
        if smaller is case:
            place += 1
        else:
            case = smaller
            yield case


def fewer_outputs(case: Case, fails: Fails) -> Iterator[Case]:
    """Return only what no step uses, then as few of those as will do."""
    smaller = case.sinks_only()
    if smaller.outputs and smaller.outputs != case.outputs and fails(smaller):
        yield smaller
