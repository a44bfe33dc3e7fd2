"""The command line of tc-minify: a script in; the smallest program that fails alike out."""

from __future__ import annotations

import argparse
import dataclasses
import json
import platform
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import field
from pathlib import Path
from typing import Final

from tc import __version__
from tc.minifier import verify, writer
from tc.minifier.case import Case
from tc.minifier.console import (
    INTERNAL,
    INTERRUPTED,
    NOT_REPRODUCED,
    OK,
    USAGE,
    Parser,
    Progress,
    Usage,
    crash_text,
    existing_script,
    fail,
    quiet_interrupts,
    split_rest,
    stoppable,
)
from tc.minifier.oracle import Answer, Oracle, OracleError, ScriptOracle, Server
from tc.minifier.problem import REDUCIBLE, NotReproduced, Problem, recorded
from tc.minifier.reduce import Reduction
from tc.minifier.script_job import ScriptJob

_HELP: Final = """\
Make the smallest program that fails like a script of yours.

examples:
  tc-minify train.py                     writes minified.py: a few lines, no data files
  tc-minify train.py -o bug.py --json    the result as JSON, for scripts and agents
  tc-minify train.py -- --steps 1        what follows -- goes to the script

usage:
  tc-minify SCRIPT [-o FILE] [--json] [--seconds N] [--budget N] [-- ARGUMENT ...]

The script calls tc.compile or torch.compile. It is run once; the first graph that crashes the
compiler, or gives another result than eager by more than rounding (measured against float64), is
cut down: calls, inputs, shapes, types, values. Every step fails in the same way as the first.

options:
  -o FILE         the result; default minified.py. The best so far is always there
  --json          print the result as JSON
  --seconds N     limit for one try (default 120)
  --budget N      stop reducing after N seconds, keep the best (default: no limit)
  --version, --help

exit codes:
  0 reduced   1 it does not fail   2 wrong usage   4 internal error   130 Ctrl-C, the best is kept
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run tc-minify and return its exit code; one sentence on stderr says what went wrong."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or "-h" in arguments or "--help" in arguments:
        if arguments:
            sys.stdout.write(_HELP)
            return OK
        return fail("tc-minify", USAGE, "name a script; try tc-minify --help")
    if arguments == ["--version"]:
        print(f"tc-minify {__version__} · python {platform.python_version()}")
        return OK
    with stoppable():
        try:
            return _run(parsed(arguments))
        except Usage as error:
            return fail("tc-minify", USAGE, f"{error}; try tc-minify --help")
        except NotReproduced as error:
            return fail("tc-minify", NOT_REPRODUCED, str(error))
        except OracleError as error:
            return fail("tc-minify", INTERNAL, str(error))
        except KeyboardInterrupt:
            return fail("tc-minify", INTERRUPTED, "interrupted before anything was reduced")
        except Exception as error:
            return fail("tc-minify", INTERNAL, crash_text("tc-minify", error))


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the options; what follows ``--`` belongs to the script."""
    own, rest = split_rest(arguments)
    parser = Parser(prog="tc-minify", add_help=False, allow_abbrev=False)
    parser.add_argument("script", metavar="SCRIPT")
    parser.add_argument("-o", "--output", metavar="FILE", default="minified.py")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--budget", type=float, default=float("inf"))
    options = parser.parse_args(own)
    options.rest = rest
    script = existing_script(options.script)
    output = Path(options.output)
    if not output.resolve().parent.is_dir():
        raise Usage(f"there is no folder {output.resolve().parent} to write {output.name} to")
    if output.resolve() == script.resolve():
        raise Usage(f"{output} is the script itself")
    return options


