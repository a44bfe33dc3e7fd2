"""Lines of source files, by names that come from a log.

In: a file's name, as a log has it. Out: its lines where the file is here.
"""

from __future__ import annotations

import linecache


def lines_of(file: str) -> list[str]:
    """Return the lines of a file, each with its end; none if it cannot be read."""
    try:
        return linecache.getlines(file)
    except ValueError:  # damage: no file has a name with a null byte
        return []


def line_of(file: str, line: int) -> str:
    """Return a line of a file with its end, counted from 1; "" if there is none."""
    rows = lines_of(file)
    return rows[line - 1] if 1 <= line <= len(rows) else ""
