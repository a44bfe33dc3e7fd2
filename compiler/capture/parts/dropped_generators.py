"""Generators that traced code drops before their end: they are closed where Python closes them.

Python closes a generator where the last reference to it is gone. The references to its value are
those of the program (a stack, a local, a container, a bound method), and those of handlers under
way, which hold the arguments of a call until it returns: after each instruction, a value that
nothing but the list of started generators refers to is one that the program has dropped.
"""

from __future__ import annotations

import sys
from types import CodeType
from typing import TYPE_CHECKING, Any, Protocol

from tc.compiler.capture import breaks
from tc.compiler.capture.values.base import Raised, Value
from tc.compiler.capture.values.generators import GeneratorValue

if TYPE_CHECKING:
    from tc.compiler.capture.values.functions import CellValue
    from tc.compiler.capture.values.interfaces import Interpreter


class Frame(Protocol):
    """What is asked of a frame that is interpreted."""

    code: CodeType
    stack: list[Value]
    locals: dict[str, Value]
    cells: dict[str, CellValue]
    returned: Value | None
    parent: Any

    @property
    def t(self) -> Interpreter:
        """The tracer."""


#: references to a generator that only the list of started generators holds: the list's, and that of
#: the argument of ``sys.getrefcount``
_DROPPED = 2


def close_dropped(frame: Frame) -> None:
    """Close the generators that the last instruction of a frame has dropped."""
    started = frame.t.effects.generators
    at = 0
    while at < len(started):
        if sys.getrefcount(started[at]) > _DROPPED:
            _note_holder(started[at], frame)
            at += 1
            continue
        one = started.pop(at)
        assert isinstance(one, GeneratorValue)
        if one.needs_closing and one.is_late:
            started.append(one)  # which keeps the frame from a graph
            return
        if one.needs_closing:
            _close(one, frame)
        elif not one.has_ended:  # it may hold others
            one.has_ended = True
            release(one.frame)  # type: ignore[arg-type]  # it is one that is interpreted
        at = 0


def release(frame: Frame) -> None:
    """Have a frame that returns forget its locals, as Python does, in their order."""
    one: Value | None
    for one in frame.t.effects.generators:
        if isinstance(one, GeneratorValue) and one.borrower is frame:
            one.borrower = None  # the caller's handler lets it go at once
    one = None
    frame.stack.clear()
    names = [name for name in frame.code.co_varnames if name in frame.locals]
    for name in names:
        del frame.locals[name]
        close_dropped(frame)
    for name in frame.code.co_cellvars if frame.parent is not None else ():
        if sys.getrefcount(frame.cells[name]) <= _DROPPED:
            del frame.cells[name]
            close_dropped(frame)


def note_lost(frame: Frame) -> None:
    """Note that an exception left a frame: its traceback holds what the frame held."""
    for one in frame.t.effects.generators:
        if isinstance(one, GeneratorValue):
            one.is_late |= _holds(frame, one)


def _note_holder(one: Value, frame: Frame) -> None:
    """Note which frame a generator belongs to, and that another has dropped it.

    A frame that got it as an argument may drop it while its caller's handler still holds it.
    """
    assert isinstance(one, GeneratorValue)
    if frame.returned is one:
        one.owner = frame.parent
    elif one.owner is not frame:
        held = _holds(frame, one)
        one.is_late |= one.borrower is frame and not held
        if held:
            one.borrower = frame


def _holds(frame: Frame, one: Value) -> bool:
    held = [*frame.stack, *frame.locals.values()]
    held += [
        cell.content for cell in frame.cells.values() if isinstance(cell.content, Value)
    ]
    return any(value is one for value in held)


def _close(one: GeneratorValue, frame: Frame) -> None:
    """Close a generator that was dropped.

    Raises:
        SkipFrame: its code raises, which Python only reports, or breaks the graph.
    """
    try:
        one.close(frame.t)
    except (Raised, breaks.GraphBreak) as cause:
        what = f"{one.describe()} is dropped before its end, and cannot be closed"
        raise breaks.SkipFrame(what) from cause
