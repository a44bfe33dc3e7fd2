"""A path that may still grow goes in; diagnoses of what it holds by now come out.

Everything here may run in a thread: it touches no widget.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tc.trace.findings import Diagnosis, diagnose
from tc.trace.growing import Growing, Stamp
from tc.trace.reader import Unreadable, last_record
from tc.trace.session import load
from tc.trace.writers import Job

HEAD: Final = 4 << 20
_PACKED: Final = (".gz", ".zst")


@dataclass(slots=True)
class Feed:
    """One trace: its path, and how long it took to read."""

    path: str
    all_runs: bool = False
    shown: str = ""
    clock: Callable[[], float] = time.monotonic
    took: float = 0.0
    growing: Growing = field(init=False)

    def __post_init__(self) -> None:
        self.growing = Growing(self.path, self.all_runs)

    @property
    def name(self) -> str:
        """The path as the user gave it."""
        return self.shown or self.path

    def size(self) -> int:
        """Bytes of all its logs."""
        return sum(size for _, size, _ in self.stamp())

    def stamp(self) -> Stamp:
        """What changes when a log grows, appears or goes."""
        return self.growing.stamp()

    def changed(self) -> bool:
        """Whether there is more than when it was last read, or nobody writes any more."""
        return self.growing.changed()

    def job(self) -> Job | None:
        """Return how the program stands that writes the trace; None before it was read."""
        return self.growing.job()

    def read(self) -> Diagnosis:
        """Read all of it; the next time, what is new.

        Raises:
            Unreadable: there is nothing to read, or no record in it.
        """
        started = self.clock()
        diagnosis = diagnose(self.growing.look())
        self.took = self.clock() - started
        return diagnosis

    def glimpse(self) -> Diagnosis | None:
        """Read the beginning of a long trace, to have something to show; None if it is short."""
        stamp = self.stamp()
        if sum(size for _, size, _ in stamp) < 2 * HEAD:
            return None
        if any(name.endswith(_PACKED) for name, _, _ in stamp):
            return None
        # `load` reads files, so the beginnings become files; they live until they are read.
        with tempfile.TemporaryDirectory(prefix="tc-tui-") as folder:
            for name, _, _ in stamp:
                with open(name, "rb") as log:
                    head = log.read(HEAD // len(stamp) + 1)
                whole = head[: head.rfind(b"\n") + 1]
                target = Path(folder) / Path(name).name
                target.write_bytes(whole[: last_record(whole)])
            try:
                session = load(folder, all_runs=self.all_runs)
            except Unreadable:
                return None
        session.name = Path(self.name).name
        return diagnose(session)
