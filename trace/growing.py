"""A trace that is still written goes in; sessions of what it holds by now come out.

Each look reads what is new, and no more: the records of each log are folded into a reader that
stays, up to the last one, which may be incomplete and is read into a copy.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from tc.trace.part import Part, PartReader
from tc.trace.reader import Cursor, Source, Unreadable, find_logs, last_record
from tc.trace.session import Session, chosen_logs, joined
from tc.trace.writers import CUT_OFF, ENDED, RUNNING, Job, Writers

Stamp = tuple[tuple[str, int, int], ...]

_ENDS: Final = 256  # bytes at both ends of what was read, by which a log is recognised


@dataclass(slots=True)
class _Log:
    """One log: how far it was read, and what stood at both ends of that."""

    reader: PartReader
    cursor: Cursor = field(default_factory=Cursor)
    ends: bytes = b""

    def ends_in(self, source: Source) -> bytes:
        """What stands there in a log."""
        at = self.cursor.at
        return source.data[: min(at, _ENDS)] + source.data[max(at - _ENDS, 0) : at]

    def is_continued_by(self, source: Source) -> bool:
        """Whether a log begins with what was read."""
        return len(source) >= self.cursor.at and self.ends_in(source) == self.ends

    def look(self, source: Source) -> Part:
        """Read what is new; returns what all of the log says."""
        self.reader.source = source
        self.reader.read(self.cursor, max(last_record(source.data), self.cursor.at))
        self.ends = self.ends_in(source)
        now = self.reader.copy()
        now.read(replace(self.cursor))
        return now.finish()


@dataclass(slots=True)
class Growing:
    """Reads a path again and again; starts over where logs appear, vanish or are overwritten.

    Attributes:
        bytes_read: by the last look, for those who watch the cost.
    """

    path: str | Path
    all_runs: bool = False
    bytes_read: int = 0
    writers: Writers = field(default_factory=Writers)
    _seen: tuple[Stamp, frozenset[str]] | None = None
    _under_way: tuple[str, ...] = ()
    _broken: bool = False
    _names: list[str] = field(default_factory=list)
    _logs: list[_Log] = field(default_factory=list)
    _other_runs: int = 0

    def look(self) -> Session:
        """Return the session of all there is.

        Raises:
            Unreadable: there is nothing to read, or no record in it.
        """
        names = find_logs(self.path)
        seen = self._now()
        sources = self._reopened() if self._logs and names == self._names else None
        if sources is None:
            sources = self._start(names)
        before = sum(log.cursor.at for log in self._logs)
        self.bytes_read = sum(map(len, sources)) - before
        parts = [log.look(source) for log, source in zip(self._logs, sources, strict=True)]
        for part, source in zip(parts, sources, strict=True):
            if source.path in seen[1]:
                part.is_written()
        session = joined(self.path, sources, self._other_runs, parts)
        self._seen = seen
        self._broken = "truncated" in session.defects.counts
        compiles = session.compiles
        self._under_way = tuple(f"{one.title} [{one.slug}]" for one in compiles if one.under_way)
        return session

    def stamp(self) -> Stamp:
        """Return what changes when a log grows, appears or goes."""
        try:
            rows = []
            for name in find_logs(self.path):
                stat = Path(name).stat()
                rows.append((name, stat.st_size, stat.st_mtime_ns))
            return tuple(rows)
        except (Unreadable, OSError):
            return ()

    def changed(self) -> bool:
        """Whether logs or their writers are others than when they were last read."""
        return self._now() != self._seen

    def job(self) -> Job | None:
        """Return how the program stands whose logs were read; None before that."""
        paths = [log.reader.source.path for log in self._logs]
        if self._seen is None or not paths:
            return None
        stamp, held = self._seen
        times = [time for name, _, time in stamp if name in paths]
        age = max(self.writers.clock() - max(times, default=0) / 1e9, 0.0)
        held = held.intersection(paths)
        state = RUNNING if held else CUT_OFF if self._broken or self._under_way else ENDED
        seen = self.writers.sees(paths)
        return Job(state, age, seen, len(held), len(paths), self._under_way)

    def _now(self) -> tuple[Stamp, frozenset[str]]:
        stamp = self.stamp()
        return stamp, self.writers.look(name for name, _, _ in stamp)

    def _start(self, names: list[str]) -> list[Source]:
        self._logs = []
        sources, self._other_runs = chosen_logs(self.path, self.all_runs)
        self._logs = [_Log(PartReader(one, Part(n))) for n, one in enumerate(sources)]
        self._names = names
        return sources

    def _reopened(self) -> list[Source] | None:
        """Open the logs as they are by now; None if they are not those that were read."""
        sources = [Source(log.reader.source.path) for log in self._logs]
        pairs = zip(self._logs, sources, strict=True)
        if all(log.is_continued_by(source) for log, source in pairs):
            return sources
        for source in sources:
            source.close()
        return None
