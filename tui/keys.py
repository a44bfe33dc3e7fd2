"""The keys, one row each: bindings of the widgets, the hints below and the help come from here."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from textual.binding import Binding, BindingType


@dataclass(frozen=True, slots=True)
class Key:
    """One thing a key does.

    Attributes:
        place: the widget that responds: `app`, or `rows` (every list and text).
        hint: the word shown at the bottom of the screen; none if empty.
    """

    id: str
    keys: str
    shown: str
    action: str
    words: str
    group: str
    place: str = "app"
    hint: str = ""


KEYS: Final = (
    Key("down", "down,j", "j ↓", "move(1)", "down", "Move", "rows"),
    Key("up", "up,k", "k ↑", "move(-1)", "up", "Move", "rows"),
    Key("half_down", "ctrl+d,pagedown,space", "^d PgDn", "page(1)", "down a page", "Move", "rows"),
    Key("half_up", "ctrl+u,pageup", "^u PgUp", "page(-1)", "up a page", "Move", "rows"),
    Key("top", "g,home", "g", "top", "top", "Move", "rows"),
    Key("bottom", "G,end", "G", "bottom", "bottom", "Move", "rows"),
    Key("aside_left", "left", "←", "aside(-8)", "scroll to the left", "Move", "rows"),
    Key("aside_right", "right", "→", "aside(8)", "scroll to the right", "Move", "rows"),
    Key("enter", "enter", "Enter", "choose", "go in", "Go", "rows", "open"),
    Key("out", "escape", "Esc", "out", "one level out; never quits", "Go"),
    Key("pane", "tab", "Tab", "app.pane(1)", "the other pane", "Go", "rows"),
    Key("pane_back", "shift+tab", "⇧Tab", "app.pane(-1)", "the other pane", "Go", "rows"),
    Key("pane_left", "h", "h", "pane_at(0)", "left pane", "Go"),
    Key("pane_right", "l", "l", "pane_at(1)", "right pane", "Go"),
    Key("tab_1", "1", "1", "tab('findings')", "findings", "Go"),
    Key("tab_2", "2", "2", "tab('functions')", "functions and their compiles", "Go"),
    Key("tab_3", "3", "3", "tab('compile')", "one compile: every artifact", "Go"),
    Key("tab_4", "4", "4", "tab('time')", "where the time went", "Go"),
    Key("tab_5", "5", "5", "tab('log')", "the records of the log", "Go"),
    Key("next_compile", "]", "]", "step(1)", "next compile", "Go"),
    Key("last_compile", "[", "[", "step(-1)", "previous compile", "Go"),
    Key("find", "slash", "/", "find", "filter a list, search in a text", "Find", hint="filter"),
    Key("next_hit", "n", "n", "hit(1)", "next place found", "Find"),
    Key("last_hit", "N", "N", "hit(-1)", "previous place found", "Find"),
    Key("commands", "colon,ctrl+p", ": ^p", "command_palette", "go to anything by name", "Find"),
    Key("editor", "o", "o", "editor", "open in $EDITOR, at the line", "Do", hint="editor"),
    Key("copy", "y", "y", "copy", "copy what the cursor is on", "Do", hint="copy"),
    Key("copy_command", "Y", "Y", "copy_command", "copy the command that shows it", "Do"),
    Key("narrower", "less_than_sign", "<", "split(-5)", "left pane narrower", "Do"),
    Key("wider", "greater_than_sign", ">", "split(5)", "left pane wider", "Do"),
    Key("rank", "r", "r", "rank", "next rank, or all", "Do"),
    Key("follow", "F", "F", "follow", "follow a running job, or stop", "Do", hint="follow"),
    Key("theme", "T", "T", "theme", "dark or light", "Do"),
    Key("suspend", "ctrl+z", "^z", "suspend_process", "back to the shell; fg returns", "Do"),
    Key("help", "question_mark,f1", "?", "help", "this list", "Do", hint="keys"),
    Key("quit", "q,ctrl+c", "q", "quit", "quit", "Do", hint="quit"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Table:
    """The keys of one application, as its user has them.

    Attributes:
        moved: the ids of those that are not as they come.
    """

    keys: tuple[Key, ...] = KEYS
    moved: frozenset[str] = frozenset()

    def of(self, name: str) -> str:
        """Return what an action's key is called."""
        return next(key.shown for key in self.keys if key.id == name)

    def first(self, name: str) -> str:
        """Return the first key of an action, for sentences."""
        return self.of(name).split()[0]

    def keymap(self) -> dict[str, str]:
        """Return the keys of the user's, as Textual takes them."""
        return {key.id: key.keys for key in self.keys if key.id in self.moved}

    def hints(self) -> list[tuple[str, str]]:
        """Return (key, word) for the bottom line."""
        return [(key.shown, key.hint) for key in self.keys if key.hint]

    def hinted(self, shown: str) -> Key:
        """Return the key of a hint."""
        return next(key for key in self.keys if key.hint and key.shown == shown)

    def groups(self) -> dict[str, list[Key]]:
        """Return the keys by group, for the help."""
        found: dict[str, list[Key]] = {}
        for key in self.keys:
            found.setdefault(key.group, []).append(key)
        return found


def bindings(place: str, only: Collection[str] = ()) -> list[BindingType]:
    """Return the bindings of one sort of widget; `only` those with these ids, if any are given."""
    return [
        Binding(key.keys, key.action, key.words, show=False, id=key.id)
        for key in KEYS
        if key.place == place and (not only or key.id in only)
    ]
