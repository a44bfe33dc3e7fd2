"""What is typed into the command palette goes in; what it may mean comes out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from textual.command import CommandList, CommandPalette, DiscoveryHit, Hit, Hits, Provider

from tc.tui.facts import Model
from tc.tui.keys import Table

if TYPE_CHECKING:
    from tc.tui.app import TraceApp

_MOST = 5_000


@dataclass(frozen=True, slots=True)
class Command:
    """One row of the palette: what it says, and the action it runs."""

    words: str
    action: str
    help: str = ""


def commands(model: Model, table: Table) -> Iterator[Command]:
    """Everything that can be gone to or done, by name."""
    for key in table.keys:
        if key.place == "app" and not key.action.startswith(("pane", "command_palette", "hit")):
            yield Command(key.words, key.action, f"key {key.shown}")
    for finding in model.findings:
        yield Command(f"{finding.id} {finding.title}", f"goto({finding.id!r})", "finding")
    for function in model.functions:
        yield Command(f"fn {function.title}", f"function({function.key!r})", function.where)
    for lane, label in model.lanes.items() if len(model.lanes) > 1 else ():
        yield Command(label, f"lane({lane})", "rank")
    for compiled in model.everything[:_MOST]:
        yield Command(f"c {compiled.slug} {compiled.title}", f"goto({compiled.slug!r})", "compile")


class Palette(CommandPalette):
    """The command palette, whose list has no lines to go to where the terminal has no room."""

    def _action_command_list(self, action: str) -> None:
        if self.query_one(CommandList).scrollable_content_region.area:
            super()._action_command_list(action)


class TraceCommands(Provider):
    """The palette's view of the table of keys and of what the trace holds."""

    @property
    def _app(self) -> TraceApp:
        return self.app  # type: ignore[return-value]

    async def discover(self) -> Hits:
        """What is offered before anything is typed."""
        for command in commands(Model(), self._app.keys):
            yield DiscoveryHit(
                command.words, partial(self._app.run_command, command.action), help=command.help
            )

    async def search(self, query: str) -> Hits:
        """What fits what was typed."""
        matcher = self.matcher(query)
        for command in commands(self._app.model, self._app.keys):
            score = matcher.match(command.words)
            if score > 0:
                yield Hit(
                    score,
                    matcher.highlight(command.words),
                    partial(self._app.run_command, command.action),
                    help=command.help,
                )
