"""Reduces a script as text, where the compiler fails before or beside a graph."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path

from tc.minifier import verify, writer
from tc.minifier.console import (
    INTERRUPTED,
    NOT_REPRODUCED,
    OK,
    Progress,
    quiet_interrupts,
)
from tc.minifier.oracle import Answer, ScriptOracle
from tc.minifier.passes import source
from tc.minifier.problem import NotReproduced, Problem


@dataclass
class ScriptJob:
    """One reduction, from the failing script to the verified file."""

    oracle: ScriptOracle
    output: Path
    progress: Progress
    start: float
    budget: float = float("inf")
    answer: Answer = field(default_factory=lambda: Answer("ok"))
    stopped: str = ""
    best: str = ""
    before: int = 0

    def run(self, text: str, problem: Problem, as_json: bool) -> int:
        """Reduce, verify, report; returns the exit code.

        Raises:
            NotReproduced: the script does not fail in a warm process.
        """
        self.progress.line(f"the compiler fails: {problem.message}")
        self.before = len(text.splitlines())
        self.answer = self.oracle.judge(text)
        if not self.answer.signature:
            raise NotReproduced(f"{problem.message}; run again the script does not fail")
        self.oracle.signature = self.answer.signature
        self.oracle.blameless = self.oracle.judge(text, eager=True).kind == "ok"
        if not self.oracle.blameless and self.answer.kind != "outside":
            raise NotReproduced(f"{problem.message}; it fails without the compiler, too")
        self.oracle.deadline = self.start + self.budget
        try:
            self.improved(text)
            source.reduced(text, self.oracle.fails, self.improved)
        except KeyboardInterrupt:
            self.stopped = "interrupted"
        if time.monotonic() > self.oracle.deadline:
            self.stopped = self.stopped or "out of time"
        return self.finish(as_json)

    def improved(self, text: str) -> None:
        """Tell of an improvement, and keep it on disk."""
        self.best = text
        self.progress.now(f"{len(text.splitlines())} lines after {self.oracle.asked} tries")
        writer.write(self.output, self.full_text())

    def full_text(self) -> str:
        """The file: what fails, and the script."""
        return "\n".join([*writer.title(self.answer), *writer.made_by(), self.best, ""])

    def finish(self, as_json: bool) -> int:
        """Write, verify and report the result."""
        with quiet_interrupts():
            writer.write(self.output, self.full_text())
            good = 0 if self.stopped == "interrupted" else self.verified()
        self.report(good, as_json)
        if self.stopped == "interrupted":
            return INTERRUPTED
        return OK if good else NOT_REPRODUCED

    def verified(self) -> int:
        """Run the file, return how many runs fail alike."""
        return verify.failures(self.output, self.answer, self.oracle.seconds, self.oracle.server)

    def report(self, good: int, as_json: bool) -> None:
        """Print the result."""
        text = self.output.read_text()
        lines, took = len(text.splitlines()), time.monotonic() - self.start
        if as_json:
            print(json.dumps({
                "schema": 1, "failure": "script", "message": self.answer.message,
                "signature": self.answer.signature, "file": str(self.output), "lines": lines,
                "lines_before": self.before, "self_contained": True, "verified": good,
                "runs": verify.RUNS, "tries": self.oracle.asked, "stopped": self.stopped or None,
                "cpu_seconds": round(self.oracle.cpu, 2), "seconds": round(took, 2),
            }))  # fmt: skip
            return
        how = f" ({self.stopped})" if self.stopped else ""
        self.progress.line(
            f"reduced {self.before} → {lines} lines in {took:.1f} s, {self.oracle.asked} tries{how}"
        )
        verdict = f"fails alike in {good} of {verify.RUNS} runs" if good else "not verified"
        self.progress.line(f"{self.output}: {verdict}")
        print(text, end="")
