"""In a real terminal: from the symptom to the line in the editor, and back to a clean shell."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import ROOT

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")


class Terminal:
    """A terminal of 100 by 30 with a shell in it."""

    def __init__(self, folder: Path) -> None:
        self.name = f"tc-{os.getpid()}"
        environment = {k: v for k, v in os.environ.items() if k not in ("TMUX", "NO_COLOR")}
        environment |= {"PYTHONPATH": str(ROOT), "LC_ALL": "C.UTF-8"}
        self.run("-f", "/dev/null", "new-session", "-d", "-x", "100", "-y", "30", "sh",
                 cwd=folder, env=environment)  # fmt: skip

    def run(self, *arguments: str, **how: Any) -> str:
        done = subprocess.run(
            ["tmux", "-L", self.name, *arguments], capture_output=True, text=True, check=True, **how
        )
        return done.stdout

    def type(self, *keys: str) -> None:
        self.run("send-keys", *keys)

    def shows(self, words: str, seconds: float = 20) -> str:
        """Wait until words are on the screen; return the screen."""
        until = time.monotonic() + seconds
        while True:
            screen = self.run("capture-pane", "-p")
            if words in screen:
                return screen
            assert time.monotonic() < until, f"no {words!r} in:\n{screen}"
            time.sleep(0.05)


@pytest.fixture
def terminal(trace: Path, tmp_path: Path) -> Iterator[Terminal]:
    one = Terminal(tmp_path)
    yield one
    one.run("kill-server")


def test_from_the_symptom_to_the_editor_and_back(terminal: Terminal, tmp_path: Path) -> None:
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\necho "editing $@" > edited\n')
    editor.chmod(0o755)
    terminal.type(
        f"EDITOR=./editor {sys.executable} -m tc.tui tc_trace; echo left with $?", "Enter"
    )
    terminal.shows("1 Findings 5")
    terminal.type("G", "k", "k", "Enter")
    screen = terminal.shows("^^^^^^^^^^^^^^")  # under what breaks the graph
    assert 'print("value", y.sum().item())' in screen
    terminal.type("o")
    edited = tmp_path / "edited"
    until = time.monotonic() + 20
    # The shell makes the file before it writes to it.
    while not (edited.exists() and edited.read_text()) and time.monotonic() < until:
        time.sleep(0.05)
    assert edited.read_text() == "editing +12 model.py\n"
    terminal.shows("1 Findings 5")
    terminal.type("q")
    assert "1 Findings" not in terminal.shows("left with 0")
