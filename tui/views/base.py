"""What the views share: a list on the left, what it points at on the right, one way in and out."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.message import Message

from tc.trace.commands import command
from tc.tui import filters
from tc.tui.facts import Model
from tc.tui.lines import Line, Listed, Row, Rows, line
from tc.tui.widgets.bars import Bar
from tc.tui.widgets.body import Body
from tc.tui.widgets.rows import RowList

LEAST: Final = 15  # percent of the width for either pane


@dataclass(frozen=True, slots=True)
class Place:
    """A line of a file, to open in an editor; `text` if the file is only in the trace."""

    file: str
    line: int
    text: str = ""


class View(Vertical):
    """A screen of two panes; a narrow terminal shows the one that has the focus."""

    DEFAULT_CSS = """
    View { height: 1fr; width: 1fr; }
    View > .title { display: none; background: $panel; }
    View.-titled > .title { display: block; }
    View .list { width: 45%; height: 1fr; }
    View .detail { width: 1fr; height: 1fr; border-left: solid $border; padding: 0 0 0 1; }
    View .detail:focus { border-left: solid $primary; }
    """
    label: ClassVar = ""

    class Goto(Message):
        """Show something in another view."""

        def __init__(self, view: str, key: Hashable, artifact: int = -1) -> None:
            super().__init__()
            self.view, self.key, self.artifact = view, key, artifact

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self.model = Model()
        self.filter_text = ""
        self.matches: Callable[[str], bool] = filters.matcher("")
        self.list = RowList(classes="list")
        self.detail = self.make_detail()
        self.title_bar = Bar(classes="title")
        self._made_for = 0
        self.share = 0  # of the left pane, in percent, once it was changed
        self.stays = False  # the cursor, when the last state of the trace was shown

    def make_detail(self) -> RowList:
        """Return the right pane."""
        return RowList(classes="detail")

    def compose(self) -> ComposeResult:
        yield self.title_bar
        with Horizontal():
            yield self.list
            yield self.detail

    # ------------------------------------------------------------------------ to be filled in

    def rows(self) -> list[Row]:
        """The rows of the list, before the filter."""
        return []

    def document(self, key: Hashable | None) -> Rows:
        """What the right pane says of a row."""
        return Listed([])

    def nothing(self) -> str:
        """What an empty list says."""
        return "nothing here"

    def place(self) -> Place | None:
        """What `o` opens."""
        return None

    def copied(self) -> tuple[str, str]:
        """What `y` copies: a name for it, and the text."""
        return "", ""

    def command(self) -> str:
        """What `Y` copies: the command that shows this."""
        return str(command("tc-report", "summary", self.trace_name))

    @property
    def trace_name(self) -> str:
        """The trace as the user named it, for commands."""
        return str(getattr(self.app, "trace_name", ""))

    def key_of(self, action: str) -> str:
        """The key of an action, as the user has it."""
        return str(self.app.keys.first(action))  # type: ignore[attr-defined]

    def entered(self, key: Hashable | None) -> None:
        """Enter in the right pane."""

    def count(self) -> str:
        """What its tab says behind its name."""
        return ""

    def title(self) -> tuple[Line, Line]:
        """The line above both panes: left and right part; none if both are empty."""
        return Line(), Line()

    # ------------------------------------------------------------------------ shared

    def draw_title(self) -> None:
        """Draw the line above both panes."""
        left, right = self.title()
        self.set_class(bool(left.pieces or right.pieces), "-titled")
        self.title_bar.say(left, right)

    def update(self, model: Model) -> None:
        """Show another state of the trace; what was chosen stays chosen."""
        self.stays = self.deep or not self.list.at_top or not self.model.partial
        self.model = model
        self.fill(keep=self.stays)

    def fill(self, *, keep: bool) -> None:
        """List the rows that pass the filter."""
        rows = [row for row in self.rows() if row.key is None or self.matches(row.words)]
        chosen = sum(row.key is not None for row in rows)
        before = self.list.key
        self.list.empty = self._empty()
        self.list.show(Listed(rows if chosen or not self.filter_text else []), keep=keep)
        self.fill_detail(keep=keep and self.list.key == before)
        self.draw_title()

    def _empty(self) -> str:
        if self.model.waiting:
            return self.model.waiting
        if self.model.diagnosis is None:
            return "reading …"
        return f"nothing matches /{self.filter_text}" if self.filter_text else self.nothing()

    def fill_detail(self, *, keep: bool = False) -> None:
        """Show what the cursor of the list is on."""
        self._made_for = self.detail.row_width
        self.detail.show(self.document(self.list.key), keep=keep)

    def filter(self, query: str) -> str:
        """Keep only rows that match; return what is wrong with the query, if anything."""
        try:
            self.matches = filters.matcher(query)
        except ValueError as error:
            return str(error)
        self.filter_text = query
        self.fill(keep=True)
        return ""

    @property
    def searches(self) -> bool:
        """Whether `/` searches the text on the right instead of filtering the list."""
        return isinstance(self.detail, Body) and self.deep

    def search(self, query: str) -> str:
        """Search the text on the right; return a note if that failed."""
        try:
            pattern = filters.search(query)
        except ValueError as error:
            return str(error)
        assert isinstance(self.detail, Body)
        found = self.detail.search(query, pattern)
        self.draw_title()
        return "" if found or not query else f"{query} is not in this text"

    def hit(self, step: int) -> str:
        """Go to the next place found in the text; return why there is none."""
        if not isinstance(self.detail, Body):
            return f"there is no text to search here: {self.key_of('find')} filters the list"
        failed = self.detail.hit(step)
        self.draw_title()
        return failed

    @property
    def deep(self) -> bool:
        """Whether the right pane has the focus."""
        return self.has_class("-deep")

    def go_deep(self, deep: bool = True) -> None:
        """Focus the right pane, or the left."""
        self.set_class(deep, "-deep")
        self.draw_title()
        (self.detail if deep else self.list).focus()

    @property
    def narrow(self) -> bool:
        """Whether the width is enough for one pane only."""
        return self.screen.has_class("-narrow")

    def split(self, step: int) -> str:
        """Give the left pane more of the width, or less; return why that cannot be."""
        if self.narrow:
            return "one pane at a time in fewer than 100 columns"
        share = self.share or round(100 * self.list.outer_size.width / max(self.size.width, 1))
        self.share = min(max(share + step, LEAST), 100 - LEAST)
        self.draw_split()
        return ""

    def draw_split(self) -> None:
        """Divide the width as it was chosen; where one pane is shown, it has all of it."""
        styles = self.list.styles
        if not self.share:
            return
        if self.narrow:
            for name in ("width", "min-width", "max-width"):
                styles.clear_rule(name.replace("-", "_"))
        else:
            styles.width, styles.min_width, styles.max_width = f"{self.share}%", 1, "100%"

    def on_resize(self) -> None:
        """The terminal may have become too narrow for two panes, or wide enough."""
        self.draw_split()

    def out(self) -> bool:
        """One level out; False if there was none left."""
        if self.deep:
            self.go_deep(False)
            return True
        if self.filter_text:
            self.filter("")
            return True
        return False

    def point_at(self, key: Hashable, artifact: int = -1) -> bool:
        """Put the cursor on a row."""
        if not self.list.point_at(key) and self.filter_text:
            self.filter("")
        found = self.list.point_at(key)
        if found:
            self.fill_detail()
        return found

    def on_row_list_moved(self, event: RowList.Moved) -> None:
        """The right pane follows the cursor of the list."""
        event.stop()
        if event.rows is self.list:
            self.fill_detail()
            self.draw_title()

    def on_row_list_resized(self, event: RowList.Resized) -> None:
        """Wrap documents again."""
        event.stop()
        if event.rows is self.detail and self.detail.row_width != self._made_for:
            self.fill_detail(keep=True)

    def on_row_list_chosen(self, event: RowList.Chosen) -> None:
        """Enter goes in."""
        event.stop()
        if event.rows is self.list:
            self.go_deep()
        else:
            self.entered(event.key)

    def on_descendant_focus(self) -> None:
        """A click into a pane is a way in, too."""
        if self.detail.has_focus or self.list.has_focus:
            self.set_class(self.detail.has_focus, "-deep")
            self.draw_title()


def heading(words: str) -> Line:
    """A small heading in a document."""
    return line((words, "head"))
