"""Rows that may be millions go in; only those in sight are drawn, with a cursor to choose by."""

from __future__ import annotations

from collections.abc import Hashable
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from tc.tui import look
from tc.tui.keys import bindings
from tc.tui.lines import Line, Listed, Rows, line, wrap


class RowList(ScrollView, can_focus=True):
    """A list or a text, drawn row by row; with nothing to choose in it, keys scroll it."""

    DEFAULT_CSS = """
    RowList {
        scrollbar-gutter: stable; scrollbar-size-vertical: 1; scrollbar-size-horizontal: 1;
        background: $background;
    }
    """
    BINDINGS: ClassVar = bindings("rows")

    cursor = reactive(-1)

    class Moved(Message):
        """The cursor is on another row."""

        def __init__(self, rows: RowList, key: Hashable | None) -> None:
            super().__init__()
            self.rows, self.key = rows, key

        @property
        def control(self) -> RowList:
            return self.rows

    class Resized(Moved):
        """Rows have another width to fit."""

    class Chosen(Moved):
        """Enter was pressed on a row, or it was clicked twice."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.rows: Rows = Listed([])
        self.empty = ""

    # ------------------------------------------------------------------------ what is shown

    def show(self, rows: Rows, *, keep: bool = False, tail: bool = False) -> None:
        """Show other rows.

        Args:
            keep: leave the cursor and the view where they were, as far as possible.
            tail: stay at the end if the view is there, as of a log that grows.
        """
        at_end = tail and self.scroll_offset.y >= self.max_scroll_y
        kept = self.key if keep else None
        offset, in_sight = self.scroll_offset, self._in_sight
        self.rows = rows
        self._fit()
        self.set_reactive(RowList.cursor, self._find(kept))
        if not keep:
            self.scroll_to(0, 0, animate=False, immediate=True)
        elif at_end and self.is_mounted:
            self.scroll_to(y=len(rows), animate=False, immediate=True)
        else:
            self.scroll_to(offset.x, offset.y, animate=False, immediate=True)
            if kept is not None and in_sight:
                self._into_view()
        self.refresh()

    def grown(self) -> None:
        """Take notice that the rows shown have become more."""
        at_end = self.max_scroll_y > 0 and self.scroll_offset.y >= self.max_scroll_y
        self._fit()
        if self.cursor < 0:
            self.set_reactive(RowList.cursor, self._find(None))
        if at_end:
            self.scroll_to(y=len(self.rows), animate=False, immediate=True)
        self.refresh()

    @property
    def key(self) -> Hashable | None:
        """The item of the row under the cursor."""
        return self.rows.key(self.cursor) if 0 <= self.cursor < len(self.rows) else None

    @property
    def at_top(self) -> bool:
        """Whether the cursor is where it began."""
        return self.cursor == self._selectable(0, 1)

    def point_at(self, key: Hashable) -> bool:
        """Put the cursor on the row of an item; False if there is none."""
        found = self._index(key)
        if found < 0:
            return False
        self.cursor = found
        self._into_view()
        return True

    def _find(self, key: Hashable | None) -> int:
        found = self._index(key) if key is not None else -1
        return found if found >= 0 else self._selectable(0, 1)

    def _index(self, key: Hashable) -> int:
        return self.rows.index(key)

    def _selectable(self, start: int, step: int) -> int:
        """The first row from `start` on that can be chosen, a screenful of others apart."""
        at = start
        while 0 <= at < len(self.rows) and abs(at - start) < 10_000:
            if self.rows.key(at) is not None:
                return at
            at += step
        return -1

    def _fit(self) -> None:
        width = self.rows.width or self.scrollable_content_region.width
        self.virtual_size = Size(width, len(self.rows))

    def on_resize(self, event: events.Resize) -> None:
        """Rows are drawn for the new width."""
        in_sight = self._in_sight
        self._fit()
        if in_sight:
            self._into_view()
        self.refresh()
        self.post_message(self.Resized(self, self.key))

    def on_show(self) -> None:
        """What was made while nobody could see it may not fit."""
        self.post_message(self.Resized(self, self.key))

    @property
    def row_width(self) -> int:
        """Cells a row has."""
        return self.scrollable_content_region.width or 60

    # ------------------------------------------------------------------------ drawing

    def render_line(self, y: int) -> Strip:
        width = self.scrollable_content_region.width
        index = y + self.scroll_offset.y
        base = self.rich_style
        if index >= len(self.rows):
            strip = self._strip(self._instead(y, width))
            return strip.adjust_cell_length(width, base).apply_style(base)
        strip = self._strip(self.rows.line(index, width))
        if self.rows.width:
            strip = strip.crop(self.scroll_offset.x, self.scroll_offset.x + width)
        strip = strip.adjust_cell_length(width, base).apply_style(base)
        if index == self.cursor and self.rows.key(index) is not None:
            role = "cursor" if self.has_focus else "cursor_away"
            strip = _over(strip, look.style_in(self.app, role))
            if strip.text.startswith(" "):  # seen without colours, too
                mark = "▸" if not getattr(self.app, "ascii_only", False) else ">"
                style = look.style_in(self.app, "mark") + look.style_in(self.app, role)
                strip = Strip.join([Strip([Segment(mark, style)], 1), strip.crop(1)])
        return strip

    def _instead(self, y: int, width: int) -> Line:
        """A line of what an empty list says."""
        notes = wrap(self.empty, width - 1, "dim", line(" ")) if not len(self.rows) else []
        return notes[y] if y < len(notes) else Line()

    def _strip(self, row: Line) -> Strip:
        ascii_only = getattr(self.app, "ascii_only", False)
        return Strip(
            [
                Segment(look.plain(text) if ascii_only else text, look.style_in(self.app, role))
                for text, role in row.pieces
            ]
        )

    def watch_cursor(self, old: int, new: int) -> None:
        """Redraw the two rows, and notify the listeners."""
        for index in (old, new):
            y = index - self.scroll_offset.y
            if 0 <= y < self.size.height:
                self.refresh(Region(0, y, self.size.width, 1))
        self.post_message(self.Moved(self, self.key))

    def on_focus(self) -> None:
        """The cursor shows where keys go."""
        self.refresh()

    def on_blur(self) -> None:
        """The cursor shows where keys go."""
        self.refresh()

    # ------------------------------------------------------------------------ moving

    @property
    def _page(self) -> int:
        return max(self.scrollable_content_region.height - 1, 1)

    def action_move(self, step: int) -> None:
        """One row, over rows that cannot be chosen; a text scrolls."""
        if self.cursor < 0:
            self.scroll_to(y=self.scroll_offset.y + step, animate=False, immediate=True)
            return
        found = self._selectable(self.cursor + step, step)
        if not self._in_sight:  # a text before the first choice: read on, choose when it comes
            found = -1
        if found >= 0:
            self.cursor = found
            self._into_view()
        else:  # show what is beyond the last choice
            self.scroll_to(y=self.scroll_offset.y + step, animate=False, immediate=True)

    def action_page(self, pages: int) -> None:
        """One screenful."""
        step = pages * self._page
        if self.cursor < 0:
            self.scroll_to(y=self.scroll_offset.y + step, animate=False, immediate=True)
            return
        target = min(max(self.cursor + step, 0), len(self.rows) - 1)
        sign = 1 if pages > 0 else -1
        found = self._selectable(target, sign)
        found = found if found >= 0 else self._selectable(target, -sign)
        self.cursor = found if found >= 0 else self.cursor
        self._into_view()

    def action_top(self) -> None:
        """The first row."""
        if self.cursor >= 0:
            self.cursor = self._selectable(0, 1)
        self.scroll_to(0, 0, animate=False, immediate=True)

    def action_bottom(self) -> None:
        """The last row."""
        if self.cursor >= 0:
            self.cursor = self._selectable(len(self.rows) - 1, -1)
        self.scroll_to(y=len(self.rows), animate=False, immediate=True)

    def action_aside(self, cells: int) -> None:
        """To the left or right, where rows are wider than the window."""
        self.scroll_to(x=self.scroll_offset.x + cells, animate=False, immediate=True)

    def action_choose(self) -> None:
        """Go in."""
        if self.cursor >= 0 and not self._in_sight:
            self._into_view()
            return
        self.post_message(self.Chosen(self, self.key))

    def on_click(self, event: events.Click) -> None:
        """One click points, two go in."""
        index = event.y + self.scroll_offset.y
        if not 0 <= index < len(self.rows) or self.rows.key(index) is None:
            return
        again = index == self.cursor and event.chain > 1
        self.cursor = index
        if again:
            self.action_choose()

    @property
    def _in_sight(self) -> bool:
        top, height = self.scroll_offset.y, self.scrollable_content_region.height
        return not height or top <= self.cursor < top + height

    def _into_view(self) -> None:
        height = self.scrollable_content_region.height
        top = self.scroll_offset.y
        if self.cursor >= 0 and not self._in_sight:
            y = self.cursor if self.cursor < top else self.cursor - height + 1
            self.scroll_to(y=y, animate=False, immediate=True)


def _over(strip: Strip, above: Style) -> Strip:
    """Lay the look of the cursor over a row."""
    return Strip(
        [Segment(text, (style + above) if style else above, control)
         for text, style, control in strip],
        strip.cell_length,
    )  # fmt: skip
