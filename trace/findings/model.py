"""The facts of one cause go in; one frozen row, which prints itself, comes out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from tc.trace.cells import in_cell, source_in_cell, typed_line
from tc.trace.commands import Command, command
from tc.trace.compiles import Compile
from tc.trace.findings.codes import TIMED, Code, code_of
from tc.trace.fixes import NO_FIX, NOTHING_TO_DO, Fix, fixes_of
from tc.trace.ids import cause_id, digest, in_users_words, plain_function
from tc.trace.notebook import Item, Shown, View
from tc.trace.places import file_name
from tc.trace.stepcost import span
from tc.trace.timing import duration
from tc.trace.trials import Trial
from tc.trace.words import count


@dataclass(frozen=True, slots=True)
class Where:
    """A place in the user's source; 0 or "" where unknown. Columns count from 0."""

    file: str = ""
    line: int = 0
    col: int | None = None
    end_col: int | None = None
    function: str = ""
    source: str = ""

    @property
    def short(self) -> str:
        """`model.py:6 in forward`, the folder left out; of a notebook `In [3], line 6 in f`."""
        name = file_name(self.file) or "(unknown file)"
        place = in_cell(self.file, self.line) or (f"{name}:{self.line}" if self.line else name)
        return f"{place} in {self.function}" if self.function else place

    @property
    def text(self) -> str:
        """The source line, of a cell of this process also where the trace does not hold it."""
        return self.source or source_in_cell(self.file, self.line)


def here(compiled: Compile) -> Where:
    """The place of the user's that a compile is reported at, if none in it is known better."""
    return Where(*compiled.own_place, function=compiled.own_function)


@dataclass(frozen=True, slots=True)
class Cause:
    """One input of a function that changed between two compiles.

    Attributes:
        of_tensors: False of a length of what is known to hold no tensors.
        first: its value in the first compile; empty where it is not known, or no constant.
    """

    source: str
    old: str
    new: str
    kind: str
    guard: str = ""
    now_dynamic: bool = False
    file: str = ""
    line: int = 0
    of_tensors: bool = True
    first: str = field(default="", compare=False)

    def __str__(self) -> str:
        return in_users_words(f"{self.source}: {self.old or '?'} → {self.new or '?'}")


@dataclass(slots=True)
class Recompile:
    """One compile of a function that already had one.

    Attributes:
        of: the earlier compile it differs least from.
        causes: what changed since then, the one the compiler names first.
        reasons: the compiler's own words, one for each earlier compile that refused.
        values: what the new compile holds each input to, where its guards are recorded.
        held: the same of both compiles: one that ended without a graph has no guards.
    """

    compiled: Compile
    of: str = ""
    causes: tuple[Cause, ...] = ()
    reasons: tuple[tuple[str, str], ...] = ()
    values: Mapping[str, str] = field(default_factory=dict)
    held: Mapping[str, str] = field(default_factory=dict)
    refused: bool = False


@dataclass(frozen=True, slots=True)
class Occurrence:
    """Where in the trace a finding was seen."""

    compile: str
    lane: str
    time: str
    place: str
    artifact: int
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Event:
    """One happening in one compile; events of the same cause make one finding."""

    code: str
    title: str
    why: str
    fix: tuple[str, ...]
    where: Where
    reason: str
    compiled: Compile
    place: str = ""
    time: str = ""
    artifact: int = -1
    detail: str = ""
    evidence: str = ""
    reference: str = ""
    stack: tuple[Where, ...] = ()
    causes: tuple[Cause, ...] = ()
    seconds: float = 0.0
    resume: str = ""
    python_calls: int | None = None
    between: float = 0.0
    running: float = 0.0
    times: int = 0
    named: tuple[str, str] | None = None  # file and function its id is made of, if not of `where`


