"""Reads clocks between the lines of a wrapper: what each takes, and what the system did meanwhile.

Short lines cost one read of a clock. Behind a long one the thread's own CPU time and its page
faults are read too, which takes some microseconds, outside of what is measured: a line during which
the thread had to wait for a processor is known by the difference of the two times.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

#: seconds of a line from which on it is long
LONG: Final = 20e-6
_PAGE: Final = resource.getpagesize()
_clock = time.perf_counter


@dataclass(frozen=True, slots=True)
class Mark:
    """One line of one call.

    Attributes:
        seconds: on the wall's clock; ``busy``: without those in which the thread was not running.
        fresh: bytes of the pages that the system gave it.
    """

    line: int
    seconds: float
    busy: float
    fresh: int = 0


class Marks:
    """Times the lines of one call; an object for each call.

    Args:
        wait: waits for a GPU, called behind each line; None: the work is done on the CPU.
    """

    def __init__(self, wait: Callable[[], None] | None = None) -> None:
        self.rows: list[Mark] = []
        self._wait = wait
        self._short = 0.0  # seconds in short lines since the last read of all
        self._cpu, self._faults = time.thread_time(), _faults()
        self._began = _clock()

    def __call__(self, line: int) -> None:
        """End a line, and begin the next."""
        if self._wait is not None:
            self._wait()
        seconds = _clock() - self._began
        if seconds < LONG or self._wait is not None:
            self.rows.append(Mark(line, seconds, seconds))
            self._short += seconds
        else:
            cpu, faults = time.thread_time(), _faults()
            busy = max(cpu - self._cpu - self._short, 0.0)
            fresh = (faults - self._faults) * _PAGE
            self.rows.append(Mark(line, seconds, min(busy, seconds), fresh))
            self._short, self._faults, self._cpu = 0.0, faults, time.thread_time()
        self._began = _clock()

    @property
    def seconds(self) -> float:
        """Seconds of all lines so far."""
        return sum(row.seconds for row in self.rows)


def _faults() -> int:
    return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
