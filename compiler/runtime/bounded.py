"""Cache folders of bounded size, with least-recently-used eviction.

Files of one name with several endings (a library and its source) are one entry. Any process may
remove any entry at any time: a reader that finds it missing makes it again.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

#: bytes that the entries of one kind may take, all together
LIMIT = 1 << 30
#: entries of a kind are spread over this many folders by the first two digits of their keys
FOLDERS = 256
#: an entry used more recently may be in use by a process, and stays
YOUNG_SECONDS = 60

Files = list[tuple[int, int, Path]]  # time of last use, bytes, place


def share() -> int:
    """Return the maximum size of one folder in bytes."""
    return LIMIT // FOLDERS


def touch(path: Path) -> None:
    """Record the use of an entry, so that others are evicted first."""
    with suppress(OSError):
        os.utime(path)


def used(files: Files) -> int:
    """Return when an entry was used, in nanoseconds."""
    return max(time_ns for time_ns, _, _ in files)


def shrink(folder: Path) -> None:
    """Remove the entries of a folder used least recently, until those left fit."""
    young = time.time_ns() - int(YOUNG_SECONDS * 1e9)
    entries: defaultdict[str, Files] = defaultdict(list)
    with suppress(OSError):
        for file in os.scandir(folder):
            with suppress(OSError):  # another process was faster
                stat = file.stat()
                name = file.name.partition(".")[0]
                entries[name].append((stat.st_mtime_ns, stat.st_size, Path(file.path)))
    excess = sum(size for files in entries.values() for _, size, _ in files) - share()
    for files in sorted(entries.values(), key=used):
        if excess <= 0 or used(files) > young:
            return
        excess -= sum(size for _, size, _ in files)
        for _, _, path in files:
            with suppress(OSError):
                path.unlink(missing_ok=True)
