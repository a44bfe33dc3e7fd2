"""Small files by the hash of what they were made from: written whole or not at all, bounded.

In: a key and bytes. Out: the same bytes, or nothing: an entry that a crash, a full disk or another
program left incomplete is as if it were not there.
"""

from __future__ import annotations

from pathlib import Path

from tc.compiler.runtime import bounded
from tc.compiler.runtime.build import cache_dir, sealed, unsealed, write_atomically


def read(kind: str, key: str) -> bytes | None:
    """Return the entry of a key (hexadecimal digits), None if there is none that is whole."""
    path = _path(kind, key)
    try:
        content = path.read_bytes()
    except OSError:
        return None
    found = unsealed(content)
    if found is not None:
        bounded.touch(path)
    return found


def write(kind: str, key: str, content: bytes) -> bool:
    """Keep an entry; returns False where it is too large or the disk refuses it."""
    path = _path(kind, key)
    whole = sealed(content)
    if len(whole) > bounded.share():
        return False
    try:
        write_atomically(path, whole)
        bounded.shrink(path.parent)
    except OSError:  # the result is there; only the next process has to make it again
        return False
    return True


def _path(kind: str, key: str) -> Path:
    return cache_dir() / kind / key[:2] / key
