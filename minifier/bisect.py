"""The command line of tc-bisect: a script in; whether and at which step it goes wrong out."""

from __future__ import annotations

import argparse
import platform
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tc import __version__
from tc.minifier import issue
from tc.minifier.answer import Answer
from tc.minifier.case import Case
from tc.minifier.console import (
    Parser,
    Progress,
    Usage,
    require_torch,
    show,
    split_rest,
)
from tc.minifier.crash_site import Site, described
from tc.minifier.job import HUNG
from tc.minifier.ladder import STAGES, STEPPED, Ladder, Rung, Step
from tc.minifier.odds import runs_for, summary
from tc.minifier.oracle import MEASURED, Oracle, OracleError, Server
from tc.minifier.outside import Calls, add_runs, add_workaround, around_graphs, without_graph
from tc.minifier.own_backend import WITHOUT_OWN
from tc.minifier.problem import (
    REDUCIBLE,
    Problem,
    Run,
    looks,
    record,
    recorded,
    until_it_fails,
)
from tc.minifier.reduce import Reduction
from tc.minifier.subject import Subject, subject_of
from tc.minifier.values import command as values
from tc.minifier.verdict import BUG, INCONCLUSIVE, Verdict
from tc.minifier.workplace import Workplace
from tc.trace.arguments import seconds, whole_number
from tc.trace.delivery import INTERNAL, OK, USAGE, run_tool

VERBS: Final = ("record", "compare")  # see `tc.minifier.values.command`
_HELP: Final = """\
Find the step of the compiler that makes a script go wrong.

examples:
  tc-bisect train.py                     the verdict, for people
  tc-bisect train.py --json              the same for scripts and agents
  tc-bisect train.py -- --steps 1        what follows -- goes to the script
  tc-bisect compare train.py             the first value that differs from eager; --help says more

usage:
  tc-bisect [-m] SCRIPT [--json|--issue] [--seconds N] [--runs N] [--own-caches] [-- ARGUMENT ...]

First: is there a bug? Every compiled graph is compared with eager, both against float64. Then the
stage: the graph runs up to each stage, the rest by reference interpreters (torch.compile: by
PyTorch's simpler backends). Then the step: optional steps are numbered, and refused from N on.

options:
  --json          print the verdict as JSON
  --issue         print it as the text of an issue: script, verdict, versions
  --runs N        look N times for a failure that does not always show
  --seconds N     limit for one run (default 120; 600 for the whole script)
  --own-caches    use your compilers' caches (default: new ones, removed afterwards)
  -m              SCRIPT is a module; notebooks and FILE.py::TEST are scripts, too
  --version, --help

exit codes:
  0 no bug   1 bug found   2 wrong usage   4 internal error   5 inconclusive   130 Ctrl-C
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run tc-bisect and return its exit code; one sentence on stderr says what went wrong."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    codes = {Usage: USAGE, OracleError: INCONCLUSIVE, OSError: INTERNAL}
    return run_tool(
        "tc-bisect", lambda: _answered(arguments), codes, "interrupted; nothing was left behind"
    )


def _answered(arguments: Sequence[str]) -> int:
    """Follow the arguments; returns the exit code."""
    if not arguments:
        raise Usage("name a script")
    if arguments[0] in VERBS:
        return values.run(arguments, searched)
    if "-h" in arguments or "--help" in arguments:
        sys.stdout.write(_HELP)
        return OK
    if list(arguments) == ["--version"]:
        print(f"tc-bisect {__version__} · python {platform.python_version()}")
        return OK
    return _run(_parsed(arguments))


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    own, rest = split_rest(arguments)
    parser = Parser(prog="tc-bisect", add_help=False, allow_abbrev=False)
    parser.add_argument("script", metavar="SCRIPT")
    parser.add_argument("-m", dest="module", action="store_true")
    for name in ("--json", "--issue", "--own-caches"):
        parser.add_argument(name, action="store_true")
    parser.add_argument("--seconds", type=seconds)
    parser.add_argument("--runs", type=whole_number(1))
    options: argparse.Namespace = parser.parse_args(own)
    if options.json and options.issue:
        raise Usage("--json and --issue are two forms of one output; give one")
    options.rest = rest
    subject_of(options.script, rest, options.module)
    return options


def _run(options: argparse.Namespace) -> int:
    start = time.monotonic()
    require_torch()
    subject = subject_of(options.script, options.rest, options.module)
    with Workplace("tc-bisect", options.own_caches) as place:
        verdict = searched(subject, place, options.seconds, options.runs or 0)
    verdict.facts["seconds"] = round(time.monotonic() - start, 2)
    if options.issue:
        show(issue.of_verdict(verdict, subject.label, subject.text), end="")
        return verdict.code
    show(verdict.as_json() if options.json else verdict)
    return verdict.code


def searched(
    subject: Subject, place: Workplace, seconds: float | None = None, runs: int = 0
) -> Verdict:
    """Return what tc-bisect says of a script; limits have their defaults where none is given."""
    script = subject.script(place.folder)
    what = Run(script, subject.arguments, seconds or 600.0, subject.home)
    found = Search(subject, what, place.folder, seconds or 120.0, Progress(), runs).run()
    return found.renamed(lambda text: subject.named(text, place.folder))


@dataclass
class Search:
    """One search, from the script to the verdict.

    Attributes:
        runs: how often a failure is looked for where it does not show at once; 0: as found fit.
        looks: how often the script was run until it failed.
        server: a process that is warm already, whose owner ends it; None: one of its own.
    """

    subject: Subject
    what: Run
    folder: Path
    seconds: float
    progress: Progress
    runs: int = 0
    looks: int = 1
    server: Server | None = None

    def run(self) -> Verdict:
        """Return what is wrong, if anything is."""
        self.progress.now(f"running {self.subject.label} …")
        server = self.server or Server(self.folder)
        try:
            problem = self.found(server)
            calls = Calls(server, self.what, self.progress.now)
            verdict = without_graph(self.subject.label, problem, self.looks)
            if verdict is not None and problem.kind in ("script", "exit"):
                verdict, problem = self.of_script(problem, verdict, calls)
            elif verdict is not None and problem.kind == "outside":
                add_workaround(verdict, calls)
            elif verdict is not None and problem.kind in REDUCIBLE:  # it has no graph that fails
                verdict = self.own_backend(problem, server) or verdict
            if verdict is not None:
                return verdict
            assert problem.case is not None
            self.progress.line(f"compiled   {problem.message}")
            server.warm(problem.case.call.compiler)
            return self._search(problem, problem.case, Oracle(server=server, seconds=self.seconds))
        finally:
            if self.server is None:
                server.close()

    def found(self, server: Server) -> Problem:
        """Run the script until it fails, as often as is sensible."""
        problem, self.looks = until_it_fails(
            server, self.what, self.what, self.runs, self.progress.now
        )
        return problem

    def of_script(
        self, problem: Problem, verdict: Verdict, calls: Calls
    ) -> tuple[Verdict | None, Problem]:
        """Return the verdict on a script that fails by itself.

        Args:
            verdict: if the compiler has no part in it.

        Returns:
            The verdict, or none and a graph that goes wrong: what fails in some runs without the
            compiler may hide it in others.
        """
        found = around_graphs(problem, calls)
        if found is not None:
            if found.facts.get("step") == "capture":
                line = self.subject.command("tc-bisect", "compare")
                found.add("next", f"{line} names the first line whose values differ")
            return found, problem
        add_runs(verdict, calls.tally)
        for number in looks(self.runs):
            if calls.tally.always:
                break
            self.progress.now(f"looking for a graph that goes wrong; run {number + 1} …")
            again = recorded(calls.server, self.what)
            if again.kind in REDUCIBLE and again.case is not None:
                return None, again
        return verdict, problem

    def alone(self, case: Case, oracle: Oracle) -> Answer:
        """Return how a graph fails by itself, which may take as many runs as the script took."""
        for number in looks(self.runs):
            answer = oracle.ask(case) if number else oracle.judge(case)
            if answer.failed:
                break
        return answer

    def _search(self, problem: Problem, case: Case, oracle: Oracle) -> Verdict:
        if problem.kind == "timeout":
            oracle.seconds = min(oracle.seconds, HUNG)
        if (verdict := self.own_backend(problem, oracle.server)) is not None:
            return verdict
        first = self.alone(case, oracle)
        if not first.failed:
            verdict = Verdict(
                INCONCLUSIVE,
                f"{problem.message}; its graph alone does not fail ({first.message or first.kind})",
            )
            verdict.add(
                "next",
                f"{self.subject.command('tc-minify')}, which reduces all graphs in their order",
            )
            return verdict
        oracle.target = first.identity
        seen = oracle.measure(oracle.question(case), lambda: oracle.ask(case), self.runs)
        if seen:
            self.progress.line(f"shows      not always: it {seen}")
        ladder = Ladder(oracle, case, first, lambda text: self.progress.now(f"stage      {text}"))
        rung = ladder.climb()
        shown = " ".join(f"{r.name} {'✗' if ladder.is_failure(r) else '✓'}" for r in ladder.rungs)
        self.progress.line(f"stage      {shown}")
        if rung is None:
            return Verdict(INCONCLUSIVE, f"{first.message}; no single stage shows it")
        step = ladder.step(rung) if rung.steps else None
        small = self.narrowed(case, oracle, first)
        verdict = Verdict(BUG, title(rung, step, small))
        verdict.add("failure", rung.answer.message, failure=first.kind, message=first.message)
        if seen:
            verdict.add("shows", f"not always: it {seen}", share=oracle.share)
        add_lines(verdict, small, lines_of(step, case))
        if case.backward:
            where = "forward" if first.detail.get("forward") else "backward"
            verdict.add("pass", MEANING_OF_PASS[where], part=where)
        verdict.facts["stage"] = rung.name
        if step is not None:
            add_step(verdict, step)
        elif rung.name in (*STAGES, *STEPPED):
            verdict.add("step", "it fails with every optional step refused", step=None)
        if rung.answer.kind == "died" and (site := ladder.site(rung, step)):
            add_site(verdict, site, case)
        if rung.answer.detail.get("index") is not None:
            add_element(verdict, rung.answer.detail)
        self._workaround(verdict, ladder, rung, step)
        verdict.add(
            "next", str(self.subject.command("tc-minify")), probes=ladder.probes + oracle.asked
        )
        return verdict

    def own_backend(self, problem: Problem, server: Server) -> Verdict | None:
        """Return a verdict on a function that the script has as backend; None if not at fault."""
        own = problem.facts.get("own_backends") or ()
        if not own or record(self.what, self.folder, {WITHOUT_OWN: "1"}).kind != "ok":
            return None
        failed, looked = self._shows(problem, server)
        runs = runs_for(failed / looked)
        for _ in range(runs - 1):
            self.progress.now('trying     backend="eager"')
            if record(self.what, self.folder, {WITHOUT_OWN: "1"}).kind != "ok":
                return None
        name, place = own[-1]
        verdict = Verdict(BUG, f"{problem.message}; backend {name} of the script is at fault")
        where = f"backend {name}, at {place}" if place else f"backend {name}"
        verdict.add("stage", where, stage=f"backend {name}", place=place)
        if failed < looked:
            share = failed / looked
            verdict.add("shows", f"not always: it {summary(failed, looked)}", share=share)
        tried = "tried" if runs == 1 else f"tried {runs} times"
        text = f'backend="eager" ({tried}: the script is right)'
        verdict.add("works if", text, workaround="eager")
        return verdict

    def _shows(self, problem: Problem, server: Server) -> tuple[int, int]:
        """Return how many of how many runs of the script fail as the first failure did."""

        def fails() -> bool:
            self.progress.now("how often it fails …")
            return recorded(server, self.what).kind == problem.kind

        runs = self.runs or (1 if problem.kind == "timeout" else 3)
        failed = 1 + sum(fails() for _ in range(runs - 1))
        if failed == runs and self.looks == 1:
            return 1, 1
        more = max(MEASURED - runs, 0)
        return failed + sum(fails() for _ in range(more)), runs + more

    def narrowed(self, case: Case, oracle: Oracle, answer: Answer) -> Case:
        """Return the calls of the graph that the failure needs."""

        def report(small: Case, name: str) -> None:
            self.progress.now(f"calls      {len(small.steps)} of {len(case.steps)}")

        return Reduction(oracle, oracle.learn(case), report).calls_only(answer)

    def _workaround(self, verdict: Verdict, ladder: Ladder, rung: Rung, step: Step | None) -> None:
        if ladder.case.call.compiler == "torch":
            place = [r.name for r in ladder.rungs].index(rung.name)
            if place:
                name = ladder.rungs[place - 1].name
                verdict.add("works if", f'backend="{name}" (tried)', workaround=f"backend={name}")
            return
        tries = [{"TC_BISECT": f"{step.switch}:1"}] if step else []
        self._try_variables(
            verdict,
            [*tries, {"TC_BISECT": "1"}, {"TC_DISABLE": "1"}],
            runs_for(ladder.oracle.share),
        )

    def _try_variables(
        self, verdict: Verdict, tries: Sequence[Mapping[str, str]], runs: int
    ) -> None:
        """Run the whole script with each, so many times, until it is right."""
        for environment in tries:
            text = " ".join(f"{name}={value}" for name, value in environment.items())
            self.progress.now(f"trying     {text}")
            if all(record(self.what, self.folder, environment).kind == "ok" for _ in range(runs)):
                tried = "tried" if runs == 1 else f"tried {runs} times"
                text_of_row = f"{text} ({tried}: the script is right)"
                verdict.add("works if", text_of_row, workaround=text)
                return
        verdict.add("works if", "nothing that was tried helps", workaround=None)


MEANING_OF_PASS: Final = {
    "forward": "forward: it shows before gradients are computed",
    "backward": "backward: what forward returns is right",
}


#: kinds of failures that are no crash, and how a sentence names them
HOW_IT_FAILS: Final = {
    "wrong": ("computes", " wrong"),
    "nan": ("computes", " wrong"),
    "accepts": ("computes", ", which eager refuses"),
}


def title(rung: Rung, step: Step | None, small: Case) -> str:
    """The verdict in one sentence."""
    calls = ", ".join(call_text(case_step.form) for case_step in small.steps[:3])
    many = f" and {len(small.steps) - 3} more calls" if len(small.steps) > 3 else ""
    how, end = HOW_IT_FAILS.get(rung.answer.kind, ("fails on", ""))
    who = f"step {step.number}, {step.kind}," if step else rung.without_step
    if step and step.kernel:
        who = f"the generated kernel {step.kernel}"
    return f"{who} {how} {calls}{many}{end}"


def call_text(form: str) -> str:
    """What is called in a step, without its arguments."""
    head = form.partition("(")[0].removeprefix("$0.")
    return head if head.replace(".", "").replace("_", "").isalnum() else form.replace("$", "arg")


def lines_of(step: Step | None, case: Case) -> set[str]:
    """Return the user's lines that a step works for, as far as it says so."""
    numbers = [line.rpartition(":")[2] for line in (step.lines if step else ())]
    return {case.where(int(number)) for number in numbers if number.isdigit()} - {""}


