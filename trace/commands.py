"""Commands that tools print for users to run: words go in; a line for a shell comes out.

Every command that is printed is a `Command`: its words are quoted once, where it becomes text, so
that a name with spaces is still one word. `tests/house.py` refuses commands that are written with
an f-string.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Literal

Tool = Literal["tc-report", "tc-tui", "tc-minify", "tc-bisect", "tc-precompile"]


def quoted(*words: str) -> str:
    """Return words as a shell reads them again, each one argument."""
    return shlex.join(words)


@dataclass(frozen=True, slots=True)
class Command:
    """A command with its words.

    Attributes:
        words: arguments as the program gets them, not quoted.
    """

    tool: Tool
    words: tuple[str, ...] = ()

    def __str__(self) -> str:
        return quoted(self.tool, *self.words)

    def plus(self, *words: object) -> Command:
        """Return the command with more words."""
        return Command(self.tool, (*self.words, *map(str, words)))


def command(tool: Tool, *words: object) -> Command:
    """Return a command of these words, each of them one argument."""
    return Command(tool, tuple(map(str, words)))
