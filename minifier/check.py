"""Oracles that need neither torch nor tc: a command of the user's, or another Python.

``--check COMMAND``: exit code 0 says that the program still fails, 125 that it cannot be judged,
any other that it does not. ``--python PYTHON``: the program is run by it; how it ends is compared.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from tc.minifier.answer import Answer
from tc.minifier.caches import caches_of_one_run
from tc.minifier.fresh import Fresh
from tc.minifier.identity import ALONE, Identity
from tc.minifier.limits import TimeLimit
from tc.minifier.mirror import Mirror
from tc.minifier.oracle import Search

SKIP: Final = 125
#: what the shell says of a command that it could not run
NOT_RUN: Final = {126: "cannot be executed", 127: "was not found"}
#: prints the versions of a Python that need not have tc, or torch
VERSIONS: Final = f"""{ALONE}
import platform
try:
    from importlib.metadata import version
    print(end="torch " + version("torch").partition("+")[0] + ", ")
except ImportError:
    pass
print("Python", platform.python_version())
"""
VARIABLE: Final = "TC_MINIFY_FILE"  # names the candidate to the command


@dataclass(kw_only=True)
class ProgramOracle(Search):
    """Judges the texts of programs by running them.

    Attributes:
        runs: runs a file in its own folder, for so many seconds at most.
        home: a folder whose files lie beside each candidate.
        name: of the candidate's file.
        versions: of what runs it; nothing: they are not known.
        mirror: where candidates lie, below a folder of this oracle's own.
    """

    runs: Callable[[Path, float], Answer]
    home: Path
    name: str
    versions: str = ""
    mirror: Mirror | None = None
    own: tempfile.TemporaryDirectory[str] | None = None

    def ask(self, text: str) -> Answer:
        """Run a program once."""
        return self.runs(self.placed(text), self.seconds)

    def judge(self, text: str) -> Answer:
        """Return how a program fares."""
        return self.answered(text, lambda: self.ask(text))

    def fails(self, text: str) -> bool:
        """Return whether a program fails in the way that is looked for."""
        return self.is_target(self.judge(text))

    def placed(self, text: str) -> Path:
        """Write a program into a folder that shows what is in its home; returns its path."""
        if self.mirror is None:
            self.own = tempfile.TemporaryDirectory(prefix="check-", ignore_cleanup_errors=True)
            self.mirror = Mirror(Path(self.own.name, "home"), self.home, self.name)
        path = self.mirror.ready() / self.name
        path.write_text(text, encoding="utf-8")
        return path


@dataclass(frozen=True)
class Command:
    """A command of the user's; ``{}`` in it is the candidate's path."""

    text: str

    @property
    def identity(self) -> Identity:
        """The identity of its failure."""
        return Identity("check", message=self.text)

    def __call__(self, path: Path, seconds: float) -> Answer:
        """Run it on a candidate."""
        with caches_of_one_run() as caches:
            return self.answer(path, seconds, caches)

    def answer(self, path: Path, seconds: float, caches: Mapping[str, str]) -> Answer:
        """Run it with caches of its own."""
        process = subprocess.Popen(
            ["sh", "-c", self.text.replace("{}", shlex.quote(str(path)))],
            cwd=path.parent,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **caches, VARIABLE: str(path)},
            start_new_session=True,
        )
        try:
            code = TimeLimit(seconds).wait(process)
        except subprocess.TimeoutExpired:
            return Answer("skip", message=f"the check did not end within {seconds:.0f} s")
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if code == 0:
            return Answer("check", self.identity, f"the check holds: {self.text}")
        return Answer(
            "skip" if code == SKIP else "ok",
            message=f"the check ends with {code}",
            detail={"code": code},
        )


@dataclass(frozen=True)
class Interpreter:
    """Another Python, by which programs are run."""

    fresh: Fresh

    def __call__(self, path: Path, seconds: float) -> Answer:
        """Run a candidate."""
        return replace(self.fresh, seconds=seconds).run(path, cwd=path.parent)

    @property
    def versions(self) -> str:
        """Return the versions that the other Python reports; nothing, where it reports none."""
        try:
            done = subprocess.run(
                [self.fresh.python, "-c", VERSIONS],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=self.fresh.seconds,
            )
        except (OSError, subprocess.TimeoutExpired):
            return ""
        return done.stdout.strip() if done.returncode == 0 else ""
