"""Logs of a directory go in; they come out grouped by the run of the program that wrote them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from tc.trace.reader import HEADER, Source

_RANK: Final = re.compile(r"rank_(\d{1,9})_")
_BLOCK: Final = 1 << 16
_ANY: Final = -1  # matches any rank: no rank has this number
_NEARBY: Final = 60.0  # seconds between the starts of two ranks of one job


@dataclass(frozen=True, slots=True)
class Log:
    """What one log shows at its two ends: who wrote it, and when."""

    source: Source
    pid: int
    rank: int | None
    first: float
    last: float
    borrows: bool  # uses strings that it does not define: the child of an earlier process


@dataclass(slots=True)
class Run:
    """The logs of one run of one program; `last`: when it last wrote, in seconds of the year."""

    logs: list[Log] = field(default_factory=list)
    last: float = 0.0
    _first: float = float("inf")
    _ranks: set[int | None] = field(default_factory=set)
    _writers: set[tuple[int, int | None]] = field(default_factory=set)

    def add(self, log: Log) -> None:
        """Take a log into the run."""
        self.logs.append(log)
        self.last = max(self.last, log.last)
        self._first = min(self._first, log.first)
        self._ranks.add(log.rank)
        self._writers |= {(log.pid, log.rank), (log.pid, _ANY)}

    def takes(self, log: Log) -> bool:
        """Whether that log comes from this run."""
        if (log.pid, _ANY if log.rank is None else log.rank) in self._writers:
            return True
        if log.rank is not None:
            if log.rank in self._ranks:
                return False
            if log.first - self._first < _NEARBY:
                return True
        return log.borrows or log.first <= self.last


def rank_in_name(name: str) -> int | None:
    """Return the rank a log's file name states."""
    match = _RANK.search(name)
    return int(match[1]) if match else None


def group(sources: Sequence[Source]) -> list[Run]:
    """Group logs by run, oldest run first; logs without any record go with the newest."""
    logs = [log for log in map(_look, sources) if log is not None]
    runs: list[Run] = []
    for log in sorted(logs, key=lambda log: (log.first, log.source.name)):
        home = next((run for run in reversed(runs) if run.takes(log)), None)
        if home is None:
            home = Run()
            runs.append(home)
        home.add(log)
    return sorted(runs, key=lambda run: run.last)


def _look(source: Source) -> Log | None:
    data = source.data
    first = HEADER.search(data)
    if first is None:
        return None
    last = first
    size = _BLOCK
    while True:
        at = max(len(data) - size, 0)
        found = list(HEADER.finditer(data, at))
        if found or at == 0:
            last = found[-1] if found else first
            break
        size *= 4
    defines = data.find(b'{"str": [') >= 0 or data.find(b'{"str":[') >= 0
    borrows = not defines and data.find(b'"filename": ') >= 0
    begin, end = _seconds(first), _seconds(last)
    if end < begin:  # over New Year: headers carry no year
        end += 366 * 86400
    return Log(source, int(first[2]), rank_in_name(source.name), begin, end, borrows)


def _seconds(match: re.Match[bytes]) -> float:
    stamp = match[1]  # MMDD hh:mm:ss.ffffff
    month, day, hour, minute = (int(stamp[n : n + 2]) for n in (0, 2, 5, 8))
    second = float(stamp[11:])
    days = sum((31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)[: max(month - 1, 0)]) + day
    return ((days * 24 + hour) * 60 + minute) * 60 + second
