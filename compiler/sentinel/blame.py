"""Names the guilty step of a finding: `tc-bisect` on its repro, in the background.

The tool is another program. It is started by name, in a process of its own, so that the compiler
imports nothing of it; a process that is short of memory or time only loses the verdict.
"""

from __future__ import annotations

import atexit
import json
import os
import queue
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tc import trace
from tc.compiler.sentinel.graph import Graph
from tc.compiler.sentinel.repro import SCRIPT
from tc.trace import commands

VERDICT = "verdict.json"
LOG = "bisect.log"
LIMIT = 900.0  # seconds for one repro
AT_EXIT = 120.0  # seconds that a process with an open trace waits for a verdict
#: a comment in a repro: the line of the program that the code below it comes from
ORIGIN = re.compile(r"\s*# File: (.+:\d+) in ")
#: variables that must not reach the tool: it would check, or write, what the program does
OWN = ("TC_SENTINEL", "TC_CHECK", "TC_TRACE", "TC_LOGS", "TC_BISECT")


def command(folder: Path) -> str:
    """Return the command that names the step."""
    return str(commands.command("tc-bisect", folder / SCRIPT))


class _Blamer:
    """Runs one tool at a time, in a thread that is there only while there is work."""

    def __init__(self) -> None:
        self.start_over()
        os.register_at_fork(after_in_child=self.start_over)

    def start_over(self) -> None:
        """In a forked child: what runs is the parent's."""
        self.work: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.lock = threading.Lock()
        self.left = 0
        self.done = threading.Event()

    def add(self, job: Callable[[], None]) -> None:
        """Do a job after those that wait."""
        with self.lock:
            self.left += 1
            first = self.left == 1
            self.done.clear()
            self.work.put(job)
        if first:
            atexit.unregister(self.wait)
            atexit.register(self.wait)
            threading.Thread(target=self._run, name="tc sentinel", daemon=True).start()

    def _run(self) -> None:
        while True:
            self.work.get()()
            with self.lock:
                self.left -= 1
                if not self.left:
                    self.done.set()
                    return

    def wait(self, seconds: float = AT_EXIT) -> None:
        """Wait for the verdicts, where a trace is open that is to have them."""
        if self.left and trace.enabled() and not self.done.is_set():
            trace.warn(
                f"the sentinel waits up to {seconds:.0f} s for tc-bisect, so that the trace has "
                "its verdict; Ctrl-C ends the wait, and the verdict is written next to the repro"
            )
            self.done.wait(seconds)


_blamer = _Blamer()


def blame(graph: Graph, folder: Path) -> None:
    """Find the guilty step of a repro in the background; the verdict is an event and a file."""
    _blamer.add(lambda: _blamed(graph, folder))


def wait(seconds: float = AT_EXIT) -> bool:
    """Wait until all verdicts are there; False if the time did not suffice."""
    return not _blamer.left or _blamer.done.wait(seconds)


def _blamed(graph: Graph, folder: Path) -> None:
    began = time.monotonic()
    try:
        verdict = _verdict(folder)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        verdict = {"verdict": "inconclusive", "title": f"tc-bisect did not finish: {error}"}
    seconds = round(time.monotonic() - began, 2)
    _report(graph, folder, verdict, seconds)
    trace.warn(f"sentinel: {verdict.get('title', '')} ({command(folder)})")


@trace.reports(trace.nothing)
def _report(graph: Graph, folder: Path, verdict: Mapping[str, Any], seconds: float) -> None:
    graph.emit(
        trace.SentinelVerdict(
            repro=str(folder / SCRIPT),
            verdict=str(verdict.get("verdict", "")),
            title=str(verdict.get("title", "")),
            stage=str(verdict.get("stage", "") or ""),
            step=str(verdict.get("step", "") or ""),
            lines=tuple(_own_lines(folder, verdict.get("lines", ()))),
            works_if=str(verdict.get("workaround", "") or ""),
            seconds=seconds,
        )
    )


def _own_lines(folder: Path, lines: Sequence[str]) -> list[str]:
    """Return the program's lines for those of a repro, which names them in comments."""
    text = (folder / SCRIPT).read_text().splitlines()
    found: dict[str, None] = {}
    for line in lines:
        number = line.rpartition(":")[2]
        above = text[: int(number)] if number.isdigit() else []
        origins = [match[1] for row in above if (match := ORIGIN.match(row))]
        found[origins[-1] if origins else line] = None
    return list(found)


def _verdict(folder: Path) -> dict[str, Any]:
    """Run the tool, unless an earlier process did.

    A graph that is right alone is tried with the caches that the program uses. The tool writes its
    verdict to disk itself, so that it is there even if this process ends before.
    """
    path = folder / VERDICT
    if path.exists() and (known := _read(path)):
        return known
    found = _ask(folder)
    if found.get("verdict") != "no bug":
        return found
    found = _ask(folder, "--own-caches")
    if found.get("verdict") == "bug":
        return {**found, "title": f"it fails only with your cache: {found.get('title', '')}"}
    text = (
        "the repro alone gives right results: the failure depends on what the process did before "
        "(memory, threads, or a hardware fault)"
    )
    return {**found, "verdict": "inconclusive", "title": text}


def _ask(folder: Path, *options: str) -> dict[str, Any]:
    kept = {name: value for name, value in os.environ.items() if name not in OWN}
    nice = ["nice", "-n", "10"] if shutil.which("nice") else []
    tool = [sys.executable, "-m", "tc.minifier.bisect", str(folder / SCRIPT), "--json", *options]
    with (folder / LOG).open("ab") as log, (folder / VERDICT).open("wb") as verdict:
        done = subprocess.run(
            [*nice, *tool], env=kept, stdout=verdict, stderr=log,
            stdin=subprocess.DEVNULL, timeout=LIMIT, start_new_session=True,
        )  # fmt: skip
    if not (found := _read(folder / VERDICT)):
        raise ValueError(f"exit code {done.returncode}; see {folder / LOG}")
    return found


def _read(path: Path) -> dict[str, Any]:
    lines = path.read_text(errors="replace").strip().splitlines()
    try:
        found: dict[str, Any] = json.loads(lines[-1]) if lines else {}
    except ValueError:  # the tool was ended while it wrote
        return {}
    return found
