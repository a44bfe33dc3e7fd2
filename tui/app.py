"""A feed goes in; the application that shows it, and responds to keys and mouse, comes out."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Hashable, Iterable
from pathlib import Path
from typing import ClassVar, Final

from textual.app import ComposeResult, SystemCommand
from textual.containers import Vertical
from textual.screen import Screen
from textual.widgets import ContentSwitcher, Input

from tc.trace.findings import duration
from tc.trace.writers import ENDED, RUNNING, Job, ago
from tc.tui import filters, source
from tc.tui.background import Arrived, Background, Broke, Failed, Listed, Stands
from tc.tui.commands import Palette, TraceCommands
from tc.tui.facts import Model, size_of, version_of
from tc.tui.feed import Feed
from tc.tui.keys import Table, bindings
from tc.tui.lines import Line, line
from tc.tui.printed import absent, meant
from tc.tui.themed import ThemedApp
from tc.tui.views.base import Place, View
from tc.tui.views.compile import OneCompile
from tc.tui.views.findings import Findings
from tc.tui.views.functions import Functions
from tc.tui.views.log import Log
from tc.tui.views.time import Time
from tc.tui.widgets.bars import Bar, fitted, zoned

UNREADABLE: Final = 3
VIEWS: Final = (Findings, Functions, OneCompile, Time, Log)
_IDS: Final = ("findings", "functions", "compile", "time", "log")


class Prompt(Input):
    """Where filters are typed; Esc leaves it even where another key goes out."""

    BINDINGS: ClassVar = [("escape", "app.out", "leave")]


class TraceApp(ThemedApp):
    """Looks into one trace."""

    TITLE = "tc-tui"
    ENABLE_COMMAND_PALETTE = True
    COMMAND_PALETTE_BINDING = "f12"  # tc-tui's own is in the table of keys
    COMMANDS: ClassVar = {TraceCommands}
    BINDINGS: ClassVar = bindings("app")
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-normal"), (160, "-wide")]  # noqa: RUF012
    CSS = """
    Screen { background: $background; color: $foreground; }
    #head, #hints { background: $panel; }
    #body { height: 1fr; border-top: solid $border; }
    #prompt { display: none; height: 1; border: none; padding: 0 1; background: $panel; }
    #prompt.-open { display: block; }
    #note { display: none; background: $panel; }
    #note.-open { display: block; }
    .-ascii #body { border-top: ascii $border; }
    .-ascii View .detail, .-ascii View .detail:focus { border-left: ascii $border; }
    Help.-ascii > Container { border: ascii $border; }
    .-ascii RowList { scrollbar-size-vertical: 0; scrollbar-size-horizontal: 0; }
    .-normal #findings .list { width: 50%; }
    .-narrow View .list { width: 1fr; max-width: 100%; }
    .-narrow View .detail { display: none; border-left: none; padding: 0; }
    .-narrow View.-deep .list { display: none; }
    .-narrow View.-deep .detail { display: block; }
    """

    def __init__(
        self,
        feed: Feed,
        *,
        follow: bool = False,
        goto: str = "",
        theme: str = "dark",
        keys: Table | None = None,
    ) -> None:
        super().__init__(theme, keys or Table())
        self.feed, self.goto = feed, goto
        self.background = Background(feed, self.post_message, follow)
        self.trace_name = feed.name
        self.model = Model()
        self.last_words = ""
        self.views = tuple(kind(id=name) for kind, name in zip(VIEWS, _IDS, strict=True))
        self.came_from: list[str] = []
        self.job: Job | None = None
        self.leaving = False

    @property
    def following(self) -> bool:
        """Whether a running job is followed."""
        return self.background.following

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Bar(id="head")
            yield Bar(id="tabs")
            with ContentSwitcher(initial="findings", id="body"):
                yield from self.views
            yield Bar(id="note")
            yield Prompt(id="prompt", compact=True)
            yield Bar(id="hints")

    def on_mount(self) -> None:
        """Show the first screen at once, and only then begin to read."""
        self.screen.set_class(self.ascii_only, "-ascii")
        self.view.list.focus()
        self.draw_bars()
        self.set_interval(1.0, self.draw_head)
        self.call_after_refresh(self.read)

    # ------------------------------------------------------------------------ reading

    def read(self) -> None:
        """Read the trace; while following, again whenever it has grown."""
        self.background.read(first=self.model.diagnosis is None)

    def on_unmount(self) -> None:
        """Leave no thread at work."""
        self.background.stop()

    def on_broke(self, event: Broke) -> None:
        """An error in a thread is shown like any other."""
        raise event.error

    def on_arrived(self, event: Arrived) -> None:
        """Show another state of the trace."""
        diagnosis, partial = event.diagnosis, event.partial
        self.set_model(Model(diagnosis, lane=self.model.lane, partial=partial))
        if self.goto and not partial:
            name, self.goto = self.goto, ""
            self.action_goto(name)

    def on_failed(self, event: Failed) -> None:
        """Leave with a sentence; while following there may be something to read later."""
        reason = event.reason
        if not self.following:
            self.last_words = reason
            self.exit(return_code=UNREADABLE)
        elif self.model.diagnosis is None:
            name = self.trace_name
            self.set_model(
                Model(
                    waiting=f"no compile records yet in {name}, waiting: "
                    f"run the program with TC_TRACE={name} or TORCH_TRACE={name}"
                )
            )

    def on_stands(self, event: Stands) -> None:
        """Report once that the job has ended, and how."""
        before, self.job = self.job, event.job
        self.draw_head()
        if before is not None and before.state == RUNNING != event.job.state:
            has = "has" if event.job.state == ENDED else "was"
            self.show_note(f"the job {has} {event.job}")

    def set_model(self, model: Model) -> None:
        """Show a model in every view."""
        self.model = model
        for view in self.views:
            view.update(model)
        self.draw_bars()
        self.read_log()

    def read_log(self) -> None:
        """List the records once somebody looks at them."""
        log = self.query_one(Log)
        if self.view is log and not self.model.partial:
            session = log.start()
            if session is not None:
                self.background.list_records(session)

    def on_listed(self, event: Listed) -> None:
        """Show more records."""
        self.query_one(Log).take(event.session, event.batch, event.first, event.last)

    # ------------------------------------------------------------------------ bars

    @property
    def view(self) -> View:
        """The view on the screen."""
        current = self.query_one("#body", ContentSwitcher).current
        return next(one for one in self.views if one.id == current)

    def draw_bars(self) -> None:
        """Draw the lines above and below the view."""
        self.draw_head()
        parts = []
        for number, view in enumerate(self.views, 1):
            here = view is self.view
            words = f" {self.keys.of(f'tab_{number}')} {view.label} {view.count()}".rstrip() + " "
            parts.append((line((words, "tab_here" if here else "tab")), f"tab('{view.id}')"))
        tabs, zones = zoned(parts, line(("│", "dim")))
        view = self.view
        filtered = line((f"/ {view.filter_text} ", "mark")) if view.filter_text else Line()
        self.query_one("#tabs", Bar).say(tabs, filtered, zones)
        self.draw_hints()

    def draw_head(self) -> None:
        """Draw the first line: which trace, of what, how old, how long it compiled."""
        if not self.is_running or not self._screen_stack:
            return
        dot = (" · ", "dim")
        name = self.trace_name
        most = max(self.size.width // 3, 12)
        name = name if len(name) <= most else "…" + name[1 - most :]
        pieces: list[str | tuple[str, str]] = [(" tc-tui ", "title"), (name, "head")]
        diagnosis = self.model.diagnosis
        if diagnosis is not None:
            if self.model.lane_label:
                pieces += [dot, self.model.lane_label]
            if diagnosis.session.other_runs:
                pieces += [dot, (f"newest of {diagnosis.session.other_runs + 1} runs", "dim")]
        if self.model.partial or (diagnosis is None and not self.model.waiting):
            whole = size_of(self.feed.size())
            pieces += [dot, (f"reading {whole} …", "live")]
        elif self.following:
            pieces += [dot, self.state_of_job()]
        if diagnosis is not None:
            pieces += [dot, (version_of(diagnosis), "dim")]
        seconds = f"{duration(self.model.seconds)} compiling " if diagnosis else ""
        self.screen_bar("#head").say(line(*pieces), line((seconds, "head")))

    def state_of_job(self) -> tuple[str, str]:
        """Whether the program that is followed runs, and since when it has written nothing."""
        job = self.job
        if job is None or self.model.diagnosis is None:
            return "● following", "live"
        if job.state != RUNNING:
            return f"■ {job.state}", "head"
        return f"● running, {ago(job.age)}", "live"

    def screen_bar(self, name: str) -> Bar:
        """A bar of the main screen, whatever screen is above it."""
        return self.screen_stack[0].query_one(name, Bar)

    def draw_hints(self) -> None:
        """Draw the last line: the keys that matter here."""
        words = {"filter": "search" if self.view.searches else "filter"}
        shown = fitted([(k, words.get(w, w)) for k, w in self.keys.hints()], self.size.width - 2)
        parts = [(line((key, "key"), f" {word}"), f"hint:{key}") for key, word in shown]
        bar, zones = zoned(parts, line("  "))
        self.screen_bar("#hints").say(bar, Line(), zones)

    def show_note(self, words: str) -> None:
        """Show something above the hints, until something else is done."""
        self.leaving = False
        bar = self.screen_bar("#note")
        bar.set_class(bool(words), "-open")
        bar.say(line((f" {words}", "mark")))

    def on_bar_pressed(self, event: Bar.Pressed) -> None:
        """A click on a tab or a hint is its key."""
        name = event.name
        if name.startswith("hint:"):
            key = self.keys.hinted(name.removeprefix("hint:"))
            if key.place == "app":
                self.run_command(key.action)
                return
            # Only the list that the key would go to can do it; the click took the focus from it.
            self.view.go_deep(self.view.deep)
            self.call_later(lambda: self.run_action(key.action, self.focused))
        else:
            self.run_command(name)

    # ------------------------------------------------------------------------ where to

    def action_command_palette(self) -> None:
        """Open the palette."""
        if not isinstance(self.screen, Palette):
            self.push_screen(Palette(id="--command-palette"))

    def run_command(self, action: str) -> None:
        """Run an action by its name, as the palette and the mouse do."""
        self.call_next(self.run_action, action)

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """Only tc-tui's commands: the table of keys has them all."""
        return ()

    def action_tab(self, name: str) -> None:
        """Show a view."""
        self.show_view(name)
        self.came_from = []

    def show_view(self, name: str) -> None:
        """Show a view, with the focus where it was in it."""
        self.query_one("#body", ContentSwitcher).current = name
        self.view.go_deep(self.view.deep)
        self.show_note("")
        self.draw_bars()
        self.read_log()

    def on_view_goto(self, event: View.Goto) -> None:
        """Enter in one view led to another; Esc leads back."""
        self.enter(event.view, event.key, event.artifact)

    def enter(self, name: str, key: Hashable, artifact: int = -1) -> bool:
        """Go to something in a view; False if it is not there."""
        here = self.view.id or ""
        target = next(one for one in self.views if one.id == name)
        if isinstance(target, OneCompile):
            found = target.open(str(key), artifact)
        else:
            found = target.point_at(key)
        if not found:
            self.show_note(f"{key} is not in this trace")
            return False
        if name != here:
            self.came_from.append(here)
        target.go_deep(False)
        self.show_view(name)
        return True

    def action_goto(self, name: str) -> None:
        """Go to a finding by its id, to a compile, or to a function."""
        name = meant(name)
        slug = name.strip("[]")
        finding = self.model.diagnosis.finding(name) if self.model.diagnosis else None
        if slug in self.model.by_slug:
            self.enter("compile", slug)
        elif finding is not None:
            self.enter("findings", finding.id)
        else:
            one = next((one for one in self.model.functions if one.title == name), None)
            if one is None:
                self.show_note(absent(name))
            else:
                self.enter("functions", one.key)

    def action_function(self, key: tuple[str, str, int]) -> None:
        """Go to a function."""
        self.enter("functions", key)

    def action_out(self) -> None:
        """One level out: the prompt, the right pane, a filter, the view one came from."""
        self.show_note("")
        if self.query_one("#prompt").has_class("-open"):
            self.close_prompt()
        elif not self.view.out():
            if self.came_from:
                self.show_view(self.came_from.pop())
            else:
                self.show_note(f"this is the outermost level: {self.keys.first('quit')} quits")
        self.draw_bars()

    def action_pane(self, step: int) -> None:
        """The other pane."""
        self.view.go_deep(not self.view.deep)
        self.draw_bars()

    def action_pane_at(self, number: int) -> None:
        """The left or the right pane."""
        self.view.go_deep(bool(number))
        self.draw_bars()

    def action_split(self, step: int) -> None:
        """Make the left pane wider, or narrower."""
        self.show_note(self.view.split(step))

    def action_step(self, step: int) -> None:
        """The next or previous compile."""
        compiles = self.query_one(OneCompile)
        if self.view is not compiles:
            self.enter("compile", compiles.slug)
        else:
            self.show_note(compiles.step(step))
        self.draw_bars()

    # ------------------------------------------------------------------------ finding

    def action_find(self) -> None:
        """Open the prompt of a filter or a search."""
        prompt = self.query_one("#prompt", Input)
        view = self.view
        prompt.placeholder = "search: words or r/regex/" if view.searches else filters.HELP
        prompt.value = "" if view.searches else view.filter_text
        prompt.add_class("-open")
        prompt.focus()
        self.show_note("")

    def on_input_changed(self, event: Input.Changed) -> None:
        """A filter works while it is typed."""
        if event.input.has_class("-open") and not self.view.searches:
            self.show_note(self.view.filter(event.value))
            self.draw_bars()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Enter ends the typing."""
        view, query = self.view, event.value
        searching = view.searches
        self.close_prompt(clear=False)
        self.show_note(view.search(query) if searching else view.filter(query))
        self.draw_bars()

    def close_prompt(self, clear: bool = True) -> None:
        """Back to the view; a filter that was being typed is dropped."""
        prompt = self.query_one("#prompt", Input)
        view = self.view
        if clear and not view.searches:
            view.filter("")
        prompt.remove_class("-open")
        view.go_deep(view.deep)

    def action_hit(self, step: int) -> None:
        """The next or previous place found."""
        self.show_note(self.view.hit(step))

    # ------------------------------------------------------------------------ doing

    def action_editor(self) -> None:
        """Open what the view shows in the user's editor."""
        place = self.view.place()
        if place is None:
            self.show_note("there is no file here to open")
        elif place.text:
            with tempfile.TemporaryDirectory(prefix="tc-tui-") as folder:
                copy = Path(folder) / place.file
                copy.write_text(place.text, "utf-8", "replace")
                self.edit(Place(str(copy), place.line))
        elif not Path(place.file).is_file():
            self.show_note(f"{place.file} is not on this machine")
        else:
            self.edit(place)

    def edit(self, place: Place) -> None:
        """Hand the terminal to the editor until it ends."""
        try:
            command = source.editor(place.file, place.line)
            with self.suspend():
                subprocess.run(command, check=False)
        except (OSError, ValueError) as error:
            self.show_note(f"cannot start the editor: {error}; set EDITOR")
        except Exception as error:  # Textual cannot suspend in every terminal
            self.show_note(f"cannot release the terminal: {error}")
        self.refresh()

    def action_copy(self) -> None:
        """Copy what the cursor is on."""
        name, text = self.view.copied()
        if not text:
            self.show_note("there is nothing to copy here")
            return
        self.copy_to_clipboard(text)
        self.show_note(f"copied {name}, {size_of(len(text))}")

    def action_copy_command(self) -> None:
        """Copy the command that shows this."""
        command = self.view.command()
        if command:
            self.copy_to_clipboard(command)
        self.show_note(f"copied: {command}" if command else "there is no command for this")

    def action_rank(self) -> None:
        """Show the next rank, after the last one all of them."""
        lanes = [None, *self.model.lanes]
        if len(lanes) < 3:
            self.show_note("the trace is of one process")
            return
        self.action_lane(lanes[(lanes.index(self.model.lane) + 1) % len(lanes)])

    def action_lane(self, lane: int | None) -> None:
        """Show one rank, or all."""
        model = self.model
        self.set_model(Model(model.diagnosis, lane=lane, partial=model.partial))
        self.show_note(f"showing {self.model.lane_label}")

    async def action_quit(self) -> None:
        """Leave; twice, where a running job is followed."""
        if self.following and not self.leaving:
            self.show_note(f"still following the job: {self.keys.first('quit')} again to quit")
            self.leaving = True
        else:
            self.exit(0)

    def action_follow(self) -> None:
        """Follow the running job, or stop to."""
        self.background.following = not self.following
        if self.following:
            self.read()
        self.show_note("following: the trace is read again when it grows" if self.following else
                  "not following any more")  # fmt: skip
        self.draw_bars()

    def on_resize(self) -> None:
        """The hints have another width to fit."""
        self.call_after_refresh(self.draw_bars)
