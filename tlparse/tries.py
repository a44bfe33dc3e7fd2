"""A program and its trace go in; what running it again with each fix gave comes out."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Final

from tc.tlparse import edits
from tc.tlparse.changes import Change, change_of, together
from tc.tlparse.edits import NoEdit
from tc.tlparse.outputs import difference, same
from tc.trace.compiles import graphs_of
from tc.trace.delivery import complain
from tc.trace.findings import Diagnosis, Finding, diagnose
from tc.trace.reader import Unreadable
from tc.trace.session import load
from tc.trace.trials import FAILED, HELPED, NO_HELP, OTHERWISE, UNTRIED, Trial

MOST_RUNS: Final = 20
_TRIED: Final = ("break", "skipped", "recompile", "refused")  # marks of findings
_LEAST_SECONDS: Final = 60.0
_TIMES_LONGER: Final = 3.0
_LAUNCHER: Final = """\
import tc_trial_hook as _hook
exec(_hook.code({path!r}), _hook.become(globals(), {path!r}))
"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run of the program came to.

    Attributes:
        findings: id of a finding → how often it occurred.
        output: what it printed on stdout.
        error: why it does not count; empty if it does.
    """

    breaks: int = 0
    recompiles: int = 0
    refused: int = 0
    skipped: int = 0
    graphs: int = 0
    findings: Mapping[str, int] = field(default_factory=dict)
    output: str = ""
    error: str = ""


def outcome(diagnosis: Diagnosis) -> Outcome:
    """Count what fixes are to lower."""
    return Outcome(
        len(diagnosis.breaks),
        diagnosis.recompile_count,
        len(diagnosis.recompiles) - diagnosis.recompile_count,
        len(diagnosis.skips),
        graphs_of(diagnosis.session.compiles),
        {one.id: one.count for one in diagnosis.findings},
    )


@dataclass(slots=True)
class Program:
    """A command that was run once, and is run again with changes.

    Attributes:
        code: its exit code of the first run; a run with another one has failed.
        seconds: what the first run took; a run may take some times that.
    """

    command: Sequence[str]
    code: int
    seconds: float

    def again(self, change: Change) -> Outcome:
        """Run it with a change in force, its output hidden."""
        with tempfile.TemporaryDirectory(prefix="tc-report-try-") as name:
            place = Path(name)
            trace = place / "trace"
            trace.mkdir()
            code, said = self._run(place, trace, change)
            printed = (place / "output").read_text("utf-8", "replace")
            if code != self.code:
                return Outcome(error=f"the program then {_ending(code)}{said}")
            hook = place / "applied"
            applied = set(hook.read_text("utf-8").splitlines()) if hook.exists() else set()
            if not change.marks <= applied:
                return Outcome(error="the program never loaded what it changes")
            try:
                session = load(trace)
            except Unreadable:
                return Outcome(output=printed)  # nothing is compiled any more
            try:
                return replace(outcome(diagnose(session)), output=printed)
            finally:
                session.close()

    def _run(self, place: Path, trace: Path, change: Change) -> tuple[int | None, str]:
        """Return its exit code, None if it took too long, and what its last words were."""
        command = self._prepared(place, change)
        paths = [str(place), os.environ.get("PYTHONPATH", "")]
        environment = {
            **os.environ,
            **change.variables,
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "PYTHONDONTWRITEBYTECODE": "1",
            "TC_TRACE": str(trace),
            "TORCH_TRACE": str(trace),
        }
        with open(place / "output", "wb") as output, open(place / "errors", "w+b") as errors:
            program = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=output,
                stderr=errors, start_new_session=True,
            )  # fmt: skip
            try:
                code = program.wait(max(_LEAST_SECONDS, _TIMES_LONGER * self.seconds))
            except subprocess.TimeoutExpired:
                return None, ""
            finally:
                _end(program)
            errors.seek(max(0, errors.seek(0, 2) - 4096))
            rows = errors.read().decode("utf-8", "replace").strip().splitlines()
        return 128 - code if code < 0 else code, f": {rows[-1].strip()[:200]}" if rows else ""

    def _prepared(self, place: Path, change: Change) -> list[str]:
        """Lay out what the program loads first; return the command that runs it."""
        command = list(self.command)
        plan: dict[str, object] = {
            "modules": change.modules,
            "files": {
                file: edits.apply(Path(file).read_bytes(), splices).decode("utf-8")
                for file, splices in change.files.items()
            },
        }
        shutil.copy(str(files("tc.tlparse") / "hooked.py"), place / "tc_trial_hook.py")
        (place / "sitecustomize.py").write_text("import tc_trial_hook\ntc_trial_hook.install()\n")
        for number, word in enumerate(command):
            if os.path.isfile(word) and os.path.realpath(word) in change.files:
                launcher = place / "main" / os.path.basename(word)
                launcher.parent.mkdir()
                launcher.write_text(_LAUNCHER.format(path=os.path.abspath(word)), "utf-8")
                plan["script"], command[number] = word, str(launcher)
                break
        (place / "plan.json").write_text(json.dumps(plan), "utf-8")
        return command


def _end(program: subprocess.Popen[bytes]) -> None:
    """End the program with all it started."""
    if program.poll() is None:
        if hasattr(os, "killpg"):
            with suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGKILL)
        else:  # Windows has no such groups; what the program started may live on
            program.kill()
        program.wait()


def _ending(code: int | None) -> str:
    return "took too long" if code is None else f"ended with exit code {code}"


# ------------------------------------------------------------------------------------ all of them


@dataclass(slots=True)
class _Tries:
    """The fixes of a run, tried one after the other."""

    program: Program
    before: Outcome
    runs: int = 0
    trials: list[Trial] = field(default_factory=list)
    known: dict[str, Outcome] = field(default_factory=dict)
    promising: dict[str, tuple[tuple[bool, int], Change]] = field(default_factory=dict)
    plain: list[str] = field(default_factory=list)

    def one(self, finding: Finding, text: str) -> None:
        """Try one fix."""
        try:
            change = change_of(finding, text)
        except NoEdit as error:
            self.trials.append(Trial((finding.id,), text, UNTRIED, str(error)))
            return
        if self.runs >= MOST_RUNS and repr(change) not in self.known:
            why = f"the program was run {MOST_RUNS} times for more expensive ones"
            self.trials.append(Trial((finding.id,), text, UNTRIED, why))
            return
        after = self.after(change, f"a fix of {finding.id}: {text}")
        state, gave = self.compared(after, *_judge(finding, self.before, after))
        self.trials.append(Trial((finding.id,), text, state, gave, change.patch))
        if state in (HELPED, NO_HELP):
            rank = state == HELPED, -after.findings.get(finding.id, 0)
            if finding.id not in self.promising or rank > self.promising[finding.id][0]:
                self.promising[finding.id] = rank, change

    def after(self, change: Change, what: str) -> Outcome:
        """Return what the program comes to with a change."""
        key = repr(change)
        if key not in self.known:
            self.runs += 1
            _say(f"trying {what}")
            self.known[key] = self.program.again(change)
        return self.known[key]

    def compared(self, after: Outcome, state: str, gave: str) -> tuple[str, str]:
        """Return what came of a run, its results looked at: others count as no help."""
        if state == FAILED:
            return state, gave
        word, other = self.results(after)
        return (OTHERWISE if other else state), f"{gave}, {word}"

    def results(self, after: Outcome) -> tuple[str, bool]:
        """Compare a run's output with that of the program: a sentence, and whether they differ."""
        while len(self.plain) < 2:
            if self.plain and same(self.plain[0], after.output):
                break
            _say("running it again unchanged, to compare its output")
            self.plain.append(self.program.again(Change()).output)
        first = self.plain[0]
        if not first.strip():
            return "it prints no results to compare", False
        if same(first, after.output):
            return "same results", False
        if not same(first, self.plain[1]):
            return "its results differ from run to run", False
        return f"OTHER RESULTS: {difference(first, after.output)}", True

    def all_at_once(self) -> None:
        """Try the best fix of each finding at the same time."""
        names = tuple(self.promising)
        change = together(change for _, change in self.promising.values())
        if len(names) < 2 or change is None:
            return
        after = self.after(change, f"{len(names)} fixes together")
        pairs = [
            (word, getattr(self.before, word), getattr(after, word))
            for word in ("breaks", "recompiles", "graphs")
        ]
        lower = any(new < old for _, old, new in pairs)
        state = FAILED if after.error else HELPED if lower else NO_HELP
        gave = ", ".join(f"{word} {old} → {new}" for word, old, new in pairs if old or new)
        state, gave = self.compared(after, state, after.error or gave)
        self.trials.append(Trial(names, "", state, gave, change.patch))