def _run(options: argparse.Namespace) -> int:
    start = time.monotonic()
    progress = Progress()
    script, output = Path(options.script), Path(options.output)
    with tempfile.TemporaryDirectory(prefix="tc-minify-") as name:
        folder = Path(name)
        progress.now(f"running {script} …")
        limit = max(options.seconds, 600.0)
        server = Server(folder)
        try:
            problem = recorded(server, script, options.rest, limit)
            case = problem.case if problem.kind in REDUCIBLE else None
            if case is None and not as_text(problem):
                raise NotReproduced(why_not(problem, script))
            if case is None and problem.kind == "script":
                progress.now(f"running {script} without the compiler …")
                eager = recorded(server, script, options.rest, limit, calls=(0, False))
                if eager.kind != "ok":
                    raise NotReproduced(why_not(problem, script))
            server.warm(case.call.compiler if case else problem.facts["compiler"])
            if case is not None:
                oracle = Oracle(server, seconds=options.seconds)
                job = Job(oracle, output, progress, start, options.budget)
                return job.run(case, problem, options.json)
            home = script.resolve().parent
            whole = ScriptOracle(server, home, options.rest, options.seconds)
            text_job = ScriptJob(whole, output, progress, start, options.budget)
            return text_job.run(script.read_text(), problem, options.json)
        finally:
            server.close()


def as_text(problem: Problem) -> bool:
    """Whether a failure without a graph can be reduced as the text of the script."""
    compiles = bool(problem.facts.get("compiles"))
    return compiles and problem.kind in ("outside", "script", "crash")


def why_not(problem: Problem, script: Path) -> str:
    """Why there is nothing to reduce, in one sentence."""
    facts = problem.facts
    if problem.kind in REDUCIBLE:
        why = facts.get("unprintable", "")
        return f"{problem.message}; its graph cannot be written as text: {why}"
    if problem.kind in ("script", "exit"):
        return f"{script} fails without the compiler being to blame: {problem.message}"
    if not facts.get("compiles"):
        return f"{script} never calls tc.compile or torch.compile"
    if not facts.get("graphs"):
        return f"{script} compiles no graph: nothing it calls under compile is captured"
    noise = ""
    if facts.get("random"):
        noise = f"; {facts['random']} calls of graphs with random numbers could not be judged"
    if facts.get("refused"):
        noise += f"; {facts['refused']} calls could not be judged: {facts['refusal']}"
    return (
        f"{script} does not fail: {facts['graphs']} graphs agree with eager in {facts['calls']} "
        f"calls{noise}"
    )


