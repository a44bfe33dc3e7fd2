"""Where something is in the user's code: known to all compiles, also where nobody listens."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StackFrame:
    """One line of a user stack.

    Attributes:
        loc: its source text.
        col, end_col: the part of ``loc`` that ran, 0-based UTF-8 byte offsets into it; without an
            end it goes on in the next line. None, too, where nobody asked for it.
    """

    file: str
    line: int
    name: str
    loc: str | None = None
    col: int | None = None
    end_col: int | None = None

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.name}"