@dataclass(frozen=True, slots=True)
class Finding(Shown):
    """One cause, said once.

    Attributes:
        code: stable and documented, `TC110`.
        id: `TC110-7f3a`; the same over runs, ranks, line shifts and checkouts.
        fix: what to do, best first; empty if none is known.
        count: how often it happened; `occurrences` say where.
        seconds: compile time that it caused, 0 if not known.
        between: seconds of running that passed there, outside of compiled programs.
        running: seconds of compiled code that the fix would save; ``times`` is in how many calls
            these, or those between programs, passed.
        python_calls: calls that ran in Python because of it, None where they were not counted.
        reason: what its id is made of; of a recompile the input that leads it.
        evidence: the compiler's own words.
        reference: the id PyTorch has for it (`GB0170`), if any.
        redacted: what `--redact` left out of the trace; ids are those of what is left.
        forecast: recompiles left if these inputs were fixed, step by step.
        replayed: the forecast's first step is the very input that this finding is about.
        trials: what running the program again with one of its fixes gave.
    """

    code: str
    id: str
    title: str
    where: Where
    why: str
    fix: tuple[str, ...]
    count: int
    cost: str
    seconds: float
    occurrences: tuple[Occurrence, ...]
    reason: str = ""
    evidence: str = ""
    reference: str = ""
    redacted: str = ""
    stack: tuple[Where, ...] = ()
    causes: tuple[Cause, ...] = ()
    forecast: tuple[str, ...] = ()
    replayed: bool = False
    trials: tuple[Trial, ...] = ()
    python_calls: int | None = None
    between: float = 0.0
    running: float = 0.0
    times: int = 0

    @property
    def total(self) -> float:
        """Seconds that it cost: compiling, and in each step times the steps."""
        return self.seconds + self.between + self.running

    @property
    def fixes(self) -> tuple[Fix, ...]:
        """The ways to fix it, each marked as safe or to be reviewed, checked or not."""
        return fixes_of(self.fix, self.replayed, self.trials)

    @property
    def failure(self) -> str:
        """The error that a failed compile ended with; "" for any other finding."""
        return self.why if self.code == "TC900" else ""

    @property
    def behind(self) -> Where | None:
        """The place in a library where it happened, if `where` is the line that led there."""
        last = self.stack[-1] if self.stack else None
        return last if last is not None and last.file != self.where.file else None

    @property
    def kind(self) -> Code:
        """What its code means, and how it is marked."""
        return code_of(self.code)

    @property
    def timed(self) -> bool:
        """Whether it is reported because something took long: another run may not report it."""
        return self.kind.order in TIMED

    def __str__(self) -> str:
        lines = [f"{self.id}  {self.title}  ({self.count}x)"]
        if self.where.file or self.where.function:
            behind = f", in {self.behind.short}" if self.behind else ""
            lines.append(f"  {self.where.short}{behind}")
        if self.where.text:
            line = typed_line(self.where.file, self.where.line)
            lines.append(f"  {line:>5} | {self.where.text.strip()}")
        lines.append(f"  why  {self.why}")
        for number, way in enumerate(self.fixes):
            rows = way.text.split("\n")
            rows[-1] += f"  ({way.mark})"
            label = " or" if number else "fix"
            lines += [f"  {label if n == 0 else '   '}  {row}" for n, row in enumerate(rows)]
            lines += [f"         {row}" for row in way.patch.splitlines()]
        if not self.fix:
            lines.append(f"  fix  {NO_FIX}")
        if self.cost:
            lines.append(f"  cost {self.cost}")
        lines += [f"  without {recompiles_left(step)} (predicted)" for step in self.forecast]
        seen = sorted({f"[{seen.compile}]" for seen in self.occurrences if seen.compile})
        more = f" and {len(seen) - 8} more" if len(seen) > 8 else ""
        if seen:
            lines.append(f"  seen in {' '.join(seen[:8])}{more}")
        return "\n".join(lines)

    @property
    def next(self) -> Command:
        """The command that goes deeper; the trace is named behind it."""
        left_out = (f"--redact={self.redacted}",) if self.redacted else ()
        return command("tc-report", "show", self.id, *left_out)

    def as_item(self) -> Item:
        """Return what a notebook shows of it."""
        behind = f", in {self.behind.short}" if self.behind else ""
        seen = sorted({f"[{one.compile}]" for one in self.occurrences if one.compile})
        more = f" and {len(seen) - 8} more" if len(seen) > 8 else ""
        return Item.of(
            self.id,
            f"{self.title} ({self.count}×)",
            f"{self.where.short}{behind}" if self.where.file or self.where.function else "",
            self.where.text,
            rows=(
                ("why", self.why),
                ("changed", "\n".join(map(str, self.causes))),
                ("cost", self.cost),
                ("without", "\n".join(f"{recompiles_left(one)} (predicted)"
                                      for one in self.forecast)),
                ("seen in", f"{' '.join(seen[:8])}{more}"),
            ),
            fixes=[("\n".join(filter(None, (way.text, way.patch))), way.mark)
                   for way in self.fixes] or [(NO_FIX, "")],
            stack=[(one.short, one.text) for one in self.stack],
        )  # fmt: skip

    def as_view(self) -> View:
        """See `Shown`."""
        item = self.as_item()
        return View("findings", str(self), {"title": item.title, "causes": [item]})

    def verify(self) -> None:
        """Check what every reader relies on.

        Raises:
            ValueError: the finding is malformed.
        """
        if not self.id.startswith(self.code + "-") or self.count < 1:
            raise ValueError(f"malformed finding {self.id!r} (count {self.count})")

    def to_json(self) -> dict[str, Any]:
        """Return the finding as plain values."""
        return {
            "code": self.code,
            "id": self.id,
            "title": self.title,
            "where": {
                "file": self.where.file,
                "line": self.where.line,
                "col": self.where.col,
                "end_col": self.where.end_col,
                "function": self.where.function,
                "source": self.where.source,
            },
            "why": self.why,
            "fix": list(self.fix),
            "fixes": [way.to_json() for way in self.fixes],
            "count": self.count,
            "cost": self.cost,
            "seconds": round(self.seconds, 6),
            "calls_in_python": self.python_calls,
            "seconds_between": round(self.between, 6),
            "seconds_running": round(self.running, 6),
            "calls": self.times,
            "causes": [
                {"source": c.source, "old": c.old, "new": c.new, "kind": c.kind}
                for c in self.causes
            ],
            "occurrences": [
                {"compile": o.compile, "lane": o.lane, "record": o.place, "detail": o.detail}
                for o in self.occurrences
            ],
            "forecast": list(self.forecast),
            "reference": self.reference,
            "next": str(self.next),
        }


