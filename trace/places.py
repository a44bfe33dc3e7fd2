"""Where something is in the user's code: known to all compiles, also where nobody listens."""

from __future__ import annotations

import re
from dataclasses import dataclass

# A path belongs to the system that wrote the log, whichever reads it.
_WINDOWS = re.compile(r"[A-Za-z]:[\\/]|\\\\|[^/]*\\[^/]*$")


def of_windows(file: str) -> bool:
    """Return whether a path of a log is one of Windows: it has a drive, or backslashes alone."""
    return _WINDOWS.match(file) is not None


def file_name(file: str) -> str:
    """Return the last part of a path of a log, written on any system."""
    return (file.replace("\\", "/") if of_windows(file) else file).rpartition("/")[2]


@dataclass(frozen=True)
class StackFrame:
    """One line of a user stack.

    Attributes:
        loc: its source text.
        col, end_col: the part of ``loc`` that ran, 0-based UTF-8 byte offsets into it; without an
            end it continues in the next line. None, too, where nobody asked for it.
    """

    file: str
    line: int
    name: str
    loc: str | None = None
    col: int | None = None
    end_col: int | None = None

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.name}"
