"""A long text goes in; numbered, coloured lines with search come out, those in sight only."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Hashable
from typing import Final

from rich.cells import cell_len

from tc.tui.highlight import Highlighter
from tc.tui.lines import Line, clean, cut
from tc.tui.widgets.rows import RowList

MOST_HITS: Final = 100_000
_WIDEST: Final = 5_000
Hit = tuple[int, int, int]


class Numbered:
    """The lines of a text, as rows; `hits` are (row, start, stop) in order."""

    def __init__(self, text: str, kind: str) -> None:
        # A final line end starts no line.  Only "\n" ends one: generated code holds other breaks.
        self.raw = text.removesuffix("\n").split("\n") if text else []
        self.paint = Highlighter(self.raw, kind)
        self.gutter = len(str(len(self.raw))) + 2
        longest = max((min(len(row), _WIDEST) for row in self.raw), default=0)
        self.width = self.gutter + longest + 8
        self.hits: list[Hit] = []
        self.here = -1

    def __len__(self) -> int:
        return len(self.raw)

    def key(self, index: int) -> Hashable | None:
        return None

    def index(self, key: Hashable) -> int:
        return -1

    def line(self, index: int, width: int) -> Line:
        row = self.paint.line(index)
        if len(self.raw[index]) > _WIDEST:
            more = f" … {len(self.raw[index]) - _WIDEST} more characters"
            row = Line(((cut(str(row), _WIDEST), ""), (more, "dim")))
        at = bisect_left(self.hits, (index, 0, 0))
        spans = []
        while at < len(self.hits) and self.hits[at][0] == index:
            _, start, stop = self.hits[at]
            spans.append((start, stop, "hit_here" if at == self.here else "hit"))
            at += 1
        if spans and "\t" not in self.raw[index]:
            row = overlay(row, spans)
        return Line(((f"{index + 1:>{self.gutter - 1}} ", "dim"),)) + row

    def find(self, pattern: re.Pattern[str] | None) -> None:
        """Look for a pattern in every row."""
        self.hits, self.here = [], -1
        for number, row in enumerate(self.raw if pattern else ()):
            assert pattern is not None
            for match in pattern.finditer(row):
                if match.end() > match.start():
                    self.hits.append((number, match.start(), match.end()))
            if len(self.hits) >= MOST_HITS:
                break


def overlay(row: Line, spans: list[tuple[int, int, str]]) -> Line:
    """Lay roles over stretches of a row; stretches are in order and apart."""
    pieces: list[tuple[str, str]] = []
    at = 0
    waiting = list(spans)
    for text, role in row.pieces:
        stop = at + len(text)
        while waiting and waiting[0][0] < stop:
            start, end, above = waiting[0]
            if start > at:
                pieces.append((text[: start - at], role))
                text, at = text[start - at :], start
            inside = min(end, stop) - at
            pieces.append((text[:inside], f"{role}+{above}"))
            text, at = text[inside:], at + inside
            if end > stop:
                break
            waiting.pop(0)
        if text:
            pieces.append((text, role))
        at = stop
    return Line(tuple(pieces))


class Body(RowList):
    """A text to read and to search."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.text = Numbered("", "text")
        self.query_text = ""

    def read(self, text: str, kind: str, *, keep: bool = False) -> None:
        """Show a text; `keep` stays at the line shown."""
        self.text = Numbered(text, kind)
        self.query_text = ""
        self.show(self.text, keep=keep)

    def search(self, query: str, pattern: re.Pattern[str] | None) -> int:
        """Mark what a pattern finds, go to the first place in sight or after; count them."""
        self.query_text = query
        self.text.find(pattern)
        if self.text.hits:
            at = bisect_left(self.text.hits, (self.scroll_offset.y, 0, 0))
            self._go(at % len(self.text.hits))
        self.refresh()
        return len(self.text.hits)

    def hit(self, step: int) -> str:
        """Go to the next or previous place found; return why there is none."""
        if not self.text.hits:
            return f"{self.query_text} is not in this text" if self.query_text else "/ searches"
        self._go((self.text.here + step) % len(self.text.hits))
        return ""

    @property
    def found(self) -> str:
        """`3 of 17`, for a search under way."""
        if not self.query_text:
            return ""
        if not self.text.hits:
            return f"/{self.query_text}: nothing found"
        return f"/{self.query_text}: {self.text.here + 1} of {len(self.text.hits)}"

    @property
    def line_here(self) -> int:
        """The line an editor should go to: of the place found, else the topmost shown."""
        if 0 <= self.text.here < len(self.text.hits):
            return self.text.hits[self.text.here][0] + 1
        return self.scroll_offset.y + 1

    def _go(self, at: int) -> None:
        self.text.here = at
        row, start, stop = self.text.hits[at]
        height = max(self.scrollable_content_region.height, 1)
        width = max(self.scrollable_content_region.width, 20)
        y, x = self.scroll_offset.y, self.scroll_offset.x
        if not y <= row < y + height:
            y = max(row - height // 3, 0)
        before = self.text.gutter + cell_len(clean(self.text.raw[row][:start]))
        if not x <= before < x + width - (stop - start) - 2:
            x = max(before - width // 3, 0) if before > width * 2 // 3 else 0
        self.scroll_to(x, y, animate=False, immediate=True)
        self.refresh()
