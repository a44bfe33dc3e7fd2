"""What a rank decided when it compiled: kept from the events of each compile.

In: events. Out: a row a compile, and, of the rows of two ranks, the first decision that differs, as
a sentence. A row holds what ranks that run one program have in common, whatever their data:
function, number of the compile, breaks, operations of the graph by line, kinds of guards, how many
sizes are dynamic, failures. Sizes, addresses and names of variables are left out.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tc import trace
from tc.trace import CompileId, plain_function

#: rows kept, and operations kept of each
MOST_ROWS, MOST_OPERATIONS = 48, 300
_LINE = re.compile(r"^\s*# File: (.+?):(\d+) in ")
#: of ``name: "type" = call``, where the call is ``torch.relu(x)``, ``x.sin()`` or ``x + 1``
_CALL = re.compile(r"^\s*\w+(?:: \"[^\"]*\")? = (?:([\w.]+)\(|\S+ (\S+) |(\S+)$)")


@dataclass
class Decision:
    """What one compile decided.

    Attributes:
        number: which compile of that function it is, from 0.
        why: what changed since the one before; empty for the first.
        operations: ``relu at file:line`` of each operation of its graph.
        breaks: ``file:line code`` of each graph break.
        guards: kinds of guards, once each.
        dynamic: how many sizes are symbols.
        failure: type of the error that ended it, or what made the function run in Python.
    """

    function: str
    file: str
    line: int
    number: int
    why: str = ""
    operations: list[str] = field(default_factory=list)
    breaks: list[str] = field(default_factory=list)
    guards: list[str] = field(default_factory=list)
    dynamic: int = 0
    failure: str = ""

    @property
    def title(self) -> str:
        """``step (train.py:8) for the 2nd time``."""
        again = f" for the {_ordinal(self.number + 1)} time" if self.number else ""
        name = plain_function(self.function)
        after = "" if name == self.function else f" after line {self.function.rpartition('_')[2]}"
        return f"{name} ({self.file}:{self.line}){after}{again}"

    @property
    def key(self) -> tuple[str, str, int]:
        """What identifies a function, on whatever host."""
        return self.function, self.file, self.line


def _ordinal(number: int) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10 if number % 100 not in (11, 12, 13) else 0)
    return f"{number}{ending or 'th'}"


class Decisions:
    """A sink of events that keeps what each compile of this process decided."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[CompileId | None, Decision] = {}
        self._counts: dict[tuple[str, str, int], int] = {}
        self._why: dict[CompileId | None, str] = {}
        self._rows: deque[Decision] = deque(maxlen=MOST_ROWS)
        self.count = 0  # compiles that have ended
        self.compiling = ""

    def write(self, stamped: trace.Stamped) -> None:
        """See `Sink`."""
        handle = _HANDLERS.get(type(stamped.event).__name__)
        if handle is not None:
            of = stamped.compile_id
            key = None if of is None else CompileId(of.frame, of.compile)
            with self._lock:
                handle(self, key, stamped.event)

    def rows(self) -> list[Decision]:
        """Return the latest compiles, oldest first."""
        with self._lock:
            return list(self._rows)

    def _recompiles(self, of: CompileId | None, event: trace.Recompile) -> None:
        self._why[of] = "; ".join(f"{c.source}: {c.old} -> {c.new}" for c in event.causes[:2])

    def _starts(self, of: CompileId | None, event: trace.FrameStart) -> None:
        place = event.stack[-1]
        row = Decision(place.name, Path(place.file).name, place.line, 0, self._why.pop(of, ""))
        row.number = self._counts.get(row.key, 0)
        self._counts[row.key] = row.number + 1
        self._open[of] = row
        self.compiling = row.title

    def _breaks(self, of: CompileId | None, event: trace.GraphBreak) -> None:
        if of in self._open:
            self._open[of].breaks.append(f"{Path(event.file).name}:{event.line} {event.code}")

    def _graph(self, of: CompileId | None, event: trace.OutputGraph) -> None:
        if of in self._open:
            self._open[of].operations = operations_of(event.code)[:MOST_OPERATIONS]

    def _guards(self, of: CompileId | None, event: trace.Guards) -> None:
        if of in self._open:
            self._open[of].guards = sorted(set(event.kinds))

    def _symbol(self, of: CompileId | None, event: trace.CreateSymbol) -> None:
        if of in self._open:
            self._open[of].dynamic += 1

    def _fails(self, of: CompileId | None, event: trace.CompileError) -> None:
        if of in self._open:
            self._open[of].failure = event.type

    def _ends(self, of: CompileId | None, event: trace.Metrics) -> None:
        self.count += 1
        self.compiling = ""
        row = self._open.pop(of, None)
        if row is not None:
            row.failure = row.failure or event.fail_type or ""
            self._rows.append(row)

    def _in_python(
        self, of: CompileId | None, event: trace.RecompileLimit | trace.FrameSkipped
    ) -> None:
        if getattr(event, "harmless", False):
            return
        why = "its recompile limit" if isinstance(event, trace.RecompileLimit) else event.reason
        row = Decision(event.function, Path(event.file).name, event.line, 0)
        row.number = self._counts.get(row.key, 0)
        row.failure = f"it runs in Python ({why})"
        self._rows.append(row)
        self.count += 1


