"""Small files by the hash of what they were made from: written whole or not at all, bounded.

In: a key and bytes. Out: the same bytes, or nothing: an entry that a crash, a full disk or another
program left incomplete is as if it were not there.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from tc.compiler.runtime.build import cache_dir, sealed, unsealed, write_atomically

#: bytes that the entries of one kind may take, all together; the oldest go first
LIMIT = 1 << 30
#: entries are spread over this many folders by the first two digits of their keys
FOLDERS = 256


def read(kind: str, key: str) -> bytes | None:
    """Return the entry of a key (hexadecimal digits), None if there is none that is whole."""
    path = _path(kind, key)
    try:
        content = path.read_bytes()
    except OSError:
        return None
    found = unsealed(content)
    if found is not None:
        _touch(path)
    return found


def write(kind: str, key: str, content: bytes) -> bool:
    """Keep an entry; returns False where it is too large or the disk refuses it."""
    path = _path(kind, key)
    whole = sealed(content)
    if len(whole) > LIMIT // FOLDERS:
        return False
    try:
        write_atomically(path, whole)
        _shrink(path.parent, LIMIT // FOLDERS)
    except OSError:  # the result is there; only the next process has to make it again
        return False
    return True


def _path(kind: str, key: str) -> Path:
    return cache_dir() / kind / key[:2] / key


def _touch(path: Path) -> None:
    """Note that an entry was used, so that others go first."""
    with suppress(OSError):
        os.utime(path)


def _shrink(folder: Path, limit: int) -> None:
    """Remove the entries used least recently, until those left fit."""
    found = []
    for entry in os.scandir(folder):
        try:
            stat = entry.stat()
        except OSError:  # another process was quicker
            continue
        found.append((stat.st_mtime_ns, stat.st_size, entry.path))
    excess = sum(size for _, size, _ in found) - limit
    for _, size, path in sorted(found):
        if excess <= 0:
            return
        excess -= size
        Path(path).unlink(missing_ok=True)
