"""Folders of a cache that stay small: what was used least recently goes first.

Files of one name with several endings (a library and its source) are one entry. Any process may
remove any entry at any time: whoever is about to use one makes it again where it is gone.
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
#: an entry used since then is at work in some process, and stays
YOUNG_SECONDS = 60

Files = list[tuple[int, int, Path]]  # time of last use, bytes, place


def share() -> int:
    """Return how many bytes one folder may take."""
    return LIMIT // FOLDERS


def touch(path: Path) -> None:
    """Note that an entry was used, so that others go first."""
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
            with suppress(OSError):  # another process was quicker
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