_HANDLERS: dict[str, Callable[..., None]] = {
    "Recompile": Decisions._recompiles,
    "FrameStart": Decisions._starts,
    "GraphBreak": Decisions._breaks,
    "OutputGraph": Decisions._graph,
    "Guards": Decisions._guards,
    "CreateSymbol": Decisions._symbol,
    "CompileError": Decisions._fails,
    "Metrics": Decisions._ends,
    "RecompileLimit": Decisions._in_python,
    "FrameSkipped": Decisions._in_python,
}


def operations_of(code: str) -> list[str]:
    """Return ``relu at file:line`` of each operation of a printed graph; no sizes, no names."""
    found: list[str] = []
    place = ""
    for row in code.split("\n"):
        if match := _LINE.match(row):
            place = f"{Path(match[1]).name}:{match[2]}"
        elif place and (match := _CALL.match(row)):
            name = (match[1] or "").rpartition(".")[2] or match[2] or "value"
            found.append(f"{name} at {place}")
    return found


def digest(rows: Iterable[Decision]) -> str:
    """Return a hash of rows, equal on ranks that decided the same."""
    text = json.dumps([asdict(one) for one in rows], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def to_bytes(rows: Iterable[Decision]) -> bytes:
    """Return rows as JSON."""
    return json.dumps([asdict(one) for one in rows]).encode()


def of_bytes(data: bytes) -> list[Decision]:
    """Return what `to_bytes` wrote."""
    return [Decision(**row) for row in json.loads(data)]


def first_difference(
    mine: Sequence[Decision],
    theirs: Sequence[Decision],
    rank: int,
    other: int,
    functions: Sequence[str] = (),
) -> str:
    """Return the most informative decision in which two ranks differ, as a sentence; empty: none.

    Args:
        functions: those in which the ranks parted: what differs in them comes first.
    """
    parted = {name.rpartition(".")[2] for name in functions}
    found: list[tuple[bool, int, str]] = []
    for key in dict.fromkeys(one.key for one in (*mine, *theirs)):
        elsewhere = plain_function(key[0]).rpartition(".")[2] not in parted
        own = {one.number: one for one in mine if one.key == key}
        others = {one.number: one for one in theirs if one.key == key}
        for number in sorted({*own, *others}):
            pair = own.get(number), others.get(number)
            found += [(elsewhere, *one) for one in _differ(*pair, rank, other)]
    return min(found, key=lambda one: one[:2], default=(False, 0, ""))[2]


def _differ(
    a: Decision | None, b: Decision | None, rank: int, other: int
) -> Iterator[tuple[int, str]]:
    """Yield what differs of one compile, the most informative with the lowest number."""
    if a is None or b is None:
        one, has, lacks = (a, rank, other) if b is None else (b, other, rank)
        assert one is not None
        because = f" because {one.why}" if one.why else ""
        yield (
            FIELDS["compiled"][0],
            f"rank {has} compiled {one.title}{because}; rank {lacks} did not",
        )
        return
    for name, (order, verb) in FIELDS.items():
        here, there = getattr(a, name, None), getattr(b, name, None)
        if here == there:
            continue
        if isinstance(here, list) and isinstance(there, list):
            pairs = enumerate(zip(here, there, strict=False))
            at = next((n for n, (x, y) in pairs if x != y), min(len(here), len(there)))
            here, there = (of[at] if at < len(of) else "no more" for of in (here, there))
        yield order, (f"{a.title}: rank {rank} {verb} {here or 'none'}, "
                      f"rank {other} {there or 'none'}")  # fmt: skip


#: what is compared of two compiles -> its rank, the most informative first, and its verb
FIELDS = {
    "failure": (0, "failed with"),
    "breaks": (1, "broke the graph at"),
    "operations": (2, "captured"),
    "compiled": (3, ""),
    "guards": (4, "guards"),
    "dynamic": (5, "has dynamic sizes:"),
}
