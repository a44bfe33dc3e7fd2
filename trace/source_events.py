"""Which lines of the user's functions a compile was made of."""

from __future__ import annotations

from dataclasses import dataclass

from tc.trace.events import Fact
from tc.trace.kinds import Kind


@dataclass(frozen=True)
class FunctionLines:
    """A function of the user's own files, as far as capture went through it.

    Attributes:
        line: number of the first line of ``text``, its source.
        lines: numbers of the lines that hold code.
        traced: those of them that capture went through: they are in the graph, or were worked out
            while it was made.
    """

    file: str
    function: str
    line: int
    text: str
    lines: tuple[int, ...]
    traced: tuple[int, ...]


@dataclass(frozen=True)
class SourceLines(
    Fact, wire=Kind("tc_source", "your functions, and the lines gone through", "capture")
):
    """The user's functions that one compile went through."""

    functions: tuple[FunctionLines, ...]
