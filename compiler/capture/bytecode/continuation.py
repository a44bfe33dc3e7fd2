"""How a frame continues after a graph break: by a trampoline, so that the stack stays flat.

A resume function that meets its next break returns a `Continuation` in place of calling the resume
function that follows; `trampoline` calls one after the other, so that no loop deepens the stack.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tc.compiler.capture.bytecode.hidden import hidden


class Continuation:
    """What a resume function that breaks returns: the next resume function and its arguments."""

    __slots__ = ("args", "function")

    def __init__(self, function: Callable[..., Any], *args: Any) -> None:
        self.function = function
        self.args = args


@hidden
def trampoline(function: Callable[..., Any], *args: Any) -> Any:
    """Call a resume function, then each `Continuation` that it returns; return the final result."""
    result = function(*args)
    while type(result) is Continuation:
        result = result.function(*result.args)
    return result
