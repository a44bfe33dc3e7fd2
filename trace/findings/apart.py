"""Code that is compiled by itself, because its caller runs in Python."""

from __future__ import annotations

import re
from collections.abc import Iterable, Set
from itertools import takewhile
from typing import Final

from tc.trace.compiles import LIBRARY, Compile, Frame
from tc.trace.findings.merged import IN_LOOP
from tc.trace.findings.model import Cause, Recompile
from tc.trace.findings.remedies import subject_about
from tc.trace.ids import plain_function
from tc.trace.recipes import Kind, Place


def functions_of(compiles: Iterable[Compile]) -> set[tuple[str, str]]:
    """Return (file, function) of all that was compiled."""
    return {(one.file, last_name(one.original)) for one in compiles}


def functions_above(compiled: Compile) -> set[tuple[str, str]]:
    """Return (file, function) of a compile, and of all that called it."""
    callers = {(one.file, last_name(plain_function(one.name))) for one in compiled.frames}
    return callers | functions_of([compiled])


#: torch.compile's wrapper of a function, above what it compiles
_WRAPPER: Final = re.compile(r"[/\\]torch[/\\]_dynamo[/\\]eval_frame\.py$")


def calls_of(compiled: Compile) -> tuple[Frame, ...]:
    """Return the frames above the wrapper of what was compiled; all but its own if it has none.

    PyTorch leaves frames out below that.
    """
    above = tuple(takewhile(lambda one: not _WRAPPER.search(one.file), compiled.frames))
    return above if len(above) < len(compiled.frames) else above[:-1]


def is_called(
    compiled: Compile, known: Set[tuple[str, str]], in_python: Iterable[Compile] = ()
) -> bool:
    """Whether a compile is of library code that a function which is compiled as well calls.

    It then is a frame of its own because its caller runs in Python at that call.

    Args:
        known: (file, function) of all that was compiled.
        in_python: what was given up because of a graph break. PyTorch leaves two frames out of a
            stack, and with them the caller: what was called from the same place is recognised.
    """
    if not LIBRARY.search(compiled.file):
        return False
    callers = functions_above(compiled)
    if any(one in known and not LIBRARY.search(one[0]) for one in callers):
        return True
    mine = calls_of(compiled)
    return any(
        one.lane == compiled.lane and one.order < compiled.order and calls_of(one) == mine
        for one in in_python
    )


def is_apart(one: Recompile, lead: Cause, in_python: Set[tuple[str, str]]) -> bool:
    """Whether an attribute of a module differs because its caller, which runs in Python, has many.

    A caller that is captured has the attributes of each of its modules in its graph, and what it
    gives each of them.

    Args:
        in_python: (file, function) of what else was given up because of a graph break.
    """
    is_cut = not one.compiled.noted(
        "tc_recompile"
    )  # PyTorch leaves out the caller: a `forward`, too
    subject = subject_about(lead, one.compiled.alias or one.compiled.function)
    is_setting = subject.kind in (Kind.STRING, Kind.CONSTANT, Kind.OBJECT)
    is_given = subject.kind in (Kind.DTYPE, Kind.NDIM) and subject.place is Place.LOCAL
    return (is_given or (is_setting and subject.place is Place.MODULE)) and (
        has_caller_in(one, in_python) or (is_cut and bool(functions_of([one.compiled]) & in_python))
    )


def has_caller_in(one: Recompile, in_python: Set[tuple[str, str]]) -> bool:
    """Whether a function that another one calls is compiled apart, because that runs in Python.

    What it is called with is made there: no program can do anything to it before the first call.
    """
    callers = {(of.file, last_name(plain_function(of.name))) for of in one.compiled.frames[:-1]}
    return bool(callers & in_python)


def other_than(compiled: Compile, given_up: Iterable[Compile]) -> set[tuple[str, str]]:
    """Return (file, function) of what was given up, without the function of a compile itself.

    Several methods of a file may share its name.
    """
    mine = compiled.file, compiled.line
    return functions_of(one for one in given_up if (one.file, one.line) != mine)


def gave_up(compiled: Compile) -> bool:
    """Whether a function runs in Python because of a graph break, its callees apart."""
    skips = (str(note.data.get("reason") or "") for note in compiled.noted("tc_frame_skipped"))
    return compiled.given_up is not None or any(one.endswith(IN_LOOP) for one in skips)


def last_name(function: str) -> str:
    """The name of a function without those of what it stands in."""
    return function.rpartition(".")[2]
