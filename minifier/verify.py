"""Runs a finished file as a stranger would: in processes of their own, in an empty folder.

The first is a fresh interpreter, started from nothing. The others are forked from one that has
loaded torch and the compiler and nothing else of the file, which spares them seconds of loading.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tc.minifier.oracle import Answer, Server


def fails_alike(path: Path, answer: Answer, seconds: float) -> bool:
    """Whether the file, run by a fresh interpreter, ends in the failure it was made for."""
    with tempfile.TemporaryDirectory(prefix="tc-minify-") as empty:
        try:
            done = subprocess.run(
                [sys.executable, str(path.resolve())],
                cwd=empty,
                capture_output=True,
                text=True,
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
