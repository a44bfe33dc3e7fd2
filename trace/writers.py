"""Logs that may still be written go in; those that a process writes to come out.

On Linux the system shows which process has a file open. Where it cannot (another system, another
user's job, a file system of the network), a log counts as written while it grows.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tc.trace.timing import duration

QUIET: Final = 60.0  # seconds without growth after which a writer that cannot be seen is gone
RUNNING: Final = "running"
ENDED: Final = "ended"
CUT_OFF: Final = "cut off"
_REMOTE: Final = re.compile(r"nfs|lustre|gpfs|cifs|smb|fuse|9p|ceph|beegfs|afs|virtiofs")
_DELETED: Final = " (deleted)"
_MOST_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class Job:
    """How the program stands that wrote some logs.

    Attributes:
        age: seconds since a log grew.
        seen: whether the system shows who writes; else the state is judged by growth.
        open: how many of the logs are still written.
        under_way: compiles that began and have no end.
    """

    state: str
    age: float
    seen: bool = True
    open: int = 0
    logs: int = 1
    under_way: tuple[str, ...] = ()

    def __str__(self) -> str:
        return ", ".join(self.words())

    def words(self) -> list[str]:
        """Return the state in words, most important first."""
        names = ", ".join(self.under_way[-_MOST_NAMED:])
        if self.state == RUNNING:
            some = [f"{self.open} of {self.logs} logs are written"] if self.open < self.logs else []
            return [
                "running",
                f"last event {ago(self.age)}",
                *([f"compiling {names}"] if names else []),
                *some,
            ]
        words = [f"ended {ago(self.age)}"]
        if self.state == CUT_OFF:
            words = [
                "cut off" + (f" while compiling {names}" if names else ""),
                f"last event {ago(self.age)}",
            ]
        if not self.seen:
            words.append(f"judged by {QUIET:.0f} s without a new event")
        return words


def ago(seconds: float) -> str:
    """`12 s ago`, `4m53s ago`."""
    return f"{f'{seconds:.0f} s' if seconds < 60 else duration(seconds)} ago"


@dataclass(slots=True)
class Writers:
    """Knows which logs are still written; remembers who wrote, so that a look costs little.

    Args:
        proc: where the system lists its processes; empty where it does not.
    """

    proc: str = "/proc" if sys.platform == "linux" else ""
    clock: Callable[[], float] = time.time
    _sizes: dict[str, int] = field(default_factory=dict)
    _holders: dict[str, tuple[str, str]] = field(default_factory=dict)
    _hidden: set[str] = field(default_factory=set)

    def look(self, paths: Iterable[str]) -> frozenset[str]:
        """Return the logs that somebody writes to."""
        stats: dict[str, os.stat_result] = {}
        for path in paths:
            with suppress(OSError):
                stats[path] = os.stat(path)
        held = {path for path in stats if self._still_held(path, stats[path])}
        asked = {
            path: one
            for path, one in stats.items()
            if path not in held and (path in self._holders or self._sizes.get(path) != one.st_size)
        }
        found = self._find(asked) if asked else {}
        for path, one in asked.items():
            before = self._sizes.get(path)
            unseen = before is not None and path not in self._holders and path not in found
            if not self._visible(path, one) or (unseen and before != one.st_size):
                self._hidden.add(path)
            self._holders.pop(path, None)
        self._holders.update(found)
        held.update(found)
        self._sizes = {path: one.st_size for path, one in stats.items()}
        self._hidden &= stats.keys()
        now = self.clock()
        return frozenset(
            path
            for path, one in stats.items()
            if path in held or (path in self._hidden and now - one.st_mtime < QUIET)
        )

    def sees(self, paths: Iterable[str]) -> bool:
        """Whether the system shows who writes all of these."""
        return self._hidden.isdisjoint(paths)

    def _still_held(self, path: str, stat: os.stat_result) -> bool:
        holder = self._holders.get(path)
        return holder is not None and self._writes(*holder, stat)

    def _writes(self, pid: str, descriptor: str, stat: os.stat_result) -> bool:
        """Whether a process has a file open there, and may write to it."""
        try:
            other = os.stat(f"{self.proc}/{pid}/fd/{descriptor}")
            if (other.st_dev, other.st_ino) != (stat.st_dev, stat.st_ino):
                return False
            text = Path(self.proc, pid, "fdinfo", descriptor).read_text("ascii", "replace")
        except OSError:
            return False
        flags = re.search(r"^flags:\s*([0-7]+)", text, re.MULTILINE)
        return flags is not None and int(flags[1], 8) & os.O_ACCMODE != os.O_RDONLY

    def _find(self, wanted: dict[str, os.stat_result]) -> dict[str, tuple[str, str]]:
        """Look for who writes to these, by name first: another file system may not answer."""
        if not self.proc:
            return {}
        named: dict[str, list[str]] = {}
        for path in wanted:
            named.setdefault(os.path.basename(os.path.realpath(path)), []).append(path)
        found: dict[str, tuple[str, str]] = {}
        for pid in filter(str.isdigit, _names(self.proc)):
            for descriptor in _names(f"{self.proc}/{pid}/fd"):
                try:
                    target = os.readlink(f"{self.proc}/{pid}/fd/{descriptor}")
                except OSError:
                    continue
                for path in named.get(os.path.basename(target).removesuffix(_DELETED), ()):
                    if self._writes(pid, descriptor, wanted[path]):
                        found[path] = pid, descriptor
        return found

    def _visible(self, path: str, stat: os.stat_result) -> bool:
        """Whether the system would show a writer on this machine; only there are some."""
        if not self.proc or os.geteuid() not in (0, stat.st_uid):
            return False
        device = f"{os.major(stat.st_dev)}:{os.minor(stat.st_dev)}"
        try:
            mounts = Path(self.proc, "self", "mountinfo").read_text("utf-8", "replace")
        except OSError:
            return True
        for row in mounts.splitlines():
            fields, _, rest = row.partition(" - ")
            if fields.split()[2:3] == [device]:
                return _REMOTE.search(rest.partition(" ")[0]) is None
        return True


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:  # it ended meanwhile, or is another user's
        return []
