"""Two traces, compiles or ranks go in; the application that shows them side by side comes out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Final

from textual.app import ComposeResult, SystemCommand
from textual.containers import Vertical
from textual.screen import Screen

from tc.trace.commands import Command, command
from tc.tui.keys import Table, bindings
from tc.tui.lines import Line, left, line
from tc.tui.pairs import Level, Pairs, Side, start
from tc.tui.themed import ThemedApp
from tc.tui.widgets.bars import Bar
from tc.tui.widgets.rows import RowList

_IDS: Final = ("out", "next_hit", "last_hit", "copy", "copy_command", "theme", "suspend", "help",
               "quit")  # fmt: skip


class PairList(RowList):
    """Pairs of rows; to the left and right, both halves move."""

    DEFAULT_CSS = "PairList { height: 1fr; width: 1fr; }"

    def action_aside(self, cells: int) -> None:
        """Move the texts of both halves."""
        if isinstance(self.rows, Pairs):
            self.rows.shift = max(self.rows.shift + cells, 0)
            self.refresh()

    def go(self, step: int) -> bool:
        """Go to the next place, or the one before, where the two differ."""
        assert isinstance(self.rows, Pairs)
        here = self.cursor if self.cursor >= 0 else self.rows.here
        found = self.rows.differing(here, step)
        if found < 0:
            return False
        if self.rows.key(found) is not None:
            self.cursor = found
            self._into_view()
        else:
            self.rows.here = found
            self.refresh()
            self.scroll_to(y=max(found - 3, 0), animate=False, immediate=True)
        return True


class SplitApp(ThemedApp):
    """Compiles, their artifacts and the texts of these, of two sides in step."""

    TITLE = "tc-tui"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar = bindings("app", only=_IDS)
    CSS = """
    Screen { background: $background; color: $foreground; }
    #head, #hints, #names, #note { background: $panel; }
    #note { display: none; }
    #note.-open { display: block; }
    Help.-ascii > Container { border: ascii $border; }
    .-ascii RowList { scrollbar-size-vertical: 0; scrollbar-size-horizontal: 0; }
    """

    def __init__(self, a: Side, b: Side, *, command: Command, theme: str, keys: Table) -> None:
        super().__init__(theme, keys)
        self.command = command
        self.levels = [start(a, b)]
        self.came_from: list[tuple[int, int]] = []
        self.list = PairList(id="pairs")

    @property
    def level(self) -> Level:
        """What is on the screen."""
        return self.levels[-1]

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Bar(id="head")
            yield Bar(id="names")
            yield self.list
            yield Bar(id="note")
            yield Bar(id="hints")

    def on_mount(self) -> None:
        """Show the first screen."""
        self.screen.set_class(self.ascii_only, "-ascii")
        self.list.focus()
        self.show_level()

    def show_level(self) -> None:
        """List the pairs of the level."""
        self.list.empty = "nothing was compiled on either side"
        self.list.show(Pairs(self.level.pairs))
        self.show_note("")
        self.draw_bars()

    def draw_bars(self) -> None:
        """Draw what stands above and below the pairs."""
        if not self.is_running or not self._screen_stack:
            return
        main = self.screen_stack[0]
        main.query_one("#head", Bar).say(line((" tc-tui ", "title"), (self.level.words(), "head")))
        a, b = self.level.names()
        half = max((self.list.row_width - 4) // 2, 1)
        main.query_one("#names", Bar).say(
            line(" ", (left(a, half), "title"), "   ", (left(b, half), "title"))
        )
        keys = self.keys
        parts: list[str | tuple[str, str]] = [" "]
        hints = [("enter", "open"), ("out", "out"), ("next_hit", "next difference"),
                 ("help", "keys"), ("quit", "quit")]  # fmt: skip
        for name, word in hints[1:] if self.level.artifacts else hints:  # a text has no inside
            parts += [(keys.first(name), "key"), f" {word}  "]
        main.query_one("#hints", Bar).say(line(*parts))

    def show_note(self, words: str) -> None:
        """Show something above the hints."""
        bar = self.screen_stack[0].query_one("#note", Bar)
        bar.set_class(bool(words), "-open")
        bar.say(line((f" {words}", "mark")) if words else Line())

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """None: there is no palette here."""
        return ()

    def on_row_list_chosen(self, event: RowList.Chosen) -> None:
        """Enter goes into a pair."""
        inside = self.level.inside(event.key) if event.rows is self.list else None
        if inside is not None:
            self.came_from.append((self.list.cursor, round(self.list.scroll_offset.y)))
            self.levels.append(inside)
            self.show_level()

    def on_row_list_moved(self, event: RowList.Moved) -> None:
        """Clear the note."""
        if event.rows is self.list:
            self.show_note("")

    def action_out(self) -> None:
        """One level out."""
        if len(self.levels) < 2:
            self.show_note(f"this is the outermost level: {self.keys.first('quit')} quits")
            return
        self.levels.pop()
        self.show_level()
        cursor, top = self.came_from.pop()
        self.list.cursor = cursor
        self.list.scroll_to(y=top, animate=False, immediate=True)

    def action_hit(self, step: int) -> None:
        """The next or previous difference."""
        end = "last" if step > 0 else "first"
        self.show_note("" if self.list.go(step) else f"that was the {end} difference")

    def action_copy(self) -> None:
        """Copy what is listed, both halves."""
        rows = Pairs(self.level.pairs)
        self.copy_to_clipboard("\n".join(str(rows.line(n, 200)).rstrip() for n in range(len(rows))))
        self.show_note(f"copied {len(rows)} rows")

    def action_copy_command(self) -> None:
        """Copy the command that shows this."""
        compiles = self.level.compiles or ()
        a, b = self.level.a, self.level.b
        command = self.command
        if a.diagnosis is b.diagnosis and len(compiles) == 2 and all(compiles):
            command = a.command.plus("--split", *(one.slug for one in compiles if one))
        self.copy_to_clipboard(str(command))
        self.show_note(f"copied: {command}")

    async def action_quit(self) -> None:
        """Leave."""
        self.exit(0)

    def on_row_list_resized(self, event: RowList.Resized) -> None:
        """The names stand above their halves."""
        if event.rows is self.list:
            self.draw_bars()


def command_of(trace: str, names: Iterable[str]) -> Command:
    """Return the command that shows two sides again."""
    return command("tc-tui", *([trace] if trace else []), "--split", *names)