def tried(program: Program, diagnosis: Diagnosis) -> list[Trial]:
    """Try the fixes of graph breaks, recompiles and skipped functions, most expensive first."""
    tries = _Tries(program, outcome(diagnosis))
    with _interruptible():
        for finding in diagnosis.findings:
            if finding.kind.mark in _TRIED:
                for way in finding.fixes:
                    tries.one(finding, way.text)
        tries.all_at_once()
    return tries.trials


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let Ctrl-C end the tries, not the report."""
    try:
        yield
    except KeyboardInterrupt:
        _say("no more fixes are tried: interrupted")


def _judge(finding: Finding, before: Outcome, after: Outcome) -> tuple[str, str]:
    if after.error:
        return FAILED, after.error
    if finding.kind.mark == "skipped":
        word, old, new = "skipped functions", before.skipped, after.skipped
    elif finding.kind.mark in ("recompile", "refused"):
        word, old, new = "recompiles", before.recompiles, after.recompiles
    else:
        word, old, new = "breaks", before.breaks, after.breaks
    change = f"{word} {old} → {new}"
    if before.refused and word == "recompiles":
        change += f", refused {before.refused} → {after.refused}"
        old, new = old + before.refused, new + after.refused
    if new >= old and finding.id not in after.findings:
        change += "; this cause is gone, but others appear instead"
    return (HELPED if new < old else NO_HELP), change


def _say(text: str) -> None:
    complain(f"tc-report: {text}")
