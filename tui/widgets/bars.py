"""What is above and below the screens: words with roles go in; lines one row high come out."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.segment import Segment
from textual import events
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from tc.tui import look
from tc.tui.lines import Line, line

Zone = tuple[int, int, str]


class Bar(Widget):
    """One line: words on the left, words on the right; parts of it can be clicked."""

    DEFAULT_CSS = """
    Bar { height: 1; width: 1fr; background: $background; }
    """
    can_focus = False

    class Pressed(Message):
        """A part was clicked; `name` is the one it was drawn with."""

        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._left, self._right = Line(), Line()
        self._zones: list[Zone] = []

    def say(self, left: Line, right: Line | None = None, zones: Sequence[Zone] = ()) -> None:
        """Show other words; `zones` are (from, to, name) that respond to the mouse."""
        self._left, self._right, self._zones = left, right or Line(), list(zones)
        self.refresh()

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        base = self.rich_style
        space = width - self._right.width - (1 if self._right.pieces else 0)
        if space < min(self._left.width, width // 2):
            parts, space = self._left, width
            right = Line()
        else:
            parts, right = self._left, self._right
        strip = self._strip(parts).adjust_cell_length(space, base)
        if right.pieces:
            strip = Strip.join([strip, Strip([Segment(" ", base)]), self._strip(right)])
        return strip.adjust_cell_length(width, base).apply_style(base)

    def _strip(self, parts: Line) -> Strip:
        ascii_only = getattr(self.app, "ascii_only", False)
        return Strip(
            [
                Segment(look.plain(text) if ascii_only else text, look.style_in(self.app, role))
                for text, role in parts.pieces
            ]
        )

    def on_click(self, event: events.Click) -> None:
        """Report which part was clicked."""
        for start, stop, name in self._zones:
            if start <= event.x < stop:
                self.post_message(self.Pressed(name))
                return


def zoned(parts: Sequence[tuple[Line, str]], gap: Line) -> tuple[Line, list[Zone]]:
    """Join parts, and remember where each that has a name is."""
    joined, zones = line(" "), []
    for number, (part, name) in enumerate(parts):
        if number:
            joined = joined + gap
        start = joined.width
        joined = joined + part
        if name:
            zones.append((start, joined.width, name))
    return joined, zones


def fitted(hints: Sequence[tuple[str, str]], width: int) -> list[tuple[str, str]]:
    """Keep as many hints as there is space for, the last two always."""
    kept = list(hints)
    while len(kept) > 2 and sum(cell_len(k) + cell_len(w) + 3 for k, w in kept) > width:
        kept.pop(-3)
    return kept
