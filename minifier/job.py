"""What every reduction shares: its setting, its result, and how that is reported."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tc.minifier import issue
from tc.minifier.answer import Answer
from tc.minifier.check import ProgramOracle
from tc.minifier.console import NOT_REPRODUCED, Progress, show
from tc.minifier.fresh import Fresh
from tc.minifier.identity import Identity
from tc.minifier.journal import Journal, write_whole
from tc.minifier.oracle import MEASURED, Search, Server
from tc.minifier.subject import Subject
from tc.minifier.verify import RUNS, failures
from tc.trace.commands import Command, command
from tc.trace.delivery import INTERRUPTED, OK
from tc.trace.words import count as counted

HUNG: Final = 10.0  # seconds for one try, where the failure is a hang


@dataclass
class Setting:
    """One run of tc-minify.

    Attributes:
        output: the file that is written.
        budget: seconds after which the best is taken.
        seconds: limit for one run of a program.
        runs: how often a failure is looked for where it does not show at once; 0: as found fit.
        tried: what was done so far, in sentences, for the issue.
    """

    subject: Subject
    output: Path
    progress: Progress
    journal: Journal
    seconds: float
    start: float = field(default_factory=time.monotonic)
    budget: float = float("inf")
    runs: int = 0
    as_json: bool = False
    as_issue: bool = False
    tried: list[str] = field(default_factory=list)

    @property
    def deadline(self) -> float:
        """When to stop (`time.monotonic`)."""
        return self.start + self.budget

    def write(self, text: str) -> None:
        """Write the output whole or not at all."""
        write_whole(self.output, text, self.journal.folder)

    def note(self, text: str) -> None:
        """Report what was found, now and in the issue."""
        self.progress.line(text)
        self.tried.append(text)

    def measure(self, search: Search, question: str, ask: Any) -> None:
        """See whether a failure always shows; where it does not, set the rule of the search."""
        how_often = search.measure(question, ask, self.runs)
        if how_often:
            self.note(
                f"the failure does not always show: it {how_often}; a candidate is taken if "
                f"{search.rule} of its runs fail alike"
            )


@dataclass
class Result:
    """What a reduction ended with.

    Attributes:
        good: verification runs that fail alike, of `runs`.
        more: what else scripts are to know.
    """

    setting: Setting
    search: Search
    answer: Answer
    before: int
    after: int
    unit: str
    good: int = 0
    runs: int = RUNS
    stopped: str = ""
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def next(self) -> Command | None:
        """The command that goes deeper into the file; None where no compiler is asked."""
        if isinstance(self.search, ProgramOracle) or self.answer.kind == "exit":
            return None
        return command("tc-bisect", self.setting.output, *self.arguments)

    @property
    def arguments(self) -> tuple[str, ...]:
        """What the file is run with, behind ``--``: a script has its arguments, a graph none."""
        rest = self.setting.subject.arguments if self.unit == "lines" else ()
        return ("--", *rest) if rest else ()

    @property
    def code(self) -> int:
        """The exit code."""
        if self.stopped == "interrupted":
            return INTERRUPTED
        return OK if self.good else NOT_REPRODUCED

    @property
    def verdict(self) -> str:
        """How often the file fails alike, in words."""
        if self.stopped == "interrupted":
            return "not verified, because it was interrupted"
        if not self.good:
            return f"not verified: it fails alike in 0 of {self.runs} runs"
        return f"fails alike in {self.good} of {self.runs} runs"

    def report(self) -> int:
        """Print the result; returns the exit code."""
        setting, search = self.setting, self.search
        text = setting.output.read_text(encoding="utf-8")
        took = time.monotonic() - setting.start
        if setting.as_json:
            show(json.dumps(self.as_json(text, took)))
            return self.code
        how = f" ({self.stopped})" if self.stopped else ""
        setting.note(
            f"reduced {self.before} → {counted(self.after, self.unit.removesuffix('s'))} "
            f"in {took:.1f} s, {counted(search.asked, 'try')}{how}"
        )
        for other, times in search.others.most_common(3):
            often = counted(times, "time")
            setting.note(f"another failure occurred {often} on the way: {other}")
        lines = counted(len(text.splitlines()), "line")
        setting.note(f"{setting.output}: {lines}, {self.verdict}")
        if self.stopped and setting.journal.folder is not None:
            setting.progress.line("the same command with --resume continues")
        elif self.good and self.next:
            setting.progress.line(f"next: {self.next} names the step to blame")
        show(issue.text(self.answer, text, self.verdict, setting.tried)
              if setting.as_issue else text, end="")  # fmt: skip
        return self.code

    def as_json(self, text: str, took: float) -> dict[str, Any]:
        """Return the result as plain data."""
        search, target = self.search, self.search.target
        return {
            "schema": 1, "failure": self.answer.kind, "message": self.answer.message,
            "signature": str(target), "identity": target.as_json() if target else None,
            "file": str(self.setting.output), "lines": len(text.splitlines()),
            "verified": self.good, "runs": self.runs, "tries": search.asked,
            "rule": [search.rule.need, search.rule.of], "stopped": self.stopped or None,
            "cpu_seconds": round(search.cpu, 2), "seconds": round(took, 2),
            "also_found": {str(one): count for one, count in search.others.items()},
            "next": str(self.next or "") or None, **self.more,
        }  # fmt: skip


def verified(setting: Setting, search: Search, target: Identity, server: Server | None,
             fresh: Fresh) -> tuple[int, int]:  # fmt: skip
    """Return how many of how many runs of the output fail alike."""
    runs = RUNS if search.rule.of == 1 else MEASURED
    setting.progress.now(f"running {setting.output} {runs} times …")
    return failures(setting.output, target, fresh, server, runs), runs
