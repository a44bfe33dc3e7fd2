"""Small files by the hash of what they were made from: written whole or not at all, bounded.

In: a key and bytes. Out: the same bytes, or nothing: an entry that a crash, a full disk or another
program left incomplete is as if it were not there.
"""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import NamedTuple

from tc.compiler.runtime import bounded
from tc.compiler.runtime.build import TRAILER, cache_dir, sealed, unsealed, write_atomically

#: length and CRC of what is told, at the end of the content
_TOLD = struct.Struct("<QI")
_LONG = 1 << 16  # bytes
_APART = 1021  # bytes


class Entry(NamedTuple):
    """What is kept under a key.

    Attributes:
        content: what results depend on, under a cryptographic hash.
        told: what a trace is told of it, which is longer. Its checksum is a quick one: it has to
            find what a crash left, and no result depends on it.
    """

    content: bytes
    told: bytes | memoryview = b""


def read(kind: str, key: str) -> bytes | None:
    """Return the content of a key's entry, None if there is none that is whole."""
    found = entry(kind, key)
    return None if found is None else found.content


def entry(kind: str, key: str) -> Entry | None:
    """Return the entry of a key (hexadecimal digits), None if there is none that is whole."""
    path = _path(kind, key)
    try:
        whole = path.read_bytes()
    except OSError:
        return None
    found = _opened(whole)
    if found is not None:
        bounded.touch(path)
    return found


def _opened(whole: bytes) -> Entry | None:
    at = len(whole) - TRAILER - _TOLD.size
    if at < 0:
        return None
    size, checksum = _TOLD.unpack_from(whole, at)
    content = unsealed(whole[size:])
    told = memoryview(whole)[:size]
    if content is None or _checksum(told) != checksum:
        return None
    return Entry(content[: -_TOLD.size], told)


def write(kind: str, key: str, content: bytes, told: bytes = b"") -> bool:
    """Keep an entry; returns False where it is too large or the disk refuses it."""
    path = _path(kind, key)
    whole = told + sealed(content + _TOLD.pack(len(told), _checksum(told)))
    if len(whole) > bounded.share():
        return False
    try:
        write_atomically(path, whole)
        bounded.shrink(path.parent)
    except OSError:  # the result is there; only the next process has to make it again
        return False
    return True


def _checksum(told: bytes | memoryview) -> int:
    """Return the CRC of what is told; of long texts that of a byte in each page of the disk."""
    return zlib.crc32(told if len(told) < _LONG else bytes(told[::_APART]))


def _path(kind: str, key: str) -> Path:
    return cache_dir() / kind / key[:2] / key
