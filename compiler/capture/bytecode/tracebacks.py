"""Tracebacks of exceptions that traced code raised: Python has not raised these itself."""

from __future__ import annotations

import ast
import functools
import sys
import types
from collections.abc import Sequence

#: a line at which an exception was raised, or a call that it left: file, line, the code's name, and
#: the lines and columns of the expression (None where the code holds none); a constant of code
RaisedAt = tuple[
    str, int, str, tuple[int | None, int | None, int | None, int | None] | None
]


def with_traceback(error: BaseException, places: Sequence[RaisedAt]) -> BaseException:
    """Return an exception as if it had been raised at the given places, innermost first.

    They are put above the traceback that it has, and the exception that is being handled becomes
    its context unless it has one, as Python does where it raises.
    """
    handled = sys.exc_info()[1]
    if error.__context__ is None and handled is not error:
        error.__context__ = handled
    for place in places:
        pass_by(error, place)
    return error


def pass_by(error: BaseException, place: RaisedAt) -> None:
    """Put a place above the traceback of an exception, which has left the frame there."""
    frame = _frame_at(place)
    above = types.TracebackType(error.__traceback__, frame, frame.f_lasti, place[1])
    error.__traceback__ = above


def raised_here(error: BaseException) -> BaseException:
    """Return an exception with the traceback of one raised in the caller, if it has none.

    Opcodes of handlers require a traceback, and crash without one.
    """
    if error.__traceback__ is None:
        frame = sys._getframe(1)
        error.__traceback__ = types.TracebackType(
            None, frame, frame.f_lasti, frame.f_lineno
        )
    return error


def without_latest(error: BaseException) -> BaseException:
    """Take the frame that caught an exception out of its traceback; return the exception."""
    if error.__traceback__ is not None:
        error.__traceback__ = error.__traceback__.tb_next
    return error


def _frame_at(place: RaisedAt) -> types.FrameType:
    """Return a frame that has ended at a place: only running code makes frames."""
    try:
        exec(_code_at(place), {})
    except BaseException as error:
        assert (
            error.__traceback__ is not None and error.__traceback__.tb_next is not None
        )
        return error.__traceback__.tb_next.tb_frame
    raise AssertionError("a raise statement has not raised")


@functools.lru_cache(maxsize=256)
def _code_at(place: RaisedAt) -> types.CodeType:
    """Return code that raises at a place."""
    file, line, name, span = place
    statement = ast.Raise(exc=ast.Name("Exception", ast.Load()))
    last, start, end = line, 0, 0
    if span is not None:
        _, *rest = span
        last, start, end = (line, 0, 0) if None in rest else [at or 0 for at in rest]
    for node in ast.walk(statement):
        if isinstance(node, (ast.stmt, ast.expr)):
            node.lineno, node.end_lineno = line, last
            node.col_offset, node.end_col_offset = start, end
    code = compile(ast.Module([statement], []), file, "exec")
    return code.replace(co_name=name, co_qualname=name)
