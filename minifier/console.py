"""What tc-minify and tc-bisect share at the terminal: exit codes, progress, one-sentence errors."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from tc.trace import arguments
from tc.trace.delivery import complain, is_terminal
from tc.trace.words import count as counted

NOT_REPRODUCED: Final = 1


class Usage(Exception):
    """The command was not understood; the text says why."""


class Parser(arguments.Parser):
    """A parser whose errors are one sentence."""

    usage_error = Usage


def split_rest(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the tool's own arguments, and those after ``--``, which belong to the script."""
    own = list(arguments)
    if "--" not in own:
        return own, []
    place = own.index("--")
    return own[:place], own[place + 1 :]


def existing_script(name: str) -> Path:
    """Return the path of a script.

    Raises:
        Usage: there is none.
    """
    if not name:
        raise Usage("name a script")
    script = Path(name)
    if script.is_dir():
        raise Usage(f"{name} is a folder, not a script")
    if not script.is_file():
        raise Usage(f"there is no script {name}")
    return script


def require_torch() -> None:
    """Stop with a clear sentence where there is no torch.

    Raises:
        Usage: it is not installed.
    """
    if importlib.util.find_spec("torch") is None:
        raise Usage(
            "torch is not installed, and a compiled script needs it (pip install torch); "
            "tc-minify --check and --python work without"
        )


class Progress:
    """Says on stderr what is being done; on a terminal one line that changes."""

    def __init__(self) -> None:
        self.live = is_terminal(sys.stderr) and os.environ.get("TERM") != "dumb"

    def line(self, text: str) -> None:
        """A line that stays."""
        self._print(text, "\n")

    def now(self, text: str) -> None:
        """A line that the next one replaces; not shown where lines cannot be replaced."""
        if self.live:
            self._print(text[: shutil.get_terminal_size().columns - 1], "")

    def _print(self, text: str, end: str) -> None:
        clear = "\r\x1b[K" if self.live else ""
        complain(f"{clear}{text}", end)


def show(text: object, end: str = "\n") -> None:
    """Print a result; whoever reads the output may have seen enough of it."""
    try:
        print(text, end=end, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def agreeing(graphs: int) -> str:
    """`1 graph agrees`, `2 graphs agree`."""
    return f"{counted(graphs, 'graph')} agree{'s' if graphs == 1 else ''}"


@contextlib.contextmanager
def quiet_interrupts() -> Iterator[None]:
    """Finish a short work although Ctrl-C is pressed again."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
