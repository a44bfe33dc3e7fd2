"""Runs a script in a process of its own and returns what went wrong in it, as a `Problem`."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tc.minifier import fresh, identity, spawned
from tc.minifier.answer import Answer
from tc.minifier.caches import caches_of_one_run
from tc.minifier.case import Case, from_json, to_json
from tc.minifier.identity import Identity
from tc.minifier.limits import LOADING, TimeLimit
from tc.minifier.odds import runs_for
from tc.minifier.oracle import WITH_TC, OracleError, Server
from tc.minifier.passes import rendering

LOOKS = 20  # at what does not fail at once, as long as they take `PATIENCE` seconds
PATIENCE = 8.0
SURE = runs_for(0.5)  # looks that miss a failure in half of the runs as good as never
LONG = 60.0  # seconds that these may take
APART = (2,)  # looks that are no forks: strings hash in another way, addresses differ
RUNNER = f"{WITH_TC}from tc.minifier.runner import main; main()"
TAIL = 1 << 16  # bytes of what a script printed that its last line is looked for in
HASH_SEED = "PYTHONHASHSEED"
REDUCIBLE = ("crash", "wrong", "nan", "accepts", "died", "timeout")


class NotReproduced(Exception):
    """There is nothing to reduce; the text says why."""


@dataclass(frozen=True)
class Problem:
    """What a run of a script showed.

    Attributes:
        kind: ``ok``; ``crash``, ``wrong``, ``nan``, ``accepts``, ``died``, ``timeout``: a graph
            goes wrong; ``outside``: the compiler fails before there is a graph; ``script``,
            ``exit``: the script fails by itself.
        case: the graph that goes wrong, if it has a text.
        facts: graphs, calls, compiles, threads, and what else the run counted.
    """

    kind: str
    identity: Identity | None = None
    message: str = ""
    case: Case | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)

    def renamed(self, named: Callable[[str], str]) -> Problem:
        """Return the problem with other names of places, as far as people read them."""
        case = self.case
        if case is not None:
            steps = (replace(step, where=named(step.where)) for step in case.steps)
            case = replace(case, steps=tuple(steps))
        return replace(self, message=named(self.message), case=case)

    @property
    def answer(self) -> Answer:
        """The same as what a judge says of a case."""
        return Answer(self.kind, self.identity, self.message, self.facts.get("detail") or {})

    @property
    def threads(self) -> int:
        """Threads the script's torch had."""
        return int(self.facts.get("threads", 1))


@dataclass(frozen=True)
class Run:
    """How a script is run.

    Attributes:
        home: where it finds its neighbours; None: its own folder.
        seconds: limit.
        sequence: keep every call of a graph.
        cwd: where it runs; None: where the user is.
    """

    script: Path
    arguments: Sequence[str] = ()
    seconds: float = 600
    home: Path | None = None
    sequence: bool = False
    cwd: Path | None = None

    @property
    def file(self) -> str:
        """The script, as it is found from where it runs."""
        return str(self.script if self.cwd is None else self.script.resolve())

    @property
    def folder(self) -> str:
        """Where it finds its neighbours, as text."""
        return str(self.home or self.script.resolve().parent)


def recorded(server: Server, run: Run, calls: tuple[int, bool] | None = None) -> Problem:
    """Run a script in a fork of the warm process; its output goes to ``script.log``.

    What a script sets in the environment for torch to read while it is loaded comes too late in a
    fork; it then runs again, below a process that began with it.

    Args:
        calls: how many calls of compiled functions run compiled (None: all), and whether the last
            of them has no compiled code to use.
    """
    server.warm(compiler_of(rendering.source_of(run.script)))
    problem = _in_fork(server, run, calls)
    variables = problem.facts.get("environment")
    if variables:
        server.restart(variables)
        problem = _in_fork(server, run, calls)
    server.threads = problem.threads
    return problem


def until_it_fails(
    server: Server, run: Run, again: Run, runs: int, report: Callable[[str], None]
) -> tuple[Problem, int]:
    """Run a script until it fails, as often as is sensible.

    Args:
        again: how it is run from the second time on.
        runs: as asked for; 0: as found fit.
        report: takes a line about each look from the second on.

    Returns:
        What the last run showed, and how many there were.
    """
    problem, looks = recorded(server, run), 1
    began = time.monotonic()  # the first run may have waited for the compiler to be loaded
    while problem.kind == "ok" and problem.facts.get("compiles"):
        if not more_looks(looks, time.monotonic() - began, runs):
            break
        looks += 1
        report(f"it did not fail; look {looks} …")
        problem = recorded(server, again) if looks not in APART else _apart(server, again, looks)
    return problem, looks


def _apart(server: Server, run: Run, number: int) -> Problem:
    """Run a script in a process of its own; where it fails, later forks hash as it did."""
    hashing = {HASH_SEED: os.environ.get(HASH_SEED, str(number))}
    problem = record(run, server.folder, hashing)
    if problem.kind != "ok":
        server.restart(hashing)
    return problem


def more_looks(looks: int, seconds: float, runs: int = 0) -> bool:
    """Return whether a script that did not fail is to be run again.

    Args:
        looks: runs so far.
        seconds: what those behind the first took.
        runs: as asked for; 0: as found fit.
    """
    if runs:
        return looks < runs
    return (
        looks < 2
        or (looks < SURE and seconds < LONG)
        or (looks < LOOKS and seconds < PATIENCE)
    )  # fmt: skip


