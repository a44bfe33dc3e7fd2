"""Reduces a captured graph: from the call that goes wrong to a verified file."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass, field

from tc.minifier import writer
from tc.minifier.answer import Answer
from tc.minifier.case import Case
from tc.minifier.console import quiet_interrupts
from tc.minifier.fresh import Fresh
from tc.minifier.identity import Identity
from tc.minifier.job import HUNG, Result, Setting, verified
from tc.minifier.limits import LOADING, until, why_stopped
from tc.minifier.oracle import NotRunnable, Oracle, Server
from tc.minifier.problem import Problem, looks
from tc.minifier.reduce import Reduction
from tc.trace.words import count as counted


class NotAlone(Exception):
    """The graph alone does not fail as it did in the script; the text says how it fares."""


@dataclass
class GraphJob:
    """One reduction of a graph."""

    setting: Setting
    server: Server
    problem: Problem
    first: Case = field(init=False)
    oracle: Oracle = field(init=False)
    answer: Answer = field(init=False)
    stopped: str = ""

    def run(self, case: Case) -> int:
        """Reduce, verify, report; returns the exit code.

        Raises:
            NotAlone: the graph alone does not fail.
        """
        self.setting.note(describe(self.problem))
        self.first = case
        self.answer = self.problem.answer
        seconds = self.setting.seconds
        if self.problem.kind == "timeout":
            seconds = min(seconds, HUNG)
        self.oracle = Oracle(
            server=self.server, seconds=seconds, akin=self.problem.identity,
            journal=self.setting.journal,
        )  # fmt: skip
        try:
            case = self.oracle.learn(case)
        except NotRunnable as reason:
            raise NotAlone(f"its graph alone does not run: {reason}") from None
        reduction = Reduction(self.oracle, case, self.improved)
        try:
            if not reduction.guess(self.answer):
                self.answer = self.alone(case)
                self.improved(case, "captured")
            reduction.forward_first(self.answer)
            best = reduction.best
            self.setting.measure(
                self.oracle, self.oracle.question(best), lambda: self.oracle.ask(best)
            )
            self.oracle.deadline = self.setting.deadline
            with until(self.setting.deadline):
                reduction.run()
        except KeyboardInterrupt as stop:
            self.stopped = why_stopped(stop)
        if time.monotonic() > self.oracle.deadline:
            self.stopped = self.stopped or "out of time"
        self.oracle.deadline = float("inf")
        if self.stopped:
            with quiet_interrupts():
                reduction.embed()
        return self.finish(reduction.best)

    def alone(self, case: Case) -> Answer:
        """Return how the graph fails outside of the script; it may need several runs to.

        Raises:
            NotAlone: it does not, or not as it did there.
        """
        for number in looks(self.setting.runs):
            question = self.oracle.question(case) + (f"\n# look {number}" if number else "")
            answer = self.oracle.answered(question, lambda: self.oracle.ask(case))
            if self.oracle.is_target(answer):
                return answer
        how = f"fails otherwise: {answer.message}" if answer.failed else "does not fail"
        raise NotAlone(f"its graph alone {how}")

    def improved(self, case: Case, name: str) -> None:
        """Report an improvement, and keep it on disk."""
        steps, inputs, elements = case.cost
        self.setting.progress.now(
            f"{name}: {counted(steps, 'call')}, {counted(inputs, 'input')}, "
            f"{counted(elements, 'element')} after {counted(self.oracle.asked, 'try')}"
        )
        self.setting.journal.improved(self.save(case), name)

    def save(self, case: Case, tolerance: float | None = None) -> str:
        """Write the file for a case; values that are not text yet go to a file beside it."""
        output = self.setting.output
        text = writer.full_text(case, self.answer, tolerance)
        beside = output.with_suffix(".pt")
        keys = [item.key for item in case.inputs if item.fill == "recorded"]
        if keys:
            self.server.ask({"do": "export", "keys": keys, "path": str(beside.resolve())})
            text = writer.with_data(text, beside.name)
        elif beside.exists() and writer.is_of_minifier(output):
            beside.unlink()
        self.setting.write(text)
        return text

    def finish(self, best: Case) -> int:
        """Write, verify and report the result."""
        good, runs = 0, 0
        try:
            if not self.stopped:
                self.answer = self.oracle.judge(best)
            self.save(best)
            if self.stopped != "interrupted":
                good, runs = self.verified(best)
        except KeyboardInterrupt:
            self.stopped = "interrupted"
        more = {
            "calls_before": len(self.first.steps), "calls": len(best.steps),
            "nodes_before": len(self.first.steps) + len(self.first.inputs) + 1,
            "inputs": len(best.inputs), "elements": best.cost[2],
            "self_contained": not any(i.fill == "recorded" for i in best.inputs),
            "steps": [dataclasses.asdict(step) for step in best.steps],
        }  # fmt: skip
        return Result(
            self.setting, self.oracle, self.answer, len(self.first.steps), len(best.steps),
            "calls", good, runs, self.stopped, more,
        ).report()  # fmt: skip

    def verified(self, best: Case) -> tuple[int, int]:
        """Run the file; returns how many runs fail alike, and of how many."""
        target = self.oracle.target
        assert target is not None
        fresh = Fresh(self.oracle.seconds, loading=LOADING)
        good, runs = self._runs(target, fresh)
        if not good and self.answer.kind in ("wrong", "nan"):
            self.save(best, tolerance=float(self.answer.detail.get("error", 0.0)) / 2)
            good, runs = self._runs(target, fresh)
        return good, runs

    def _runs(self, target: Identity, fresh: Fresh) -> tuple[int, int]:
        return verified(self.setting, self.oracle, target, self.server, fresh)


def describe(problem: Problem) -> str:
    """What fails, in one line."""
    words = {"crash": "the compiler fails", "wrong": "wrong result", "nan": "wrong NaN or infinity",
             "timeout": "no end", "died": "the process dies"}  # fmt: skip
    calls = len(problem.case.steps) if problem.case else 0
    what = words.get(problem.kind, problem.kind)
    return f"{what} in a graph of {counted(calls, 'call')}: {problem.message}"
