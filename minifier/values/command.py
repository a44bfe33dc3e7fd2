"""``tc-bisect record`` and ``tc-bisect compare``: the first difference between two runs."""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final

from tc.minifier import identity
from tc.minifier.caches import caches_of_one_run
from tc.minifier.console import Parser, Progress, Usage, require_torch, show, split_rest
from tc.minifier.limits import TimeLimit
from tc.minifier.subject import Subject, subject_of
from tc.minifier.values.compare import Comparison, Pair
from tc.minifier.values.log import Event, Log, NoLog
from tc.minifier.verdict import BUG, INCONCLUSIVE, Verdict
from tc.minifier.workplace import Workplace
from tc.trace.arguments import seconds
from tc.trace.delivery import OK, complain
from tc.trace.files import replace_file
from tc.trace.words import count as counted

RECORDER: Final = Path(__file__).with_name("recorder.py")
EAGER: Final = ("eager", "moved")  # how a program is run, see `HELP`
COMPILED: Final = ("compiled", "outputs")
SECONDS: Final = 600.0  # limit for one run
ENTERS: Final = 4  # values that enter, in the verdict
HELP: Final = """\
Find the first value in which two runs of a program differ by more than rounding.

examples:
  tc-bisect compare train.py             eager against compiled
  tc-bisect compare train.py --python /opt/torch-2.12/bin/python      eager under two Pythons
  tc-bisect record -o a.values train.py -- --seed 1                   a log of one run ...
  tc-bisect compare a.values b.values    ... against another
  torchrun --nproc-per-node 2 --no-python tc-bisect record train.py   a log of each rank

usage:
  tc-bisect compare SCRIPT [--python EXE] [--seconds N] [--json] [-m] [-- ARGUMENT ...]
  tc-bisect compare LOG LOG [--rounding LOG] [--json]
  tc-bisect record SCRIPT [-o LOG] [--how HOW] [--python EXE] [--seconds N] [-m] [-- ARGUMENT ...]

Each call of a torch function is recorded: its line, its operation, and a summary of each result and
of its gradient. Values are paired by line and operation, so that runs of different length compare.
Rounding is measured by a third run, in which each result is moved by a unit in the last place.

options:
  -o LOG          default: SCRIPT.values, or SCRIPT.rankN.values where RANK is set
  --how HOW       eager (default), moved (the run that measures rounding), compiled, or outputs
                  (compiled, but only what graphs take and return)
  --rounding LOG  a moved run of the first program
  --python EXE    another Python; it needs torch, and for compiled runs tc
  --json          print the result as JSON

exit codes:
  0 only rounding differs   1 a difference   2 wrong usage   4 internal error
  5 nothing to compare   130 Ctrl-C
"""


Blame = Callable[[Subject, Workplace, float], Verdict]  # what tc-bisect says of a program


def run(arguments: Sequence[str], blame: Blame) -> int:
    """Run ``record`` or ``compare``; returns the exit code.

    Args:
        blame: what tc-bisect says of a program; asked where a difference needs fused code.

    Raises:
        Usage: the command was not understood.
    """
    verb, *rest = arguments
    if not rest or "-h" in rest or "--help" in rest:
        sys.stdout.write(HELP)
        return OK
    own, after = split_rest(rest)
    return record(own, after) if verb == "record" else compare(own, after, blame)


# -- record --------------------------------------------------------------------------------------
def record(own: Sequence[str], rest: Sequence[str]) -> int:
    """Run a program once, and leave its log behind."""
    parser = _parser("tc-bisect record")
    parser.add_argument("-o", "--output", default="")
    parser.add_argument("--how", default="eager")
    options = parser.parse_args(own)
    if options.how not in (*EAGER, *COMPILED):
        raise Usage(f"--how is eager, moved, compiled or outputs, not {options.how}")
    subject = subject_of(options.script, rest, options.module)
    rank = os.environ.get("RANK")
    name = (
        options.output or Path(options.script).stem + (f".rank{rank}" if rank else "") + ".values"
    )
    output = Path(name)
    if not output.absolute().parent.is_dir():
        raise Usage(f"there is no folder {output.parent}")
    with Workplace("tc-bisect", True) as place:
        made = Run(subject, place.folder, options.seconds or SECONDS, python_of(options.python))
        log = made.record(options.how)
        found, size = Log.read(log), log.stat().st_size / 1e6
        with log.open("rb") as content:
            try:
                replace_file(output, iter(lambda: content.read(1 << 20), b""))
            except OSError as error:
                raise Usage(f"cannot write {output}: {error.strerror}") from error
    complain(f"{output}: {counted(len(found.events), 'value')}, {size:.1f} MB")
    return 0 if not found.end.get("error") else 1