def add_lines(verdict: Verdict, small: Case, of_step: Collection[str]) -> None:
    """Name the user's lines: of the calls that the failure needs, those the step works for."""
    places = list(dict.fromkeys(step.where for step in small.steps if step.where))
    places = [place for place in places if place in of_step] or places
    for place in places[:4]:
        where, _, text = place.partition("\t")
        verdict.add("your line", f"{where}   {text}")
    verdict.facts["lines"] = [place.partition("\t")[0] for place in places]
    verdict.facts["calls"] = [step.form for step in small.steps]


def add_step(verdict: Verdict, step: Step) -> None:
    """Name the step."""
    if step.kernel:
        text = (
            f"{step.kernel}, number {step.number} of {step.of}; the plan it is made from is right"
        )
        verdict.add("kernel", text, step=step.kind, number=step.number, of=step.of)
        return
    text = f"{step.kind}, number {step.number} of {step.of} (the {step.among}. of its kind)"
    verdict.add("step", text, step=step.kind, number=step.number, of=step.of)


def add_site(verdict: Verdict, site: Site, case: Case) -> None:
    """Name the generated statement at which the process dies, and the lines its kernel is for."""
    verdict.add("statement", site.text, **described(site))
    verdict.add("in", f"{site.kernel}, line {site.line} of the generated {site.file}")
    numbers = [place.rpartition(":")[2] for place in site.lines]
    places = dict.fromkeys(case.where(int(number)) for number in numbers if number.isdigit())
    for place in filter(None, places):
        where, _, text = place.partition("\t")
        verdict.add("made for", f"{where}   {text}")


def add_element(verdict: Verdict, detail: Mapping[str, Any]) -> None:
    """Name the first bad element."""
    index, first = detail["index"], detail.get("first")
    text = f"output {detail['output']}{first or ''}, worst at {index}: {detail['compiled']}, "
    verdict.add(
        "first bad", f"{text}eager {detail['eager']} ({detail['bad']} of {detail['of']} elements)",
        element={key: detail[key] for key in ("output", "index", "compiled", "eager")},
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
