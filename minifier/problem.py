"""Runs a script in a process of its own and returns what went wrong in it, as a `Problem`."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tc.minifier.case import Case, from_json
from tc.minifier.oracle import Answer, OracleError, Server

REDUCIBLE = ("crash", "wrong", "nan", "died", "timeout")


class NotReproduced(Exception):
    """There is nothing to reduce; the text says why."""


@dataclass(frozen=True)
class Problem:
    """What a run of a script showed.

    Attributes:
        kind: ``ok``; ``crash``, ``wrong``, ``nan``, ``died``, ``timeout``: a graph goes wrong;
            ``outside``: the compiler fails before there is a graph; ``script``, ``exit``: the
            script fails by itself.
        case: the graph that goes wrong, if it has a text.
        facts: graphs, calls, compiles, threads, and what else the run counted.
    """

    kind: str
    signature: str = ""
    message: str = ""
    case: Case | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def answer(self) -> Answer:
        """The same as what a judge says of a case."""
        return Answer(self.kind, self.signature, self.message, self.facts.get("detail") or {})

    @property
    def threads(self) -> int:
        """Threads the script's torch had."""
        return int(self.facts.get("threads", 1))


def recorded(
    server: Server,
    script: Path,
    arguments: Sequence[str],
    seconds: float,
    calls: tuple[int, bool] | None = None,
) -> Problem:
    """Run a script in a fork of the warm process; its output goes to ``script.log``.

    What a script sets in the environment for torch to read while it is loaded comes too late in a
    fork; it then runs again, below a process that began with it.

    Args:
        calls: how many calls of compiled functions run compiled (None: all), and whether the last
            of them has no compiled code to use.
    """
    server.warm(compiler_of(script.read_text(errors="replace")))
    problem = _in_fork(server, script, arguments, seconds, calls)
    variables = problem.facts.get("environment")
    if variables:
        server.restart(variables)
        problem = _in_fork(server, script, arguments, seconds, calls)
    server.threads = problem.threads
    return problem


def compiler_of(text: str) -> str:
    """Return the compiler that a script seems to use; wrong guesses cost seconds, no more."""
    if re.search(r"\btorch\s*\.\s*compile\b|\.compile\(\)", text):
        return "torch"
    return "tc" if re.search(r"\btc\b", text) else ""


def _in_fork(
    server: Server,
    script: Path,
    arguments: Sequence[str],
    seconds: float,
    calls: tuple[int, bool] | None,
) -> Problem:
    forget(server.folder)
    row = server.ask(
        {"do": "record", "script": str(script), "arguments": list(arguments), "seconds": seconds,
         "memory": 0, "limit": calls}
    )  # fmt: skip
    if row["kind"] == "refused":
        return record(script, arguments, server.folder, seconds)
    if row["kind"] == "invalid":
        raise OracleError(f"the script could not be run: {row['message']}")
    return _read(server.folder, row["status"], seconds)


def forget(folder: Path) -> None:
    """Remove what the last run left."""
    for name in ("problem.json", "begun.json"):
        (folder / name).unlink(missing_ok=True)


def record(
    script: Path,
    arguments: Sequence[str],
    folder: Path,
    seconds: float,
    environment: Mapping[str, str] | None = None,
) -> Problem:
    """Run a script under `tc.minifier.runner`; its output goes to ``folder/script.log``."""
    forget(folder)
    command = [sys.executable, "-m", "tc.minifier.runner", str(folder), str(script), *arguments]
    with (folder / "script.log").open("wb") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )
        try:
            status = process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    return _read(folder, status, seconds)


def _read(folder: Path, status: int | None, seconds: float) -> Problem:
    found, begun = folder / "problem.json", folder / "begun.json"
    if found.exists():
        problem = _problem(json.loads(found.read_text()))
        if problem.kind != "exit":
            return problem
        return replace(problem, message=f"{problem.message}: {last_line(folder)}")
    if status is None:
        kind, message = "timeout", f"the script did not end within {seconds:.0f} s"
    elif status < 0:
        kind, message = "died", f"the process died: {signal.Signals(-status).name}"
    else:
        kind, message = "exit", f"the process ended with exit code {status}: {last_line(folder)}"
    if begun.exists() and kind in ("timeout", "died"):
        row = json.loads(begun.read_text())
        return _problem({**row, "kind": kind, "signature": kind, "message": message})
    return Problem(kind if kind == "exit" else "script", message=message)


def last_line(folder: Path) -> str:
    """Return the last line that a script printed."""
    lines = (folder / "script.log").read_text(errors="replace").strip().splitlines()
    return lines[-1].strip() if lines else "it printed nothing"


def _problem(row: dict[str, Any]) -> Problem:
    case = from_json(row["case"]) if "case" in row else None
    facts = {k: v for k, v in row.items() if k not in ("case", "kind", "signature", "message")}
    return Problem(row["kind"], row["signature"], row["message"] or "", case, facts)
