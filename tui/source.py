"""A place in a source file goes in; the lines around it, or the command that edits it, come out."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from rich.cells import cell_len

from tc.trace.findings import Where
from tc.tui.lines import Line, clean, line

AROUND: Final = 2
_LARGEST: Final = 8 << 20
_BY_COLON: Final = ("code", "codium", "cursor", "subl", "zed", "hx")


def excerpt(where: Where) -> list[Line]:
    """Show the line with its neighbours and a caret; what the trace itself knows, if no more.

    A file that has changed since is not quoted: its line would not be the one meant.
    """
    quoted = where.source.strip()
    rows = _rows(where.file) if where.line else []
    known = rows[where.line - 1] if 0 < where.line <= len(rows) else None
    if known is not None and quoted and quoted not in known:
        return [*_quoted(where, quoted), line(("      the file has changed since", "dim"))]
    if known is None:
        return _quoted(where, quoted) if quoted else []
    shown: list[Line] = []
    first = max(where.line - AROUND, 1)
    last = min(where.line + AROUND, len(rows))
    for number in range(first, last + 1):
        here = number == where.line
        mark = ("▸", "mark") if here else " "
        text = clean(rows[number - 1])
        shown.append(line(mark, (f"{number:>5} │ ", "dim"), (text, "code" if here else "dim")))
        if here:
            shown += _caret(where, rows[number - 1], quoted)
    return shown


def _quoted(where: Where, quoted: str) -> list[Line]:
    rows = [line(("▸", "mark"), (f"{where.line:>5} │ ", "dim"), (quoted, "code"))]
    return rows + _caret(where, quoted, quoted)


def _caret(where: Where, text: str, quoted: str) -> list[Line]:
    """Underline the part meant; columns count in the line as the trace quotes it."""
    if where.col is None or where.end_col is None or where.end_col <= where.col:
        return []
    indent = len(where.source) - len(where.source.lstrip())
    shift = max(text.find(quoted), 0) - indent
    start, stop = where.col + shift, where.end_col + shift
    if start < 0 or stop > len(text):
        return []
    before = " " * cell_len(clean(text[:start]))
    return [line(("       │ ", "dim"), before, ("^" * cell_len(clean(text[start:stop])), "mark"))]


def _rows(name: str) -> list[str]:
    try:
        path = Path(name)
        if not path.is_file() or path.stat().st_size > _LARGEST:
            return []
        return path.read_text("utf-8", "replace").splitlines()
    except (OSError, ValueError):
        return []


def editor(file: str, number: int, environment: Mapping[str, str] = os.environ) -> list[str]:
    """Return the command that opens a file at a line.

    Raises:
        ValueError: the editor named in the environment cannot be read as a command.
    """
    named = next(
        (environment[k] for k in ("TC_EDITOR", "VISUAL", "EDITOR") if environment.get(k)), "vi"
    )
    command = shlex.split(named)
    if not command:
        raise ValueError("TC_EDITOR, VISUAL or EDITOR is empty")
    tool = Path(command[0]).stem
    number = max(number, 1)
    if tool in _BY_COLON:
        goto = ["--goto"] if tool in ("code", "codium", "cursor") else []
        return [*command, *goto, f"{file}:{number}"]
    return [*command, f"+{number}", file]