FREED: Final = ", none in Python"


def recompiles_left(step: str) -> str:
    """`self.step: 7 → 1` → `self.step: 7 → 1 recompiles`; what else it says comes after that."""
    change = step.removesuffix(FREED)
    return f"{change} recompiles{step[len(change) :]}"


@dataclass(slots=True)
class _Group:
    events: list[Event] = field(default_factory=list)


def gather(events: Iterable[Event]) -> list[Finding]:
    """Merge the events of each cause into one finding, most expensive first."""
    groups: dict[tuple[str, str, str, str, str], _Group] = {}
    for event in events:
        line = " ".join(event.where.source.split()) or str(event.where.line)
        function = plain_function(event.where.function)
        key = (event.code, event.where.file, function, event.reason, line)
        groups.setdefault(key, _Group()).events.append(event)
    names = _named([group.events for group in groups.values()])
    findings = [
        _finding(group.events, name) for group, name in zip(groups.values(), names, strict=True)
    ]
    return sorted(findings, key=lambda one: (-one.total, -one.count, one.id))


def base_id(name: str) -> str:
    """`TC110-7f3a.c2` -> `TC110-7f3a`: the part that all causes of a kind in a function share."""
    return name.partition(".")[0]


def _named(groups: Sequence[list[Event]]) -> list[str]:
    """Name each cause; several of one kind in one function differ by the text of their line.

    Where the trace does not hold it, by the numbers in their reason (`args[0]`, `args[1]`). Not by
    their order: a line that is added above must not take the name of another.
    """
    bases = []
    for events in groups:
        first = events[0]
        file, function = first.named or (first.where.file, first.where.function)
        bases.append(cause_id(first.code, file, function, first.reason))
    shared = Counter(bases)
    taken: Counter[str] = Counter()
    names = []
    for base, events in zip(bases, groups, strict=True):
        name = base
        if shared[base] > 1:
            text = " ".join(events[0].where.source.split())
            suffix = cause_id("", "", "", text)[1:3] if text else digest(events[0].reason)[:2]
            name = f"{base}.{suffix}"
        taken[name] += 1
        names.append(f"{name}.{taken[name]}" if taken[name] > 1 else name)
    return names


def _costs(
    seconds: float, python: int | None, between: float, running: float, times: int
) -> Iterator[str]:
    if between or running:
        each = f" × {count(times, 'call', ',')}" if times else ""
        calls = f"{span((between + running) / times)}{each} = " if times else ""
        what = "of running between its graphs" if between else "of running"
        yield f"{calls}{duration(between + running)} {what}"
    if seconds:
        yield f"{duration(seconds)} compiling"
    if python is not None:
        yield f"{count(python, 'call', ',')} in Python"


def _leading(events: Sequence[Event]) -> Event:
    """Return the event that a cause is explained by: the first for which something can be done.

    "Nothing to do" holds for a cause only if it holds for each of its events: of sizes 3, 1, 5 the
    second compile is due, and the third can be saved.
    """
    can_be_mended = (one for one in events if one.fix and not one.fix[0].startswith(NOTHING_TO_DO))
    return next(can_be_mended, events[0])


def _finding(events: list[Event], name: str) -> Finding:
    first = _leading(events)
    seconds = sum(event.seconds for event in events)
    between, running = (sum(getattr(event, key) for event in events)
                        for key in ("between", "running"))  # fmt: skip
    times = sum(event.times for event in events)
    counted = [event.python_calls for event in events if event.python_calls is not None]
    python = sum(counted) if counted else None
    causes: dict[tuple[str, str, str], Cause] = {}
    for event in events:
        for cause in event.causes:
            causes.setdefault((cause.source, cause.old, cause.new), cause)
    return Finding(
        code=first.code,
        id=name,
        title=in_users_words(first.title),
        where=replace(first.where, function=plain_function(first.where.function)),
        why=in_users_words(first.why),
        fix=tuple(map(in_users_words, first.fix)),
        count=len(events),
        cost=" · ".join(_costs(seconds, python, between, running, times)),
        python_calls=python,
        between=between,
        running=running,
        times=times,
        seconds=seconds,
        occurrences=tuple(
            Occurrence(
                event.compiled.slug,
                event.compiled.lane.label,
                event.time,
                event.place,
                event.artifact,
                event.detail,
            )
            for event in events
        ),
        reason=first.reason,
        evidence=first.evidence,
        reference=first.reference,
        stack=first.stack,
        causes=tuple(causes.values()),
    )
