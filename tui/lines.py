"""Words with roles go in; lines that fit a width come out.

A role (`error`, `dim`, `keyword`) says what a piece of text is; `tc.tui.look` says how it looks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from rich.cells import cell_len, set_cell_size

TAB: Final = 4
_HOSTILE: Final = re.compile(
    "[\x00-\x08\x0a-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]"
)


def clean(text: str) -> str:
    """Show what would steer the terminal as a symbol: escapes, controls, changes of direction."""
    if text.isascii() and text.isprintable():
        return text
    return _HOSTILE.sub(_symbol, text.expandtabs(TAB))


def _symbol(match: re.Match[str]) -> str:
    code = ord(match[0])
    return chr(0x2400 + code) if code < 0x20 else "\ufffd"


@dataclass(frozen=True, slots=True)
class Line:
    """One line: pieces of text, each with the role that colours it."""

    pieces: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return "".join(text for text, _ in self.pieces)

    def __add__(self, other: Line) -> Line:
        return Line(self.pieces + other.pieces)

    @property
    def width(self) -> int:
        """Cells it takes."""
        return sum(cell_len(text) for text, _ in self.pieces)


def line(*pieces: str | tuple[str, str]) -> Line:
    """Make a line of plain text and (text, role) pairs."""
    pairs = ((piece, "") if isinstance(piece, str) else piece for piece in pieces)
    return Line(tuple((clean(text), role) for text, role in pairs if text))


def cut(text: str, width: int) -> str:
    """Shorten to a width, with a mark where something is missing."""
    text = clean(text)
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, max(width - 1, 0)).rstrip() + "…" if width > 0 else ""


def tail(text: str, width: int) -> str:
    """Shorten from the front: the end of a path, or of a dotted name, matters most."""
    text = clean(text)
    return text if len(text) <= width else "…" + text[len(text) - max(width - 1, 0) :]


def left(text: str, width: int) -> str:
    """Cut or pad on the right."""
    text = cut(text, width)
    return text + " " * (width - cell_len(text))


def right(text: str, width: int) -> str:
    """Cut or pad on the left."""
    text = cut(text, width)
    return " " * (width - cell_len(text)) + text


def wrap(words: str, width: int, role: str = "", head: Line | None = None) -> list[Line]:
    """Break text into lines; those after the first are indented as far as `head` reaches."""
    first = head or Line()
    indent = first.width
    space = max(width - indent, 8)
    rows: list[str] = []
    for paragraph in clean_rows(words):
        rows += _broken(paragraph, space)
    blank = " " * indent
    return [
        (first if n == 0 else line(blank)) + line((row, role)) for n, row in enumerate(rows or [""])
    ]


def clean_rows(words: str) -> list[str]:
    """Split at line ends only."""
    return [clean(row) for row in words.replace("\r\n", "\n").split("\n")]


def _fitting(text: str, space: int) -> int:
    """Return how many characters fit; wide ones, which take two cells, are never cut."""
    used = 0
    for count, character in enumerate(text):
        used += cell_len(character)
        if used > space:
            return count
    return len(text)


def _broken(paragraph: str, space: int) -> list[str]:
    margin = re.match(r" *", paragraph)[0][: space // 2]  # type: ignore[index]
    rows, row = [], margin
    for word in paragraph.split():
        joint = "" if row == margin else " "
        if cell_len(row) + len(joint) + cell_len(word) <= space:
            row += joint + word
            continue
        if row != margin:
            rows.append(row)
        row = margin + word
        while cell_len(row) > space:  # one word longer than the line
            count = _fitting(row, space)
            rows.append(row[:count])
            row = margin + row[count:]
    rows.append(row)
    return rows


class Rows(Protocol):
    """What a list shows, asked for only where it is seen; `width` 0 means: fits any width."""

    width: int

    def __len__(self) -> int: ...

    def line(self, index: int, width: int) -> Line:
        """The row, drawn for a width."""

    def key(self, index: int) -> Hashable | None:
        """The item of the row; None if there is nothing to choose."""

    def index(self, key: Hashable) -> int:
        """The row that has an item; -1 if there is none."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a short list; `words` is what a filter looks at."""

    draw: Line | Callable[[int], Line]
    key: Hashable | None = None
    words: str = ""


class Listed:
    """Rows that are all known."""

    def __init__(self, rows: Iterable[Row | Line], width: int = 0) -> None:
        self.rows: Sequence[Row] = [row if isinstance(row, Row) else Row(row) for row in rows]
        self.width = width

    def __len__(self) -> int:
        return len(self.rows)

    def line(self, index: int, width: int) -> Line:
        draw = self.rows[index].draw
        return draw if isinstance(draw, Line) else draw(width)

    def key(self, index: int) -> Hashable | None:
        return self.rows[index].key

    def index(self, key: Hashable) -> int:
        return next((n for n, row in enumerate(self.rows) if row.key == key), -1)