@dataclass
class Run:
    """How a program is run and recorded."""

    subject: Subject
    folder: Path
    seconds: float
    python: str
    output: IO[bytes] | None = None
    progress: Progress = field(default_factory=Progress)

    def log(self, how: str) -> Log:
        """Run the program and read its log."""
        self.progress.now(f"running {self.subject.label}, {how} …")
        return Log.read(self.record(how))

    def record(self, how: str) -> Path:
        """Run the program; returns its log, which may be cut off where it died.

        Raises:
            Usage: there is no log.
        """
        log = self.folder / f"{how}-{len(list(self.folder.glob('*.log')))}.log"
        script = self.subject.script(self.folder)
        by = "" if how in EAGER else "tc.minifier.values.exposed"
        command = [
            self.python, "-c", identity.BOOT, str(RECORDER), str(log), how, by,
            str(self.subject.home), str(script), *self.subject.arguments,
        ]  # fmt: skip
        with caches_of_one_run() as caches:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=self.output, stderr=self.output,
                env={**os.environ, **caches}, start_new_session=True,
            )  # fmt: skip
            try:
                TimeLimit(self.seconds).wait(process)
            except subprocess.TimeoutExpired:
                pass  # what was recorded so far counts
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if not log.exists():
            raise Usage(f"the {how} run of {self.subject.label} left no log: is torch installed?")
        return log


def python_of(name: str | None) -> str:
    """Return the path of an interpreter.

    Raises:
        Usage: there is none.
    """
    if not name:
        require_torch()
        return sys.executable
    found = shutil.which(name)
    if found is None:
        raise Usage(f"there is no Python {name}")
    return found


def _parser(name: str) -> Parser:
    parser = Parser(prog=name, add_help=False, allow_abbrev=False)
    parser.add_argument("script", metavar="SCRIPT")
    parser.add_argument("-m", dest="module", action="store_true")
    parser.add_argument("--python")
    parser.add_argument("--seconds", type=seconds)
    return parser


# -- compare -------------------------------------------------------------------------------------
def compare(own: Sequence[str], rest: Sequence[str], blame: Blame) -> int:
    """Compare two logs, or two runs of a program."""
    parser = _parser("tc-bisect compare")
    parser.add_argument("other", nargs="?")
    parser.add_argument("--rounding")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(own)
    try:
        if options.other:
            names = [options.script, options.other, *filter(None, [options.rounding])]
            one, other, *moved = [Log.read(_existing(name)) for name in names]
            verdict = verdict_on(Comparison(one, other, *moved))
        else:
            subject = subject_of(options.script, rest, options.module)
            verdict = of_runs(subject, options.python, options.seconds or SECONDS, blame)
    except NoLog as error:
        raise Usage(str(error)) from None
    show(verdict.as_json() if options.json else verdict)
    return verdict.code


def _existing(name: str) -> Path:
    path = Path(name)
    if not path.is_file():
        raise Usage(f"there is no log {name}")
    return path


def of_runs(subject: Subject, python: str | None, seconds: float, blame: Blame) -> Verdict:
    """Run a program eagerly, again with moved results, and compiled or by another Python."""
    with Workplace("tc-bisect") as place, (place.folder / "output").open("wb") as output:
        own = Run(subject, place.folder, seconds, python_of(None), output)
        if python:
            by = Run(subject, place.folder, seconds, python_of(python), output)
            found = verdict_on(Comparison(own.log("eager"), by.log("eager"), own.log("moved")))
        else:
            found = of_compiled(own, lambda: blame(subject, place, seconds))
        return found.renamed(lambda text: subject.named(text, place.folder))


