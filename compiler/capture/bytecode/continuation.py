"""How a frame continues after a graph break: by a trampoline, so that the stack stays flat.

A resume function that meets its next break returns a `Continuation` in place of calling the resume
function that follows; `trampoline` calls one after the other, so that no loop deepens the stack.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any


class Continuation:
    """What a resume function that breaks returns: the next resume function and its arguments."""

    __slots__ = ("args", "function")

    def __init__(self, function: Callable[..., Any], *args: Any) -> None:
        self.function = function
        self.args = args


def trampoline(function: Callable[..., Any], *args: Any) -> Any:
    """Call a resume function, then each `Continuation` that it returns; return the final result."""
    result = function(*args)
    while type(result) is Continuation:
        result = result.function(*result.args)
    return result


def raised_here(error: BaseException) -> BaseException:
    """Return an exception of traced code with the traceback of one raised in the caller.

    Opcodes of handlers require a traceback, and crash without one.
    """
    if error.__traceback__ is None:
        frame = sys._getframe(1)
        error.__traceback__ = types.TracebackType(None, frame, frame.f_lasti, frame.f_lineno)
    return error