def looks(runs: int = 0) -> Iterator[int]:
    """Number the looks at what did not fail yet: as many as a script gets.

    Args:
        runs: as asked for; 0: as found fit.
    """
    number = 0
    began = time.monotonic()
    while number == 0 or more_looks(number, time.monotonic() - began, runs):
        yield number
        number += 1
        if number == 1:
            began = time.monotonic()  # the first may have waited for the compiler to be loaded


def compiler_of(text: str) -> str:
    """Return the compiler that a script seems to use; wrong guesses cost seconds, no more."""
    if re.search(r"\btorch\s*\.\s*compile\b|\.compile\(\)", text):
        return "torch"
    return "tc" if re.search(r"\btc\b", text) else ""


def _in_fork(server: Server, run: Run, calls: tuple[int, bool] | None) -> Problem:
    forget(server.folder)
    row = server.ask(
        {"do": "record", "script": run.file, "cwd": str(run.cwd or Path.cwd()),
         "arguments": list(run.arguments),
         "seconds": run.seconds, "home": run.folder, "memory": 0, "limit": calls,
         "sequence": run.sequence}
    )  # fmt: skip
    if row["kind"] == "refused":
        return record(run, server.folder)
    if row["kind"] == "invalid":
        raise OracleError(f"the script could not be run: {row['message']}")
    hang = Answer.of(row) if row["kind"] == "timeout" else None
    return _read(server.folder, row["status"], hang)


def forget(folder: Path) -> None:
    """Remove what the last run left."""
    for name in ("problem.json", "begun.json", "used.json"):
        (folder / name).unlink(missing_ok=True)
    for path in spawned.left_by_others(folder):
        path.unlink(missing_ok=True)


def record(run: Run, folder: Path, environment: Mapping[str, str] | None = None) -> Problem:
    """Run a script under `tc.minifier.runner`; its output goes to ``folder/script.log``."""
    forget(folder)
    stack = folder / "stack.json"
    stack.unlink(missing_ok=True)
    command = [
        sys.executable, "-c", RUNNER, str(folder), run.folder, run.file,
        *run.arguments,
    ]  # fmt: skip
    hang: Answer | None = None
    with (folder / "script.log").open("wb") as log, caches_of_one_run() as caches:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=run.cwd,
            env={**os.environ, **caches, **(environment or {})},
            start_new_session=True,
        )
        try:
            status: int | None = TimeLimit(run.seconds + LOADING).wait(process)
        except subprocess.TimeoutExpired:
            status = None
            hang = fresh.hang(fresh.ask_process(process.pid, str(stack)))
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return _read(folder, status, hang)


def _read(folder: Path, status: int | None, hang: Answer | None) -> Problem:
    found, begun = folder / "problem.json", folder / "begun.json"
    row = spawned.with_counts(json.loads(found.read_text()), folder) if found.exists() else None
    elsewhere = row is not None and row.get(spawned.ELSEWHERE)  # which ends the first process
    if row is not None and (elsewhere or (hang is None and (status or 0) >= 0)):
        problem = problem_of_row(row)
        if problem.kind != "exit" or not problem.answer.detail.get("printed", True):
            return problem  # it is known what it says
        return replace(problem, message=f"{problem.message}: {last_line(folder)}")
    if hang is not None:
        answer = hang
    elif status is not None and status < 0:
        name = signal.Signals(-status).name
        answer = Answer("died", identity.of_death(name), f"the process died: {name}")
    elif status == 0:  # another program took the place of this one (`os.execv`)
        answer = Answer("ok")
    else:
        text = f"the process ended with exit code {status}: {last_line(folder)}"
        return Problem("exit", Identity("exit", message=f"exit code {status}"), text)
    for begun in (folder / "begun.json", folder / "used.json"):
        if begun.exists():
            row = json.loads(begun.read_text())
            return problem_of_row({**row, **answer.as_json()})
    return Problem(answer.kind, answer.identity, answer.message)


def last_line(folder: Path) -> str:
    """Return the last line that a script printed."""
    with (folder / "script.log").open("rb") as log:
        log.seek(max(log.seek(0, os.SEEK_END) - TAIL, 0))
        lines = log.read().decode(errors="replace").strip().splitlines()
    return identity.first_line(lines[-1])[:200] if lines else "it printed nothing"


def problem_of_row(row: Mapping[str, Any]) -> Problem:
    """Return the problem of a run's file."""
    case = from_json(row["case"]) if "case" in row else None
    facts = {k: v for k, v in row.items() if k not in ("case", "kind", "identity", "message")}
    found = Identity.of_json(row["identity"]) if row["identity"] else None
    return Problem(row["kind"], found, row["message"] or "", case, facts)


def row_of(problem: Problem) -> dict[str, Any]:
    """Return a problem as plain data, for `problem_of_row`."""
    found = problem.identity.as_json() if problem.identity else None
    row = {**problem.facts, "kind": problem.kind, "identity": found, "message": problem.message}
    return {**row, "case": to_json(problem.case)} if problem.case else row