def of_compiled(run: Run, blame: Callable[[], Verdict]) -> Verdict:
    """Compare a compiled run with an eager one."""
    eager, moved = run.log("eager"), run.log("moved")
    comparison = Comparison(eager, run.log("compiled"), moved)
    if comparison.first is not None:
        return verdict_on(comparison)
    whole = Comparison(eager, run.log("outputs"), moved)
    if whole.first is None:
        return verdict_on(comparison)
    text = f"{run.subject.label} is right where every value is returned; bisecting …"
    run.progress.now(text)
    return of_fused(verdict_on(whole), blame())


def of_fused(seen: Verdict, found: Verdict) -> Verdict:
    """Return the verdict on graphs that are right where they return every value.

    Only what they return shows the difference then, which is behind the line that goes wrong. So
    the steps of the compiler are bisected, and the line is the one that the wrong step works for.
    """
    text = "the same graphs are right where they return every value: what goes wrong needs code " \
        "that is fused, or memory that is used again"  # fmt: skip
    lines = [str(line) for line in found.facts.get("lines", ())]
    if found.code != BUG or not lines:
        seen.add("fused", text, fused=True)
        seen.add("tc-bisect", found.title)
        return seen
    verdict = Verdict(BUG, f"{lines[0]} goes wrong in fused code: {found.title}")
    verdict.rows += [row for row in found.rows if row[0] in ("your line", "step", "kernel")]
    verdict.facts = {**seen.facts, "line": lines[0], "fused": True}
    verdict.facts |= {k: v for k, v in found.facts.items() if k in ("lines", "step", "stage")}
    verdict.add("fused", text)
    verdict.rows += [("first seen" if name == "your line" else name, row)
                     for name, row in seen.rows]  # fmt: skip
    return verdict


def verdict_on(comparison: Comparison) -> Verdict:
    """Return what a comparison shows."""
    one, other = comparison.one, comparison.other
    names = labels(one, other)
    pair = comparison.first
    pairs = comparison.pairs.values()
    if not pairs:
        return Verdict(INCONCLUSIVE, f"{names[0]} and {names[1]} have no value in common")
    apart = [each.distance for each in pairs if each.distance]
    ended = [log.end.get("error", "" if log.end else "its log is cut off") for log in (one, other)]
    if pair is None and ended[0] != ended[1]:
        text, (bad, good) = (ended[0], names) if ended[0] else (ended[1], names[::-1])
        verdict = Verdict(BUG, f"{bad} ends with {text}; {good} does not")
        verdict.facts["verdict"] = "ended"
    elif pair is None:
        word = "rounding" if apart else "equal"
        title = f"only rounding differs between {names[0]} and {names[1]}" if apart else \
            f"{names[0]} and {names[1]} are equal bit by bit"  # fmt: skip
        verdict = Verdict(OK, title)
        verdict.facts["verdict"] = word
    else:
        place = pair.one.line.place
        verdict = Verdict(
            BUG, f"{place} is the first line whose values differ by more than rounding"
        )
        verdict.facts["verdict"] = "differs"
        _add_pair(verdict, comparison, pair, names)
    _add_counts(verdict, comparison, apart)
    for log, name, error in zip((one, other), names, ended, strict=True):
        if error and verdict.facts["verdict"] != "ended":
            verdict.add("ended", f"{name}: {error}")
        for note in log.notes:
            verdict.add("note", f"{name}: {note}")
        if log.end.get("dropped"):
            verdict.add(
                "dropped",
                f"{name}: {counted(log.end['dropped'], 'value')} after the limit of a log",
            )
    return verdict


