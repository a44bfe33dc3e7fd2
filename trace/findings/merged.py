"""Events of one run go in; those that only follow from a graph break come out as part of it.

One cause is one finding: a break that makes a whole function run in Python, that `fullgraph=True`
turns into an error, or that makes capture start over is reported once, with what it led to.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from tc.trace.breakfixes import is_of_iterator
from tc.trace.compiles import LIBRARY
from tc.trace.decisions import other_readings
from tc.trace.findings.advice import OWN_BODY
from tc.trace.findings.model import Event

_REFUSED: Final = re.compile(r"Unsupported|GraphBreak")
IN_LOOP: Final = ", in a loop; its callees are captured separately"  # tc's words
_BEFORE_IT_RUNS: Final = "a graph break before it runs"  # tc's words
#: PyTorch's words: the function waits, or yields, at the break
_SUSPENDED: Final = "Cannot generate resume function for generator"
_GIVEN_UP: Final = "TC109"
_RAISES: Final = "TC131"  # as a skip: the break is all there is to say, and names the exception
_FAILED: Final = "TC900"


Found = Mapping[str, Sequence[Event]]
"""Name of the function in `FINDINGS` -> its events."""


def merged(found: Found) -> Found:
    """Return the events without those that another one is the cause of."""
    breaks, skips, restarts = found["graph_breaks"], found["skips"], found["started_over"]
    of_compile: dict[int, list[Event]] = {}
    for one in breaks:
        of_compile.setdefault(id(one.compiled), []).append(one)
    failed, taken = _with_breaks(found["failures"], of_compile)
    skips, given_up = _with_breaks(skips, of_compile)
    taken |= given_up
    kept = [one for one in breaks if id(one.compiled) not in taken]
    behind = _in_callees(kept)
    kept = [one for one in kept if id(one) not in behind]
    more: dict[int, Event] = {}  # id of a break -> what follows from it
    left, alone = [], []
    given = _given_to_iterate(kept)
    for skip in skips:
        if (skip.compiled.lane.index, skip.where.file, skip.where.line) in given:
            continue
        mine = of_compile.get(id(skip.compiled), ())
        follows = skip.reason.startswith(_BEFORE_IT_RUNS) or skip.code == _RAISES
        if mine and follows and id(skip.compiled) not in taken:
            more[id(mine[-1])] = skip
        else:
            left.append(skip)
    lost: dict[int, float] = {}
    for one in restarts:
        mine = of_compile.get(id(one.compiled), ())
        if mine or id(one.compiled) in taken:
            if mine and id(mine[0]) not in lost:
                lost[id(mine[0])] = one.seconds
        else:
            alone.append(one)
    completed = [_with(one, more.get(id(one)), lost.get(id(one), 0.0)) for one in kept]
    return {
        **found,
        "graph_breaks": completed,
        "failures": failed,
        "skips": left,
        "started_over": alone,
    }


def _in_callees(breaks: Sequence[Event]) -> set[int]:
    """Return the ids of breaks in library code that only another break, of the user's, led to.

    Such code is a frame of its own because the line that calls it runs in Python. The same break,
    found again there, is a happening of that one.
    """
    at_lines: dict[tuple[int, str, int], set[str]] = {}
    for one in breaks:
        if any(not LIBRARY.search(at.file) for at in one.stack):
            place = one.compiled.lane.index, one.where.file, one.where.line
            at_lines.setdefault(place, set()).add(one.reason)
    found = set()
    for one in breaks:
        within = (one.compiled.file, *(at.file for at in one.stack))
        if one.stack and all(LIBRARY.search(file) for file in within):
            above = ((one.compiled.lane.index, at.file, at.line) for at in one.compiled.frames[:-1])
            led = set[str]().union(*(at_lines.get(at, set()) for at in above))
            found |= {id(one)} if led and one.reason not in led else set()
    return found


def _given_to_iterate(breaks: Sequence[Event]) -> set[tuple[int, str, int]]:
    """Return (rank, file, line) of the calls that gave a function an iterator at which it breaks.

    A generator that is written there runs in Python because the loop over it does: the break names
    what to do about both.
    """
    return {
        (one.compiled.lane.index, at.file, at.line)
        for one in breaks
        if is_of_iterator(one.title)
        for at in one.compiled.frames[:-1]
    }


def _with_breaks(
    events: Sequence[Event], of_compile: dict[int, list[Event]]
) -> tuple[list[Event], set[int]]:
    """Return the events, those caused by a break with its fixes, and the compiles of these."""
    found, taken = [], set()
    for one in events:
        mine = of_compile.get(id(one.compiled), ())
        suspended = one.code == _FAILED and _SUSPENDED in one.why
        refused = one.code == _FAILED and _REFUSED.search(one.title)
        caused = one.code == _GIVEN_UP or refused or suspended
        of_loop = [cause for cause in mine if one.reason == f"{cause.reason}{IN_LOOP}"]
        if of_loop:  # as tc reports it: the reason has the title of the break
            fixes = dict.fromkeys((*of_loop[-1].fix, OWN_BODY, *one.fix))
            taken.add(id(one.compiled))
            one = replace(one, fix=tuple(fixes), where=of_loop[-1].where, stack=of_loop[-1].stack)
        elif mine and caused:
            cause = mine[-1]
            taken.add(id(one.compiled))
            fixes = dict.fromkeys(one.fix if suspended else (*cause.fix, *one.fix))
            because = f"; it breaks because {_lower(cause.title)}"
            one = replace(
                one,
                why=f"{cause.title}: {cause.why}" if refused
                else one.why + ("" if cause.title in one.title else because),
                fix=tuple(fixes),
                where=cause.where if cause.where.file else one.where,
                stack=one.stack or cause.stack,
                reference=one.reference or cause.reference,
            )  # fmt: skip
        in_loop = of_loop or (mine and caused and OWN_BODY in one.fix)
        found.append(_with_others(one) if in_loop else one)
    return found, taken


def _with_others(one: Event) -> Event:
    """Return a break in a loop with the other lines of the loop that lead to one, once it is gone.

    Capture has come to none of these.
    """
    others = other_readings(one.where.file, one.where.line)
    if not others:
        return one
    *first, last = (str(line) for line in others[:_NAMED])
    said = f"line {last} reads a value, or reports something"
    if first:
        said = f"lines {', '.join(first)} and {last} read values, or report something"
    return replace(one, why=f"{one.why}; {said}, in the loop as well")


_NAMED: Final = 4


def _lower(text: str) -> str:
    is_name = not text.partition(" ")[0].isalpha()
    return text if is_name else text[:1].lower() + text[1:]


def _with(one: Event, skip: Event | None, lost: float) -> Event:
    if skip is not None:
        one = replace(
            one,
            why=f"{one.why}; because of it, {skip.title}",
            python_calls=skip.python_calls,
            seconds=one.seconds + skip.seconds,
        )
    if not lost:
        return one
    return replace(
        one,
        why=f"{one.why}; capture started over because of it",
        seconds=one.seconds + lost,
    )
