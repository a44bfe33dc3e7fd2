"""Runs a finished file as a stranger would: a fresh process, an empty folder, several times."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tc.minifier.oracle import Answer

TOGETHER = 2  # processes at a time


def fails_alike(path: Path, answer: Answer, seconds: float) -> bool:
    """Whether one run of the file ends in the failure it was made for."""
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
    if answer.kind in ("wrong", "nan"):
        return done.returncode == 1 and "AssertionError" in done.stderr
    if answer.kind == "died":
        return done.returncode < 0
    return done.returncode == 1 and str(answer.detail.get("type", "")) in done.stderr


def verified(path: Path, answer: Answer, seconds: float, times: int = 5) -> int:
    """Return how many of several runs fail alike."""
    with ThreadPoolExecutor(TOGETHER) as pool:
        return sum(pool.map(lambda _: fails_alike(path, answer, seconds), range(times)))
