"""Begin and end events of a compiler go in; wall seconds by compile and step come out."""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import Any, Final, NamedTuple

from tc.trace.parsed import real

PHASES: Final = ("capture", "graph passes", "lowering", "build", "cache", "other")

# The first row whose pattern is found in an event's name gives its phase.
_PHASE_ROWS: Final = (
    ("build", r"compile_file|async_compile|PyCodeCache|triton_compile|\bbuild(?!_guards)|gcc|load"),
    ("cache", r"cache|codecache|key\b|Bundler|bundle|pgo"),
    ("lowering", r"GraphLowering|Scheduler|codegen|code_gen|Wrapper|lower|loops|schedule|fus"),
    ("graph passes", r"pass|joint|aot|partition|grad|decomp|functional|fake_tensor_prop|freez"),
    ("capture", r"trac|guard|dynamo|capture|bytecode|frame_compile|compile_attempt|gc$|assert"),
    ("lowering", r"inductor|fx_codegen|backend|compile_fx"),
)  # fmt: skip
_PATTERNS: Final = tuple((phase, re.compile(rule, re.IGNORECASE)) for phase, rule in _PHASE_ROWS)


@cache
def phase_of(name: str) -> str:
    """Return the phase an event belongs to by its name."""
    for phase, pattern in _PATTERNS:
        if pattern.search(name):
            return phase
    return "other"


def duration(seconds: float) -> str:
    """Write a duration as people read it: `3 ms`, `0.29 s`, `31.5 s`, `4m53s`."""
    if seconds < 0.01:
        return f"{seconds * 1000:.1f} ms" if seconds < 0.001 else f"{seconds * 1000:.0f} ms"
    if seconds < 10:
        return f"{seconds:.2f} s"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}m" if hours else f"{minutes}m{rest:02}s"


class Interval(NamedTuple):
    """One timed step: microseconds `start..stop`, and the compile it worked for."""

    start: float
    stop: float
    name: str
    compile_id: str


@dataclass(slots=True)
class Clock:
    """Collects the timed events of one process and shares their wall time out.

    Attributes:
        left: compile id -> the step that it was in when the log ended.
    """

    intervals: list[Interval] = field(default_factory=list)
    events: int = 0
    left: dict[str, str] = field(default_factory=dict)
    _open: dict[tuple[object, str], list[tuple[float, str]]] = field(default_factory=dict)
    _latest: float = 0.0

    def add(self, event: dict[str, Any]) -> None:
        """Take one Chromium trace event.

        Raises:
            TypeError, KeyError, ValueError: the event is malformed.
        """
        self.events += 1
        phase, name, at = event["ph"], str(event["name"]), real(event["ts"])
        args = event.get("args") or {}
        compile_id = str(args.get("compile_id") or "")
        compile_id = "" if compile_id == "None" else compile_id  # torch's helper threads write so
        lane = (event.get("tid"), name)
        self._latest = max(self._latest, at)
        if phase == "B":
            self._open.setdefault(lane, []).append((at, compile_id))
        elif phase == "E" and self._open.get(lane):
            start, opened_for = self._open[lane].pop()
            self.intervals.append(Interval(start, at, name, compile_id or opened_for))
        elif phase == "X":
            self.intervals.append(Interval(at, at + real(event["dur"]), name, compile_id))

    def copy(self) -> Clock:
        """Return the same in lists of its own."""
        opened = {lane: list(starts) for lane, starts in self._open.items()}
        return Clock(list(self.intervals), self.events, dict(self.left), opened, self._latest)

    def finish(self) -> None:
        """Close what was left open by a process that died."""
        opened = [Interval(start, self._latest, name, compile_id)
                  for (_, name), starts in self._open.items()
                  for start, compile_id in starts]  # fmt: skip
        for one in sorted(opened, key=lambda row: row.start):
            self.left[one.compile_id] = one.name
        self.intervals += opened
        self._open.clear()

    def shares(self) -> dict[tuple[str, str], float]:
        """Return seconds by (compile id, step name); no instant is counted twice."""
        return share_out(self.intervals)


def share_out(intervals: Iterable[Interval]) -> dict[tuple[str, str], float]:
    """Give each instant to the step that began last among those running (its self time).

    Steps of parallel threads overlap without nesting, so a stack will not do.
    """
    rows = sorted(intervals, key=lambda row: (row.start, -row.stop))
    edges = sorted({row.start for row in rows} | {row.stop for row in rows})
    shares: dict[tuple[str, str], float] = {}
    running: list[tuple[int, Interval]] = []
    following = 0
    for left, right in pairwise(edges):
        while following < len(rows) and rows[following].start <= left:
            heapq.heappush(running, (-following, rows[following]))
            following += 1
        while running and running[0][1].stop <= left:
            heapq.heappop(running)
        if running:
            row = running[0][1]
            # Helper threads do not say whom they work for: whoever is waiting for them.
            owner = row.compile_id or next(
                (o.compile_id for _, o in sorted(running) if o.compile_id and o.stop > left), ""
            )
            key = (owner, row.name)
            shares[key] = shares.get(key, 0.0) + (right - left) / 1e6
    return shares
