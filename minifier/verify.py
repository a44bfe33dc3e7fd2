"""Runs a finished file as a stranger would: in fresh processes, in empty folders.

Each is a fresh interpreter, started from nothing. Where PyTorch's own compiler fails, whose loading
takes longer than the search, only the first is; the others are forks of a process that has loaded
it, compiled x + 1 and nothing else.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from tc.minifier.oracle import Answer, Server

RUNS: Final = 5
AT_A_TIME: Final = 2


def failures(path: Path, answer: Answer, seconds: float, server: Server) -> int:
    """Return how many of `RUNS` runs of a file end in the failure it was made for.

    Where the first does not, none is counted.
    """
    if not fails_alike(path, answer, seconds):
        return 0
    if server.compiler == "torch":
        return 1 + sum(fails_again(path, answer, seconds, server) for _ in range(RUNS - 1))
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        again = pool.map(lambda _: fails_alike(path, answer, seconds), range(RUNS - 1))
        return 1 + sum(again)


def fails_alike(path: Path, answer: Answer, seconds: float) -> bool:
    """Whether the file, run by a fresh interpreter, ends in the failure it was made for."""
    with tempfile.TemporaryDirectory(prefix="tc-minify-") as empty:
        try:
            done = subprocess.run(
                [sys.executable, str(path.resolve())],
                cwd=empty,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=seconds + 30,
                env=os.environ,
                stdin=subprocess.DEVNULL,
            )
        except subprocess.TimeoutExpired:
            return answer.kind == "timeout"
    if done.returncode < 0:
        return answer.kind == "died"
    return done.returncode == 1 and _is_alike(done.stderr, answer)


def fails_again(path: Path, answer: Answer, seconds: float, server: Server) -> bool:
    """The same in a child of the warm process."""
    with tempfile.TemporaryDirectory(prefix="tc-minify-") as empty:
        row = server.ask(
            {"do": "rerun", "path": str(path.resolve()), "folder": empty, "seconds": seconds}
        )
    if row["kind"] in ("died", "timeout"):
        return bool(row["kind"] == answer.kind)
    return row["kind"] == "raised" and _is_alike(row["traceback"], answer)


def _is_alike(traceback: str, answer: Answer) -> bool:
    if answer.kind in ("wrong", "nan"):
        return "AssertionError" in traceback
    return "type" in answer.detail and str(answer.detail["type"]) in traceback
