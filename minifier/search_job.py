"""From a script to the reduction that fits its failure: a graph, a sequence of graphs, the text."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from tc.minifier import odds
from tc.minifier.answer import Answer
from tc.minifier.case import Case, from_json
from tc.minifier.console import agreeing
from tc.minifier.fresh import Fresh
from tc.minifier.graph_job import GraphJob, NotAlone, describe
from tc.minifier.identity import Identity
from tc.minifier.job import Setting
from tc.minifier.journal import PROBLEM
from tc.minifier.limits import LOADING
from tc.minifier.oracle import Oracle, ScriptOracle, Server
from tc.minifier.own_cache import fails_with_caches
from tc.minifier.problem import (
    LOOKS,
    REDUCIBLE,
    NotReproduced,
    Problem,
    Run,
    looks,
    problem_of_row,
    recorded,
    row_of,
    until_it_fails,
)
from tc.minifier.script_job import ScriptJob
from tc.minifier.sequence import reduced, sequence_text, with_made_inputs
from tc.minifier.subject import after_head
from tc.minifier.verify import failures
from tc.minifier.workplace import Workplace
from tc.trace.words import count as counted

WATCH: Final = "from tc.minifier.runner import watch; watch()"


@dataclass
class SearchJob:
    """One run of tc-minify on a script that calls a compiler."""

    setting: Setting
    place: Workplace
    first_seconds: float

    def run(self) -> int:
        """Find the failure, reduce it, report; returns the exit code.

        Raises:
            NotReproduced: there is nothing to reduce.
        """
        subject = self.setting.subject
        script = subject.script(self.place.folder)
        run = Run(script, subject.arguments, self.first_seconds, subject.home)
        journal = self.setting.journal
        kept = journal.load(PROBLEM)
        if kept is not None and journal.folder is not None:
            self._restore(journal.folder)
        server = Server(self.place.folder)
        try:
            problem = problem_of_row(kept) if kept is not None else self.found(server, run)
            if kept is None:
                problem = problem.renamed(lambda text: subject.named(text, self.place.folder))
                self._keep(problem)
            server.threads = problem.threads
            server.warm(problem.case.call.compiler if problem.case else
                        str(problem.facts.get("compiler") or ""))  # fmt: skip
            left = problem.facts.get("left_behind")
            if problem.kind in REDUCIBLE and left:
                self.setting.note(describe(problem))
                self.setting.note(
                    f"backend {left} is a function of the script whose text cannot be taken out of "
                    "it; the script itself is reduced"
                )
                return self.whole_script(server, problem)
            if problem.kind in REDUCIBLE and problem.case is not None:
                try:
                    return GraphJob(self.setting, server, problem).run(problem.case)
                except NotAlone as reason:
                    self.setting.note(f"{reason}; next: all graphs in order, then the script")
                    return self.beyond_graph(server, run, problem)
            return self.as_text(server, run, problem)
        finally:
            server.close()

    def _restore(self, folder: Path) -> None:
        """Put back the tensors of the first run."""
        if (folder / "inputs.pt").exists():
            shutil.copy(folder / "inputs.pt", self.place.folder / "inputs.pt")

    def _keep(self, problem: Problem) -> None:
        """Keep the first failure, from which everything else follows."""
        folder = self.setting.journal.folder
        recorded_tensors = self.place.folder / "inputs.pt"
        if folder is not None:
            if recorded_tensors.exists():
                shutil.copy(recorded_tensors, folder / "inputs.pt")
            self.setting.journal.save(PROBLEM, row_of(problem))

    # -- whether it fails ----------------------------------------------------------------------
    def found(self, server: Server, run: Run) -> Problem:
        """Run the script until it fails, as often as is sensible.

        Raises:
            NotReproduced: it does not fail.
        """
        self.setting.progress.now(f"running {self.setting.subject.label} …")
        problem, looked = until_it_fails(
            server, run, self.aside(run), self.setting.runs, self.setting.progress.now
        )
        if problem.kind != "ok":
            if looked > 1:
                before = "run" if looked == 2 else f"{looked - 1} runs"
                self.setting.note(f"it did not fail in the first {before}, and then did")
            return problem
        if not problem.facts.get("compiles"):
            raise NotReproduced(why_not(problem, self.setting.subject.label))
        if not self.place.keep_caches:
            fails_with_caches(self.place, self.aside(run), self.setting)
        more = "" if looked >= LOOKS else f" (--runs {LOOKS}: {odds.missed(0.3, LOOKS):.1%})"
        raise NotReproduced(
            f"{why_not(problem, self.setting.subject.label)}; that rests on "
            f"{odds.rests_on(looked)}{more}"
        )

    # -- without a graph of its own ------------------------------------------------------------
    def beyond_graph(self, server: Server, run: Run, problem: Problem) -> int:
        """Reduce the sequence of graphs, or else the script, where a graph alone is right."""
        again = recorded(server, replace(self.aside(run), sequence=True))
        rows = list(again.facts.get("sequence") or ())
        cases: list[Case] = [from_json(row) for row in rows]
        last = again.case
        if last is not None and (not cases or cases[-1].program() != last.program()):
            cases.append(last)
        if cases:
            job = self.text_job(server, problem.identity)
            if job.begin(sequence_text(cases, problem.answer), looks(self.setting.runs)):
                self.setting.note("all graphs in order fail alike")
                return job.run(self.shorter(server, job, cases, problem.answer))
            self.setting.note(f"all graphs in order: {job.answer.message or 'no failure'}")
        return self.whole_script(server, problem)

    def whole_script(self, server: Server, problem: Problem) -> int:
        """Reduce the script, where no graph can be taken out of it."""
        script = self.setting.subject.text
        texts = (("the script", script), ("the watched script", after_head(script, WATCH)))
        for name, text in texts:
            job = self.text_job(server, problem.identity)
            if job.begin(text, looks(self.setting.runs)):
                self.setting.note(f"{name} fails alike")
                return job.run(text)
            self.setting.note(f"{name}: {job.answer.message or 'does not fail'}")
        raise NotReproduced(f"{problem.message}; it did not happen again")

    def shorter(self, server: Server, job: ScriptJob, cases: Sequence[Case], answer: Answer) -> str:
        """Return the text of fewer and smaller graphs that fail alike in the same order."""
        graphs = Oracle(server=server, seconds=self.setting.seconds)

        def fails(some: Sequence[Case]) -> bool:
            return job.oracle.fails(sequence_text(some, answer))

        def learn(case: Case) -> Case:
            return graphs.learn(with_made_inputs(case))

        def report(some: Sequence[Case]) -> None:
            job.improved(sequence_text(some, answer), "sequence")

        error_text = str(answer.detail.get("text", ""))
        return sequence_text(reduced(cases, fails, learn, report, error_text), answer)

    def as_text(self, server: Server, run: Run, problem: Problem) -> int:
        """Reduce the text of a script that fails, but not in a graph that has a text."""
        label = self.setting.subject.label
        ends = problem.kind in ("script", "exit")  # programs that it starts may compile
        compiles = bool(problem.facts.get("compiles")) or ends
        kinds = ("outside", "script", "exit", "crash", "died", "timeout", "wrong", "nan", "accepts")
        if not compiles or problem.kind not in kinds:
            raise NotReproduced(why_not(problem, label))
        if ends:
            self.setting.progress.now(f"running {label} without the compiler …")
            eager = recorded(server, self.aside(run), calls=(0, False))
            if eager.kind != "ok":
                raise NotReproduced(why_not(problem, label))
        self.setting.note(f"the compiler fails: {problem.message}")
        script = self.setting.subject.text
        for text in (script, after_head(script, WATCH)):
            job = self.text_job(server, None)
            if job.begin(text, looks(self.setting.runs)):
                return job.run(text)
        raise NotReproduced(f"{problem.message}; run again the script does not fail")

    def text_job(self, server: Server, akin: Identity | None) -> ScriptJob:
        """Return a reduction of a text whose failure may be a given one; None: whichever."""
        subject, setting = self.setting.subject, self.setting

        def verify(path: Path, runs: int) -> int:
            fresh = Fresh(
                oracle.seconds, home=subject.home, arguments=subject.arguments, loading=LOADING
            )
            assert oracle.target is not None
            return failures(path, oracle.target.unjudged, fresh, server, runs, self.scratch)

        oracle = ScriptOracle(
            server=server, seconds=setting.seconds, akin=akin, journal=setting.journal,
            home=subject.home, arguments=subject.arguments, place=self.scratch,
            path=lambda: self.place.shown("beside", subject.folder, subject.name) / subject.name,
        )  # fmt: skip
        return ScriptJob(setting, oracle, verify)

    def aside(self, run: Run) -> Run:
        """Return a run whose files do not lie where the user is; only the first one's do."""
        return replace(run, cwd=self.scratch())

    def scratch(self) -> Path:
        """Return a folder for a candidate to run in."""
        return self.place.scratch("scratch")


def why_not(problem: Problem, label: str) -> str:
    """Why there is nothing to reduce, in one sentence."""
    facts: Any = problem.facts
    if problem.kind in REDUCIBLE:
        why = facts.get("unprintable", "")
        return f"{problem.message}; its graph cannot be written as text: {why}" if why else (
            f"{label} does not call a compiler before it fails: {problem.message}"
        )  # fmt: skip
    if problem.kind in ("script", "exit"):
        return f"{label} fails without the compiler being to blame: {problem.message}"
    if not facts.get("compiles"):
        return f"{label} never calls tc.compile or torch.compile"
    if not facts.get("graphs"):
        return f"{label} compiles no graph: nothing it calls under compile is captured"
    noise = ""
    if facts.get("random"):
        noise = f"; {counted(facts['random'], 'call')} with random numbers could not be judged"
    if facts.get("refused"):
        noise += f"; {counted(facts['refused'], 'call')} could not be judged: {facts['refusal']}"
    graphs = agreeing(facts["graphs"])
    return f"{label} does not fail: {graphs} with eager in {counted(facts['calls'], 'call')}{noise}"
