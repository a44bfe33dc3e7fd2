"""Reduces a script as text, where the compiler fails before or beside a graph."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tc.minifier import writer
from tc.minifier.answer import Answer
from tc.minifier.check import ProgramOracle
from tc.minifier.console import quiet_interrupts
from tc.minifier.job import HUNG, Result, Setting
from tc.minifier.limits import until, why_stopped
from tc.minifier.oracle import MEASURED, ScriptOracle
from tc.minifier.passes import modules, source
from tc.minifier.problem import NotReproduced
from tc.minifier.verify import RUNS
from tc.trace.commands import quoted
from tc.trace.words import count as counted

LIMIT: Final = "limit.json"  # the file of the journal that holds the limit of a candidate
SLOWER: Final = 5  # times as long as the first program; a candidate that takes longer waits in vain

Oracle = ScriptOracle | ProgramOracle
Verify = Callable[[Path, int], int]


@dataclass
class ScriptJob:
    """One reduction, from the failing script to the verified file.

    Attributes:
        verify: returns how many of so many runs of a file fail alike.
        took: seconds that the program took when it failed.
    """

    setting: Setting
    oracle: Oracle
    verify: Verify
    answer: Answer = field(default_factory=lambda: Answer("ok"))
    stopped: str = ""
    best: str = ""
    took: float = 0.0

    def begin(self, text: str, looks: Iterable[int] = (0,)) -> bool:
        """See whether a script fails as is looked for; whichever way, where nothing is.

        Args:
            looks: numbers of the runs until it does.
        """
        for number in looks:
            began = time.monotonic()
            question = f"{text}\n# look {number}" if number else text
            self.answer = self.oracle.answered(question, lambda: self.oracle.ask(text))
            self.took = time.monotonic() - began
            if self.oracle.akin is None and self.answer.failed:
                self.oracle.target = self.answer.identity
            if self.oracle.is_target(self.answer):
                return True
        return False

    def run(self, text: str) -> int:
        """Reduce, verify, report; returns the exit code.

        Raises:
            NotReproduced: the script fails without the compiler, too.
        """
        oracle = self.oracle
        if isinstance(oracle, ScriptOracle):
            oracle.blameless = oracle.is_sound(text)
            if not oracle.blameless and self.answer.kind != "outside":
                raise NotReproduced(f"{self.answer.message}; it fails without the compiler, too")
        oracle.seconds = min(oracle.seconds, self.limit())
        self.setting.measure(oracle, text, lambda: oracle.ask(text))
        oracle.deadline = self.setting.deadline
        self.best = text
        try:
            self.improved(text, "script")
            with until(oracle.deadline):
                self.shortened(text)
        except KeyboardInterrupt as stop:
            self.stopped = why_stopped(stop)
        if time.monotonic() > oracle.deadline:
            self.stopped = self.stopped or "out of time"
        return self.finish(text)

    def shortened(self, text: str) -> None:
        """Cut a script: first its modules stand in it, then its syntax tree is edited."""
        fails, home = self.oracle.fails, self.setting.subject.home
        whole = modules.inlined(text, home, fails, lambda one: self.improved(one, "inlined"))
        source.reduced(whole, fails, lambda one: self.improved(one, "text"))

    def limit(self) -> float:
        """Return the seconds that a candidate may take; the same in a reduction that is resumed."""
        journal = self.setting.journal
        if (known := journal.load(LIMIT)) is not None:
            return float(known)
        limit = HUNG if self.answer.kind == "timeout" else max(HUNG, SLOWER * self.took)
        journal.save(LIMIT, limit)
        return limit

    def improved(self, text: str, name: str) -> None:
        """Report an improvement, and keep it on disk."""
        self.best = text
        lines = len(text.splitlines())
        self.setting.progress.now(
            f"{counted(lines, 'line')} after {counted(self.oracle.asked, 'try')}"
        )
        self.setting.write(self.full_text())
        self.setting.journal.improved(self.full_text(), name)

    def full_text(self) -> str:
        """The file: what fails, and the script."""
        needed = modules.neighbours(self.best, self.setting.subject.home)
        notes = [f"# it imports {', '.join(needed)} of {self.setting.subject.home}"]
        rest = self.setting.subject.arguments
        given = " ".join(quoted(*rest).splitlines())
        run = [f"# it is run with the arguments {given}"] if rest else []
        versions = oracle.versions if isinstance(oracle := self.oracle, ProgramOracle) else None
        made_by = writer.made_by(versions)
        head = [*writer.title(self.answer), *made_by, *(notes if needed else []), *run]
        return "\n".join([*head, self.best.rstrip("\n"), ""])

    def finish(self, text: str) -> int:
        """Write, verify and report the result."""
        good, runs = 0, RUNS if self.oracle.rule.of == 1 else MEASURED
        with quiet_interrupts():
            self.setting.write(self.full_text())
            if self.stopped != "interrupted":
                self.setting.progress.now(f"running {self.setting.output} {runs} times …")
                good = self.verify(self.setting.output, runs)
        before, after = len(text.splitlines()), len(self.best.splitlines())
        needed = modules.neighbours(self.best, self.setting.subject.home)
        more = {"failure": "script", "lines_before": before, "self_contained": not needed,
                "imports": needed}  # fmt: skip
        return Result(
            self.setting, self.oracle, self.answer, before, after, "lines", good, runs,
            self.stopped, more,
        ).report()  # fmt: skip
