"""A file name and a line go in; the cell of a notebook that they name comes out, if any.

IPython gives the code of each cell a file name of its own, and remembers the number of the cell.
It is asked only where it is loaded already: elsewhere this costs a look into `sys.modules`.
"""

from __future__ import annotations

import re
import sys
from contextlib import suppress
from typing import Any, Final

from tc.trace.lines import line_of, lines_of

# IPython's own name holds the number; that of its kernel, which debuggers need, a hash instead.
_NUMBERED: Final = re.compile(r"^<ipython-input-(\d+)-\w+>$")
_HASHED: Final = re.compile(r"[/\\]ipykernel_\d+[/\\](\d+)\.py$")


def in_cell(file: str, line: int = 0) -> str:
    """Return `In [3], line 2` for a place in a cell, "" for any other.

    A cell of another kernel whose number nobody knows has the number that its file name has:
    `cell 2658693589, line 2`.
    """
    number = _number(_shell(), file)
    line = typed_line(file, line)
    hashed = None if number else _HASHED.search(file)
    name = f"In [{number}]" if number else f"cell {hashed[1]}" if hashed else ""
    return f"{name}, line {line}" if name and line else name


def place(file: str, line: int) -> str:
    """Return `In [3], line 2` or `/home/me/model.py:6`."""
    return in_cell(file, line) or f"{file}:{line}"


def source_in_cell(file: str, line: int) -> str:
    """Return the text of a line of a cell of this process, "" for any other place."""
    return line_of(file, line).rstrip("\n") if _number(_shell(), file) else ""


def typed_line(file: str, line: int) -> int:
    """Return the line of a cell, as its editor counts, from the line that Python counts.

    IPython drops empty lines at the start, and joins magics that go over several lines. A line of
    any other file stays as it is.
    """
    shell = _shell()
    number = _number(shell, file)
    if not number or not line:
        return line
    typed: list[str] = []
    with suppress(Exception):
        typed = shell.history_manager.input_hist_raw[int(number)].splitlines()
    ran = lines_of(file)
    if len(typed) == len(ran):
        return line
    from difflib import SequenceMatcher  # here, because few processes have cells

    old, new = ([text.strip() for text in rows] for rows in (ran, typed))
    for block in SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks():
        if block.a <= line - 1 < block.a + block.size:
            return line - block.a + block.b
    return line


def _shell() -> Any:
    """Return the running IPython, or None; never imports it."""
    asked = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return asked() if asked else None


def _number(shell: Any, file: str) -> str:
    """Return the number of the cell that ran last under a file name, "" where it is no cell."""
    with suppress(Exception):  # a shell of another make may lack any of it
        named = shell.compile.format_code_name(file)
        number = re.search(r"\d+", named[1]) if named else None
        if number:
            return number[0]
    numbered = _NUMBERED.match(file)
    return numbered[1] if numbered else ""
