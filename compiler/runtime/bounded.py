"""Places of bounded size, with least-recently-used eviction.

Files of one name with several endings (a library and its source) are one entry. Any process may
remove any entry at any time: a reader that finds it missing makes it again.
"""

from __future__ import annotations

import time
from collections import defaultdict
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tc.compiler.runtime.places import Held, Place

#: bytes that the entries of one kind may take, all together
LIMIT = 1 << 30
#: entries of a kind are spread over this many folders by the first two digits of their keys
FOLDERS = 256
#: an entry used more recently may be in use by a process, and stays
YOUNG_SECONDS = 60


def share() -> int:
    """Return the maximum size of one folder in bytes."""
    return LIMIT // FOLDERS


def last_use(files: list[Held]) -> int:
    """Return when an entry was used, in nanoseconds."""
    return max(file.used for file in files)


def shrink(place: Place, folder: str) -> None:
    """Remove the entries of a folder used least recently, until those left fit.

    Raises:
        OSError: the folder cannot be read.
    """
    young = time.time_ns() - int(YOUNG_SECONDS * 1e9)
    entries: defaultdict[str, list[Held]] = defaultdict(list)
    for file in place.files(folder):
        entries[file.name.rpartition("/")[2].partition(".")[0]].append(file)
    excess = sum(file.size for files in entries.values() for file in files) - share()
    for files in sorted(entries.values(), key=last_use):
        if excess <= 0 or last_use(files) > young:
            return
        excess -= sum(file.size for file in files)
        for file in files:
            with suppress(OSError):
                place.remove(file.name)
