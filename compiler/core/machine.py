"""What tc asks of the machine: the cores it may use, and the sizes of caches.

Limits of generated code follow from the caches. Linux reports them in ``/sys/devices/system/cpu``.
(``sysconf`` is no help: in virtual machines on AMD processors it gives the third level ten times
its size.)
"""

from __future__ import annotations

import functools
import os
import re
from dataclasses import dataclass
from pathlib import Path

REPORTED = Path("/sys/devices/system/cpu/cpu0/cache")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@dataclass(frozen=True)
class Caches:
    """Bytes of the data caches that a core reaches.

    Attributes:
        first: of the first level, its own.
        second: of the second level.
        last: of the last level, usually shared with other cores.
    """

    first: int = 32 << 10
    second: int = 1 << 20
    last: int = 32 << 20


def read_caches(folder: Path) -> Caches:
    """Read what Linux reports of a core's caches; a level that is not reported has the usual size.

    Args:
        folder: holds ``index0``, ``index1``, … with the files ``level``, ``type`` and ``size``.
    """
    levels: dict[int, int] = {}
    for entry in sorted(folder.glob("index*")):
        try:
            level, kind, size = (
                (entry / name).read_text().strip() for name in ("level", "type", "size")
            )
        except OSError:
            continue
        match = re.fullmatch(r"(\d+)([KMG]?)", size)
        if match and level.isdigit() and kind in ("Data", "Unified"):
            levels[int(level)] = int(match[1]) * _UNITS[match[2]]
    usual = Caches()
    first, second = levels.get(1) or usual.first, levels.get(2) or usual.second
    last = levels[max(levels)] if len(levels) > 1 else usual.last
    return Caches(first, second, max(last, second))


@functools.cache
def caches() -> Caches:
    """Return the caches of this machine."""
    return read_caches(REPORTED)


def cores() -> int:
    """Return on how many cores this process may run."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
