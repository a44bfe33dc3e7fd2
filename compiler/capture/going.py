"""How a frame goes on behind a graph break: flat, however often a loop breaks.

A resumed function that meets its next break returns a `Going` in place of calling the function
that resumes it there; `go_on` calls one after the other, so that no loop deepens the stack.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Going:
    """What a resumed function returns at a break: the function that goes on, its arguments."""

    __slots__ = ("args", "function")

    def __init__(self, function: Callable[..., Any], *args: Any) -> None:
        self.function = function
        self.args = args


def go_on(function: Callable[..., Any], *args: Any) -> Any:
    """Call a resumed function, and those that go on from its breaks; return what the last does."""
    result = function(*args)
    while type(result) is Going:
        result = result.function(*result.args)
    return result