def _add_pair(verdict: Verdict, comparison: Comparison, pair: Pair, names: Sequence[str]) -> None:
    line = pair.one.line
    verdict.add("your line", f"{line.place}   {line.text}", line=line.place, code_text=line.text)
    if pair.other.line.place != line.place:
        verdict.add(f"in {names[1]}", pair.other.line.place, other_line=pair.other.line.place)
    verdict.add("value", str(pair.one), value=str(pair.one), operation=pair.one.operation)
    for name, event in zip(names, (pair.one, pair.other), strict=True):
        verdict.add(name[:11], values_of(event))
    tolerance = comparison.tolerance(pair)
    verdict.add(
        "apart", f"{_size(pair.distance)}; rounding explains {_size(tolerance)}",
        distance=_number(pair.distance), rounding=_number(tolerance), where=worst_part(pair),
    )  # fmt: skip
    if where := worst_part(pair):
        verdict.add("most of it", where)
    enters = comparison.enters(pair)
    for entering in enters[:ENTERS]:
        text = "equal" if not entering.distance else f"{_size(entering.distance)} apart"
        verdict.add("enters", f"{entering.one.line.place}  {entering.one}: {text}")
    verdict.facts["enters"] = [
        {"line": each.one.line.place, "value": str(each.one), "distance": _number(each.distance)}
        for each in enters
    ]
    if len(enters) > ENTERS:
        verdict.add("enters", f"and {len(enters) - ENTERS} more values")


def _add_counts(verdict: Verdict, comparison: Comparison, apart: Sequence[float]) -> None:
    total = len(comparison.pairs)
    logs = (comparison.one, comparison.other)
    lonely = [sum(bool(event.dtype) for event in log.events) - total for log in logs]
    text = f"{counted(total, 'value')} of both runs: {total - len(apart)} equal bit by bit"
    if apart and verdict.code == OK:
        text += f", the others at most {_size(max(apart))} apart"
    verdict.add("compared", text, compared=total, equal=total - len(apart))
    if any(lonely):
        verdict.add(
            "alone", f"{lonely[0]} and {lonely[1]} values of one run have no partner in the other",
            alone=lonely,
        )  # fmt: skip
    if flipped := comparison.flipped:
        first = min(flipped, key=lambda pair: pair.one.number).one
        verdict.add(
            "decided", f"{len(flipped)} values without rounding differ where what they are made of "
            f"does; the first is {first}, {first.line.place}", flipped=len(flipped),
        )  # fmt: skip


def labels(one: Log, other: Log) -> tuple[str, str]:
    """Return what two runs are called: by what distinguishes them."""
    for fact, form in (("how", "{}"), ("rank", "rank {}"), ("torch", "torch {}"),
                       ("python", "Python {}"), ("executable", "{}")):  # fmt: skip
        mine, theirs = one.facts.get(fact), other.facts.get(fact)
        if mine != theirs and mine and theirs:
            return form.format(mine), form.format(theirs)
    return one.path.stem, other.path.stem


def values_of(event: Event) -> str:
    """Return the first elements of a value, and its size."""
    inner = ", ".join(f"{number:.7g}" for number in event.first)
    size = math.prod(event.shape)
    more = ", …" if size > len(event.first) else ""
    odd = f", {event.odd} not finite" if event.odd else ""
    form = f"{event.dtype}{list(event.shape)} "
    return f"{form}[{inner}{more}], norm {event.norm:.7g}{odd}"


def worst_part(pair: Pair) -> str:
    """Return which elements most of the difference is in, as far as a summary knows."""
    both = zip(pair.one.sums, pair.other.sums, strict=False)
    sums = [(mine - theirs) ** 2 for mine, theirs in both]
    size = math.prod(pair.one.shape)
    if pair.one.shape != pair.other.shape or len(sums) < 2 or not sum(sums):
        return ""
    block = max(range(len(sums)), key=sums.__getitem__)
    if sums[block] < 0.9 * sum(sums):
        return ""
    first, last = (size * place // len(sums) for place in (block, block + 1))
    return f"elements {first} to {max(last - 1, first)} of {size}, counted row by row"


def _size(distance: float) -> str:
    return f"{distance:.2g} of its norm" if distance < math.inf else "in type, shape or NaN"


def _number(distance: float) -> float | None:
    return distance if distance < math.inf else None
