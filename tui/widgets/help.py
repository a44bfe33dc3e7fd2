"""The table of keys and the statuses go in; the help comes out."""

from __future__ import annotations

from typing import ClassVar

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Container
from textual.screen import ModalScreen

from tc.tui import look
from tc.tui.filters import HELP
from tc.tui.keys import Table
from tc.tui.lines import Line, Listed, left, line
from tc.tui.widgets.rows import RowList

_TERMS = (
    ("[0/2]", "compile 2 (the third) of frame 0 (the first function seen)"),
    ("graph break", "the compiler gave up at a line; what follows runs on its own"),
    ("recompile", "an input did not fit what was compiled, so it was done again"),
    ("guard", "what must hold of an input for compiled code to be used"),
    ("ledger", "every compile of a function, and which inputs changed (◂)"),
)


def help_lines(table: Table) -> list[Line]:
    """Return the help as lines."""
    rows: list[Line] = []
    space = max(8, *(cell_len(key.shown) + 1 for key in table.keys))
    for group, keys in table.groups().items():
        rows += [line((group, "head"))]
        rows += [line("  ", (left(key.shown, space), "key"), key.words) for key in keys]
        rows += [line("")]
    rows += [line(("Signs", "head"))]
    for status, (sign, _, word) in look.STATUS.items():
        rows.append(line("  ", (left(sign, 8), status), word))
    rows += [line(""), line(("Filters", "head")), line("  ", (HELP, ""))]
    rows += [line(""), line(("Words", "head"))]
    rows += [line("  ", (left(term, 13), "key"), words) for term, words in _TERMS]
    return rows


class Help(ModalScreen[None]):
    """Every key and sign on one screen."""

    DEFAULT_CSS = """
    Help { align: center middle; }
    Help > Container {
        width: 76; max-width: 96%; height: 90%; border: round $border; padding: 0 1;
        background: $background; border-title-color: $primary;
    }
    """
    BINDINGS: ClassVar = [
        Binding("escape", "dismiss", "close", id="out"),
        Binding("q", "dismiss", "close", id="quit"),
        Binding("question_mark,f1", "dismiss", "close", id="help"),
    ]

    def __init__(self, table: Table) -> None:
        super().__init__()
        self.table = table

    def compose(self) -> ComposeResult:
        box = Container(RowList(id="help"))
        box.border_title = "keys, signs, words"
        box.border_subtitle = f"{self.table.first('out')} closes"
        yield box

    def on_mount(self) -> None:
        """Fill it in."""
        rows = self.query_one("#help", RowList)
        rows.show(Listed(help_lines(self.table)))
        rows.focus()
