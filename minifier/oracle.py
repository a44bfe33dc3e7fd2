"""Asks whether a case still fails in the same way; remembers each answer by the case's text."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tc.minifier.case import Case, fact_from_json

MEMORY = 8 << 30  # what a child may take beyond what the server has
#: compilers start no processes that stay, and looking for devices does not set them up
SETTINGS = {"TORCHINDUCTOR_COMPILE_THREADS": "1", "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}


#: nothing that is loaded becomes garbage, and children need not look at what was there before them
START = """import gc
gc.disable()
from tc.minifier.server import main
gc.enable()
gc.freeze()
main()
"""


class OracleError(Exception):
    """The process that judges does not answer."""


@dataclass(frozen=True)
class Answer:
    """How a case fared; see `tc.minifier.judge.Outcome`."""

    kind: str
    signature: str = ""
    message: str = ""
    detail: Mapping[str, Any] = field(default_factory=dict)

    def is_like(self, other: Answer) -> bool:
        """Whether two failures are of one kind: values that are wrong, or the same exception."""
        values = ("wrong", "nan")
        if self.kind in values or other.kind in values:
            return self.kind in values and other.kind in values
        return self.kind == other.kind and self.detail.get("type") == other.detail.get("type")

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Answer:
        """The answer in a line of the server's."""
        return cls(
            row["kind"],
            row.get("signature") or "",
            row.get("message") or "",
            row.get("detail") or {},
        )


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
        """Start anew, with environment variables a script sets or without what went wrong."""
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


@dataclass
class Oracle:
    """Judges cases through a server and remembers every answer.

    Attributes:
        seconds: limit for one question.
        signature: the failure that is looked for.
        deadline: no more questions from then on (`time.monotonic`).
        answers: program text -> answer.
        others: other failures met on the way, by signature, and how often.
    """

    server: Server
    seconds: float = 120
    signature: str = ""
    deadline: float = float("inf")
    answers: dict[str, Answer] = field(default_factory=dict)
    others: Counter[str] = field(default_factory=Counter)
    asked: int = 0
    repeated: int = 0
    cpu: float = 0.0

    def judge(self, case: Case) -> Answer:
        """Return how a case fares."""
        program, call = case.program(), str(case.call)
        key = f"{program}\n{call}\n{case.backward}"
        if key in self.answers:
            self.repeated += 1
            return self.answers[key]
        if time.monotonic() > self.deadline:
            return Answer("late")
        self.asked += 1
        row = self.server.ask(
            {"do": "judge", "program": program, "arguments": case.arguments, "call": call,
             "backward": case.backward, "seconds": self.seconds}
        )  # fmt: skip
        self.cpu += row.get("cpu", 0.0)
        answer = Answer.of(row)
        self.answers[key] = answer
        if self.signature and answer.signature and answer.signature != self.signature:
            self.others[answer.signature] += 1
        return answer

    def fails(self, case: Case) -> bool:
        """Whether a case fails in the way that is looked for."""
        return bool(case.outputs or case.steps) and self.judge(case).signature == self.signature

    def learn(self, case: Case) -> Case:
        """Return the case with the facts about each of its values; the server keeps the values."""
        row = self.server.ask(
            {"do": "values", "program": keeping(case), "arguments": case.arguments,
             "backward": case.backward, "seconds": self.seconds}
        )  # fmt: skip
        if row["kind"] != "ok":
            raise OracleError(f"the graph does not run by itself: {row.get('message')}")
        facts = {name: fact_from_json(fact) for name, fact in row["facts"].items()}
        return case.with_facts(facts)


def keeping(case: Case) -> str:
    """The program that tells each value to ``keep`` as soon as it is there."""
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


@dataclass
class ScriptOracle:
    """Judges whole scripts; remembers every answer.

    Attributes:
        home: folder of the script, whose neighbours it may import.
        arguments: its command line.
        signature: the failure that is looked for.
        blameless: the script is sound but for the compiler, and has to stay so.
    """

    server: Server
    home: Path
    arguments: Sequence[str]
    seconds: float = 120
    signature: str = ""
    blameless: bool = False
    deadline: float = float("inf")
    answers: dict[str, bool] = field(default_factory=dict)
    asked: int = 0
    cpu: float = 0.0

    def judge(self, text: str, eager: bool = False) -> Answer:
        """Return how a script fares."""
        self.asked += 1
        row = self.server.ask(
            {"do": "script", "text": text, "eager": eager, "home": str(self.home),
             "arguments": list(self.arguments), "seconds": self.seconds}
        )  # fmt: skip
        self.cpu += row.get("cpu", 0.0)
        return Answer.of(row)

    def fails(self, text: str) -> bool:
        """Whether a script fails in the way that is looked for."""
        if text in self.answers:
            return self.answers[text]
        if time.monotonic() > self.deadline:
            return False
        fails = self.judge(text).signature == self.signature
        if fails and self.blameless:
            fails = self.judge(text, eager=True).kind == "ok"
        self.answers[text] = fails
        return fails
