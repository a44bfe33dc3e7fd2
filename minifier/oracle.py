"""Asks whether a case or a script still fails in the same way; remembers each answer."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tc.minifier.answer import Answer
from tc.minifier.case import Case, fact_from_json
from tc.minifier.identity import ALONE, ROUNDING, Identity, first_line
from tc.minifier.journal import Journal
from tc.minifier.odds import Rule, rule_for, summary

MEASURED = 20  # runs that the rate of a failure that does not always show is taken from
MEMORY = 8 << 30  # what a child may take beyond what the server has
#: compilers start no processes that stay, and looking for devices does not set them up
SETTINGS = {"TORCHINDUCTOR_COMPILE_THREADS": "1", "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}


ROOT = str(Path(__file__).parents[2])  # of this tc, which may be found by the current folder alone
WITH_TC = f"{ALONE}{ROOT!r} in sys.path or sys.path.insert(1, {ROOT!r})\n"
#: nothing that is loaded becomes garbage, and children need not look at what was there before them
START = f"""{WITH_TC}import gc
gc.disable()
from tc.minifier.server import main
gc.enable()
gc.freeze()
main()
"""


class OracleError(Exception):
    """The process that judges does not answer."""


class Server:
    """The warm process, from outside.

    Attributes:
        threads: that torch has in its children; 0: as many as in any process.
        compiler: which one it has loaded, ``tc``, ``torch``, or neither.
    """

    def __init__(self, folder: Path, compiler: str = "", threads: int = 0) -> None:
        self.folder = folder
        self.threads = threads
        self.asked = 0
        self.compiler = ""
        self.start({})
        self.warm(compiler)

    def start(self, variables: Mapping[str, str]) -> None:
        """Start the process, which knows these environment variables too."""
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", START, str(self.folder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, **SETTINGS, **variables},
                start_new_session=True,
            )

    def restart(self, variables: Mapping[str, str]) -> None:
        """Start again, with environment variables a script sets or without what went wrong."""
        self.close()
        self.start(variables)
        self.compiler = ""

    def warm(self, compiler: str) -> None:
        """Load a compiler, if it is not loaded yet; one that cannot even be loaded is left."""
        if compiler in ("", self.compiler):
            return
        try:
            self.ask({"do": "warm", "compiler": compiler})
        except OracleError:
            self.restart({})
        self.compiler = compiler

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request and wait for its answer."""
        assert self.process.stdin is not None
        self.asked += 1
        row = {"id": self.asked, "threads": self.threads, "memory": MEMORY, **request}
        try:
            self.process.stdin.write(json.dumps(row) + "\n")
            self.process.stdin.flush()
            return self._answer(self.asked)
        except BrokenPipeError:
            raise self._ended() from None
        except KeyboardInterrupt:
            self.process.send_signal(signal.SIGUSR1)  # it need not finish what it is judging
            raise

    def _answer(self, number: int) -> dict[str, Any]:
        """Wait for an answer; those to questions that were given up are passed over."""
        assert self.process.stdout is not None
        while line := self.process.stdout.readline():
            answer: dict[str, Any] = json.loads(line)
            if answer.get("id") == number:
                return answer
        raise self._ended()

    def _ended(self) -> OracleError:
        log = (self.folder / "server.log").read_text(errors="replace").strip().splitlines()
        last = log[-1] if log else "it said nothing"
        return OracleError(f"the judging process ended: {last}")

    def close(self) -> None:
        """End it and what it started."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class NotRunnable(OracleError):
    """A graph does not run by itself in eager; the text says why."""


@dataclass(kw_only=True)
class Search:
    """What all oracles share: the failure that is looked for, and what is known already.

    Attributes:
        seconds: limit for one run.
        target: the failure that is looked for; None: none yet.
        akin: while there is no target, the first failure that may be the same as this one is.
        rule: how many runs of a candidate have to fail.
        share: of the runs in which the first program fails.
        deadline: no more questions from then on (`time.monotonic`).
        others: other failures found on the way, and how often.
        asked: runs so far.
    """

    seconds: float = 120
    target: Identity | None = None
    akin: Identity | None = None
    rule: Rule = field(default_factory=Rule)
    share: float = 1.0
    deadline: float = float("inf")
    journal: Journal = field(default_factory=Journal)
    others: Counter[Identity] = field(default_factory=Counter)
    asked: int = 0
    repeated: int = 0
    cpu: float = 0.0

    def is_target(self, answer: Answer) -> bool:
        """Return whether an answer is the failure that is looked for."""
        if self.target is None and answer.is_akin(self.akin):
            self.target = answer.identity
        return self.target is not None and answer.identity == self.target

    def answered(self, question: str, ask: Callable[[], Answer]) -> Answer:
        """Return the answer to a question; one that was asked before is not asked again."""
        if self.rule != Rule():
            question = f"{self.rule}\n{question}"
        known = self.journal.get(question)
        if known is not None:
            self.repeated += 1
            return known
        if time.monotonic() > self.deadline:
            return Answer("late")
        answer = self.rule.decided(functools.partial(self._counted, ask), self.is_target)
        self.journal.put(question, answer)
        if self.target is not None and answer.identity not in (None, self.target):
            assert answer.identity is not None
            self.others[answer.identity] += 1
        return answer

    def _counted(self, ask: Callable[[], Answer]) -> Answer:
        self.asked += 1
        return ask()

    def measure(self, question: str, ask: Callable[[], Answer], runs: int = 0) -> str:
        """See whether the failure always shows; where it does not, set the rule.

        Args:
            runs: to look at; 0: as found fit.

        Returns:
            How often it fails, in words; nothing if it always does.
        """
        runs = runs or (3 if self.target and self.target.kind != "hangs" else 1)
        if self.rate(question, ask, runs) == runs:
            return ""
        runs = max(runs, MEASURED)
        failed = max(self.rate(question, ask, runs), 1)
        self.share = failed / runs
        self.rule = rule_for(self.share)
        return summary(failed, runs)

    def rate(self, question: str, ask: Callable[[], Answer], runs: int) -> int:
        """Return how many of so many runs are the failure that is looked for."""
        rule, self.rule = self.rule, Rule()
        try:
            return sum(
                self.is_target(self.answered(f"{question}\n# run {number}", ask))
                for number in range(runs)
            )
        finally:
            self.rule = rule


@dataclass(kw_only=True)
class Oracle(Search):
    """Judges cases through a server."""

    server: Server

    def ask(self, case: Case) -> Answer:
        """Run a case once."""
        row = self.server.ask(
            {"do": "judge", "program": case.program(), "arguments": case.arguments,
             "call": str(case.call), "backward": case.backward, "seconds": self.seconds,
             "accepts": self.target is None or self.target.kind == "accepts"}
        )  # fmt: skip
        self.cpu += row.get("cpu", 0.0)
        return Answer.of(row)

    @staticmethod
    def question(case: Case) -> str:
        """Return the text that a case is known by in the journal."""
        return f"{case.program()}\n{case.call}\n{case.backward}"

    def judge(self, case: Case) -> Answer:
        """Return how a case fares."""
        return self.answered(self.question(case), lambda: self.ask(case))

    def fails(self, case: Case) -> bool:
        """Return whether a case fails in the way that is looked for."""
        return bool(case.outputs or case.steps) and self.is_target(self.judge(case))

    def learn(self, case: Case) -> Case:
        """Return the case with the facts about each of its values; the server keeps the values.

        Where eager raises and compiled code does not, they are the values up to the call that does.

        Raises:
            NotRunnable: its values cannot be computed.
        """
        failure = self.target or self.akin
        raises = failure is not None and failure.kind == "accepts"
        row = self.server.ask(
            {"do": "values", "program": keeping(case), "arguments": case.arguments,
             "backward": case.backward, "seconds": self.seconds, "raises": raises}
        )  # fmt: skip
        if row["kind"] != "ok":
            raise NotRunnable(first_line(str(row.get("message"))))
        facts = {name: fact_from_json(fact) for name, fact in row["facts"].items()}
        return case.with_facts(facts)


def keeping(case: Case) -> str:
    """The program that passes each value to ``keep`` as soon as it is there."""
    names = case.names()
    head, _, tail = case.program().partition("\ndef f(")
    arguments, _, _ = tail.partition("\n")
    lines = [f"def f({arguments}"]
    lines += [f"    keep({item.name!r}, {names[item.name]})" for item in case.inputs]
    for step in case.steps:
        lines.append(f"    {step.line(names)}")
        kept = None if step.statement else names[step.name]
        lines.append(f"    keep({step.name!r}, {kept})")
    return "\n".join([head, *lines, "", *case.makers(), ""])


@dataclass(kw_only=True)
class ScriptOracle(Search):
    """Judges whole scripts.

    Attributes:
        home: folder of the script, whose neighbours it may import.
        arguments: its command line.
        blameless: the script is sound but for the compiler, and has to stay so.
        place: makes the folder that a candidate runs in.
        path: makes the folder that its file lies in; returns the file's path.
    """

    server: Server
    path: Callable[[], Path]
    home: Path = Path()
    arguments: Sequence[str] = ()
    blameless: bool = False
    place: Callable[[], Path] = Path.cwd

    def ask(self, text: str, eager: bool = False) -> Answer:
        """Run a script once."""
        row = self._run(text, eager=eager)
        self.cpu += row.get("cpu", 0.0)
        answer = Answer.of(row)
        if answer.identity == Identity("wrong") and self._is_rounding(text, row.get("ways", ())):
            text = "compiled results differ from eager's by no more than rounding does"
            answer = dataclasses.replace(answer, identity=Identity(ROUNDING), message=text)
        return answer

    def _is_rounding(self, text: str, ways: Sequence[str]) -> bool:
        """Return whether the script itself, run in another precision, explains a difference."""
        return any(self._run(text, eager=True, way=way).get("rounding", False) for way in ways)

    def _run(self, text: str, **more: Any) -> dict[str, Any]:
        return self.server.ask(
            {"do": "script", "text": text, "home": str(self.home), "seconds": self.seconds,
             "arguments": list(self.arguments), "cwd": str(self.place()),
             "path": str(self.path()), **more}
        )  # fmt: skip

    def judge(self, text: str) -> Answer:
        """Return how a script fares."""
        return self.answered(text, lambda: self.ask(text))

    def is_sound(self, text: str) -> bool:
        """Return whether a script ends well without the compiler."""
        rule, self.rule = self.rule, Rule()
        try:
            answer = self.answered(f"{text}\n# eager", lambda: self.ask(text, eager=True))
        finally:
            self.rule = rule
        return answer.kind == "ok"

    def fails(self, text: str) -> bool:
        """Return whether a script fails in the way that is looked for."""
        return self.is_target(self.judge(text)) and (not self.blameless or self.is_sound(text))
