"""What the sentinel has done in this process: calls compared, skipped and why, differences."""

from __future__ import annotations

import atexit
import os
import threading
from collections import Counter

from tc import trace
from tc.compiler.process import PROCESS

#: row of `tc.counters`
NAME = "sentinel"
SKIPPED = "skipped: "


class _Counts:
    """Counts under a lock, so that none is lost; they stand in `tc.counters["sentinel"]`."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.reported: dict[str, int] = {}
        self.listening = False
        os.register_at_fork(after_in_child=self.start_over)

    def add(self, name: str) -> None:
        """Count something."""
        with self.lock:
            PROCESS.counters[NAME][name] += 1
            first, self.listening = not self.listening, True
        if first:
            atexit.register(self.report)

    def skip(self, reason: str) -> None:
        """Count a call that was not compared."""
        self.add(f"{SKIPPED}{reason}")

    @trace.reports(trace.nothing)
    def report(self) -> None:
        """Emit the counts, if there is anything new."""
        with self.lock:
            now: Counter[str] = Counter(PROCESS.counters[NAME])
            if now == self.reported:
                return
            self.reported = dict(now)
        skipped = {
            name.removeprefix(SKIPPED): count
            for name, count in sorted(now.items())
            if name.startswith(SKIPPED)
        }
        trace.emit(
            trace.SentinelRan(now["compared"], now["compared backward"], now["findings"], skipped)
        )

    def start_over(self) -> None:
        """In a forked child: another thread of the parent may have held the lock."""
        self.lock = threading.Lock()


COUNTS = _Counts()
