"""Limits of time that a busy machine does not use up.

A program that waits for a CPU does not hang. When its limit has passed by the clock, a group of
processes is late only if it also has used as much CPU time, or if it sleeps: then no CPU would
help. Both are read from ``/proc``; where there is none, the clock alone decides.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NoReturn

LOADING: Final = 15.0  # seconds more for a process that has to load torch first
MOST: Final = 10.0  # times the limit, after which a group is late in any case
WINDOW: Final = 1.0  # seconds in which a group is watched to see whether it sleeps
LOOKS: Final = 4  # at the group in a window, so that processes of a short life count
BUSY: Final = 0.2  # share of the window for which a group that does not sleep runs or is queued
PROC: Final = Path("/proc")
TICKS: Final = os.sysconf("SC_CLK_TCK")
GROUP, USER, KERNEL, CHILDREN = 2, 11, 12, (13, 14)  # fields of ``stat``, after the name


class BudgetOver(KeyboardInterrupt):
    """The time that a search may take has passed, whatever it is doing; the best is kept."""


def why_stopped(stop: KeyboardInterrupt) -> str:
    """Return in words why a search ended before it was done."""
    return "out of time" if isinstance(stop, BudgetOver) else "interrupted"


@contextlib.contextmanager
def until(deadline: float) -> Iterator[None]:
    """Interrupt what this block does at a time of `time.monotonic`, as Ctrl-C would.

    Raises:
        BudgetOver: the time has come.
    """
    if math.isinf(deadline):
        yield
        return

    def over(number: int, frame: Any) -> NoReturn:
        raise BudgetOver

    before = signal.signal(signal.SIGALRM, over)
    try:
        signal.setitimer(signal.ITIMER_REAL, max(deadline - time.monotonic(), 0.001))
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@dataclass
class TimeLimit:
    """How long a process group may take, from now on.

    Attributes:
        seconds: of the clock on an idle machine.
        start: when it began (`time.monotonic`).
    """

    seconds: float
    start: float = field(default_factory=time.monotonic)

    @property
    def next_look(self) -> float:
        """Seconds until it is worth asking whether the limit has passed."""
        return max(self.start + self.seconds - time.monotonic(), WINDOW / 4)

    def has_passed(self, group: int) -> bool:
        """Return whether a process group is late; this may take the time of a window."""
        taken = time.monotonic() - self.start
        if taken < self.seconds:
            return False
        if taken >= MOST * self.seconds or cpu_time(group) >= self.seconds:
            return True
        return sleeps(group)

    def wait(self, process: subprocess.Popen[bytes]) -> int:
        """Return the status of a process that leads its group, when it has ended.

        Raises:
            TimeoutExpired: it is late.
        """
        while True:
            try:
                return process.wait(timeout=self.next_look)
            except subprocess.TimeoutExpired:
                if self.has_passed(process.pid):
                    raise


def cpu_time(group: int) -> float:
    """Return the CPU seconds of a process group, with those of children that have ended."""
    total = 0
    for pid in members(group):
        fields = stat_fields(PROC / str(pid) / "stat")
        total += sum(int(fields[place]) for place in (USER, KERNEL, *CHILDREN) if fields)
    return total / TICKS


def sleeps(group: int) -> bool:
    """Return whether a process group neither runs nor waits for a CPU, within a window."""
    if not PROC.is_dir():
        return True
    wanted, start, before = 0.0, time.monotonic(), demand(group)
    for _ in range(LOOKS):
        time.sleep(WINDOW / LOOKS)
        after = demand(group)
        wanted += sum(seconds - before.get(task, 0.0) for task, seconds in after.items())
        before = after
    return wanted < BUSY * (time.monotonic() - start)


def demand(group: int) -> dict[str, float]:
    """Return for how many seconds each thread of a process group has run or was queued to."""
    found: dict[str, float] = {}
    for pid in members(group):
        for task in entries(PROC / str(pid) / "task"):
            try:
                ran, queued, _ = (task / "schedstat").read_text().split()
            except (OSError, ValueError):
                continue
            found[task.name] = (int(ran) + int(queued)) / 1e9
    return found


def members(group: int) -> Iterator[int]:
    """Yield the processes of a group."""
    for entry in entries(PROC):
        if entry.name.isdigit():
            fields = stat_fields(entry / "stat")
            if fields and int(fields[GROUP]) == group:
                yield int(entry.name)


def entries(folder: Path) -> list[Path]:
    """Return what is in a folder of ``/proc``; nothing, if it is gone."""
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def stat_fields(path: Path) -> list[str]:
    """Return the fields of a ``stat`` file from the state on; nothing, if it is gone."""
    try:
        return path.read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []
