"""What the applications share: two themes, the keys of the user, signs for any terminal."""

from __future__ import annotations

import locale
import os

from textual.app import App

from tc.tui import look
from tc.tui.keys import Table
from tc.tui.widgets.bars import Bar
from tc.tui.widgets.help import Help


class ThemedApp(App[int]):
    """An application in the colours of `look`, with a help that lists the keys of `keys`."""

    def __init__(self, theme: str, keys: Table) -> None:
        # Without colours the terminal's own are kept, its background among them.
        super().__init__(ansi_color=True if "NO_COLOR" in os.environ else None)
        self.keys = keys
        self.set_keymap(keys.keymap())
        self.register_theme(look.DARK)
        self.register_theme(look.LIGHT)
        self.theme = look.LIGHT.name if theme == "light" else look.DARK.name
        self.ascii_only = not (locale.getpreferredencoding(False) or "").lower().startswith("utf")

    def action_theme(self) -> None:
        """Dark or light."""
        self.theme = look.LIGHT.name if self.current_theme.dark else look.DARK.name
        for bar in self.screen_stack[0].query(Bar):
            bar.refresh()

    def action_help(self) -> None:
        """Show every key."""
        screen = Help(self.keys)
        screen.set_class(self.ascii_only, "-ascii")
        self.push_screen(screen)