@dataclasses.dataclass
class Job:
    """One reduction, from the failing graph to the verified file."""

    oracle: Oracle
    output: Path
    progress: Progress
    start: float
    budget: float
    first: Case | None = None
    answer: Answer = field(default_factory=lambda: Answer("ok"))
    stopped: str = ""

    def run(self, case: Case, problem: Problem, as_json: bool) -> int:
        """Reduce, verify, report; returns the exit code."""
        self.progress.line(f"{describe(problem)}")
        self.first = case
        self.answer = problem.answer
        self.oracle.signature = problem.signature
        case = self.oracle.learn(case)
        self.oracle.deadline = self.start + self.budget
        reduction = Reduction(self.oracle, case, self.improved)
        try:
            if not reduction.guess(self.answer):
                self.answer = self.alone(case, problem)
                self.oracle.signature = self.answer.signature
                self.improved(case, "captured")
            reduction.run()
        except KeyboardInterrupt:
            self.stopped = "interrupted"
            with quiet_interrupts():
                reduction.embed()
        if time.monotonic() > self.oracle.deadline:
            self.stopped = self.stopped or "out of time"
            self.oracle.deadline = float("inf")
            reduction.embed()
        return self.finish(reduction, as_json)

    def alone(self, case: Case, problem: Problem) -> Answer:
        """Return how the graph fares outside of the script.

        Raises:
            NotReproduced: not as it did there.
        """
        answer = self.oracle.judge(case)
        if answer.signature and not answer.is_like(problem.answer):
            raise NotReproduced(
                f"{problem.message}; but its graph alone fails otherwise: {answer.message}"
            )
        if not answer.signature:
            raise NotReproduced(
                f"{problem.message}; but its graph alone does not fail ({answer.kind}: "
                f"{answer.message or 'it agrees with eager'})"
            )
        return answer

    def improved(self, case: Case, name: str) -> None:
        """Tell of an improvement, and keep it on disk."""
        steps, inputs, elements = case.cost
        self.progress.now(
            f"{name}: {steps} calls, {inputs} inputs, {elements} elements after "
            f"{self.oracle.asked} tries"
        )
        self.save(case)

    def save(self, case: Case, tolerance: float | None = None) -> None:
        """Write the file for a case; values that are not text yet go to a file beside it."""
        text = writer.full_text(case, self.answer, tolerance)
        beside = self.output.with_suffix(".pt")
        keys = [item.key for item in case.inputs if item.fill == "recorded"]
        if keys:
            self.oracle.server.ask({"do": "export", "keys": keys, "path": str(beside.resolve())})
            text = writer.with_data(text, beside.name)
        elif self.first is not None and beside.exists() and writer.is_ours(self.output):
            beside.unlink()
        writer.write(self.output, text)

    def finish(self, reduction: Reduction, as_json: bool) -> int:
        """Write, verify and report the result."""
        best = reduction.best
        good = 0
        try:
            self.answer = self.oracle.judge(best) if not self.stopped else self.answer
            self.save(best)
            good = self.verified(best) if self.stopped != "interrupted" else 0
        except KeyboardInterrupt:
            self.stopped = "interrupted"
        self.report(best, good, as_json)
        if self.stopped == "interrupted":
            return INTERRUPTED
        return OK if good else NOT_REPRODUCED

    def verified(self, best: Case) -> int:
        """Run the file, return how many runs fail alike."""
        self.progress.now(f"running {self.output} {verify.RUNS} times …")
        seconds = self.oracle.seconds
        good = verify.failures(self.output, self.answer, seconds, self.oracle.server)
        if not good and self.answer.kind in ("wrong", "nan"):
            self.save(best, tolerance=float(self.answer.detail.get("error", 0.0)) / 2)
            good = verify.failures(self.output, self.answer, seconds, self.oracle.server)
        return good

    def report(self, best: Case, good: int, as_json: bool) -> None:
        """Print the result."""
        assert self.first is not None
        text = self.output.read_text()
        lines = len(text.splitlines())
        took = time.monotonic() - self.start
        if as_json:
            print(json.dumps({
                "schema": 1, "failure": self.answer.kind, "message": self.answer.message,
                "signature": self.answer.signature, "file": str(self.output), "lines": lines,
                "calls_before": len(self.first.steps), "calls": len(best.steps),
                "nodes_before": len(self.first.steps) + len(self.first.inputs) + 1,
                "inputs": len(best.inputs), "elements": best.cost[2],
                "self_contained": not any(i.fill == "recorded" for i in best.inputs),
                "verified": good, "runs": verify.RUNS, "tries": self.oracle.asked,
                "cpu_seconds": round(self.oracle.cpu, 2), "seconds": round(took, 2),
                "stopped": self.stopped or None, "also_found": dict(self.oracle.others),
                "steps": [dataclasses.asdict(step) for step in best.steps],
            }))  # fmt: skip
            return
        how = f" ({self.stopped})" if self.stopped else ""
        self.progress.line(
            f"reduced {len(self.first.steps)} → {len(best.steps)} calls in {took:.1f} s, "
            f"{self.oracle.asked} tries{how}"
        )
        for signature, count in self.oracle.others.most_common(3):
            self.progress.line(f"another failure met {count} times on the way: {signature}")
        verdict = f"fails alike in {good} of {verify.RUNS} runs" if good else "not verified"
        self.progress.line(f"{self.output}: {lines} lines, {verdict}")
        print(text, end="")


def describe(problem: Problem) -> str:
    """What fails, in one line."""
    words = {"crash": "the compiler fails", "wrong": "wrong result", "nan": "wrong NaN or infinity"}
    calls = len(problem.case.steps) if problem.case else 0
    return f"{words.get(problem.kind, problem.kind)} in a graph of {calls} calls: {problem.message}"


if __name__ == "__main__":
    sys.exit(main())
