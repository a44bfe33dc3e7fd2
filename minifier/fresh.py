"""Runs a program in a process of its own, by whatever Python, and returns how it ended."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tc.minifier import identity
from tc.minifier.answer import Answer
from tc.minifier.caches import caches_of_one_run
from tc.minifier.identity import Identity
from tc.minifier.limits import TimeLimit

ANSWERS: Final = 2.0  # seconds in which a process that does not end says what it is doing


@dataclass(frozen=True)
class Fresh:
    """How programs are run.

    Attributes:
        home: where a program finds its neighbours; None: its own folder.
        seconds: limit for one run, beside those in which it loads its libraries.
        variables: of the environment, beside those of this process.
    """

    seconds: float
    python: str = sys.executable
    home: Path | None = None
    arguments: Sequence[str] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    loading: float = 0.0

    def run(self, program: Path, cwd: Path | None = None) -> Answer:
        """Run a program in a folder; None: in an empty one."""
        with (
            tempfile.TemporaryDirectory(prefix="run-", ignore_cleanup_errors=True) as name,
            caches_of_one_run() as caches,
        ):
            folder = Path(name)
            empty = folder / "cwd"
            empty.mkdir()
            home = self.home or program.resolve().parent
            command = [
                self.python, "-c", identity.BOOT, identity.__file__, str(folder / "result.json"),
                str(home), str(program.resolve()), *self.arguments,
            ]  # fmt: skip
            with (folder / "errors").open("wb") as errors:
                process = subprocess.Popen(
                    command,
                    cwd=cwd or empty,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=errors,
                    env={**os.environ, **caches, **self.variables},
                    start_new_session=True,
                )
                try:
                    status = TimeLimit(self.seconds + self.loading).wait(process)
                except subprocess.TimeoutExpired:
                    return hang(ask_process(process.pid, str(folder / "result.json.stack")))
                finally:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
            return ended(status, folder)


def ask_process(pid: int, stack: str) -> dict[str, Any]:
    """Ask the leader of a group what it is doing; it has to `identity.watch` the file."""
    with contextlib.suppress(OSError):
        os.kill(pid, identity.ASK)
    limit = TimeLimit(ANSWERS)
    while not os.path.exists(stack) and not limit.has_passed(pid):
        time.sleep(0.02)
    return identity.asked(stack)


def hang(doing: Mapping[str, Any]) -> Answer:
    """Return the answer of a process that does not end."""
    found = identity.of_hang(doing)
    where = f"hangs in {found.stage or 'the script'}"
    if found.operation:
        where += f", {found.operation}"
    if doing.get("line"):
        runs = found.stage in ("", identity.COMPILED)
        where += f", while {'running' if runs else 'lowering'} {doing['line']}"
    return Answer("timeout", found, where, {"line": doing.get("line", ""), "text": found.operation})


def left_with(status: int) -> Answer:
    """Return the answer of a process that ended itself without a word of how (`os._exit`)."""
    text = f"exit code {status}"
    return Answer("exit", Identity("exit", message=text), text) if status else Answer("ok")


def ended(status: int, folder: Path) -> Answer:
    """Return the answer of a process that ended by itself."""
    if status < 0:
        name = signal.Signals(-status).name
        return Answer("died", identity.of_death(name), f"the process died: {name}")
    try:
        row = json.loads((folder / "result.json").read_text())
    except (OSError, ValueError):
        return left_with(status)
    if row["identity"] is None:
        return Answer("ok")
    found = Identity.of_json(row["identity"])
    lines = (folder / "errors").read_text(errors="replace").strip().splitlines()
    last = identity.first_line(lines[-1])[:200] if lines else str(found)
    kinds = {"wrong": "wrong", "nan": "nan", "accepts": "accepts", "exit": "exit"}
    return Answer(kinds.get(found.kind, "script"), found, last)
