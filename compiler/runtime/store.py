"""A content-addressed store of small files: written atomically, bounded in size.

In: a key and bytes. Out: the same bytes, or nothing: an entry that a crash, a full disk or another
program left incomplete counts as missing.
"""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import NamedTuple

from tc.compiler.runtime import bounded
from tc.compiler.runtime.build import TRAILER, cache_dir, sealed, unsealed, write_atomically

#: length and CRC of the text for traces, at the end of the content
_TOLD = struct.Struct("<QI")
_LONG = 1 << 16  # bytes
_APART = 1021  # bytes


class Entry(NamedTuple):
    """The entry of a key.

    Attributes:
        content: the data that results depend on, under a cryptographic hash.
        told: longer text for traces. A fast checksum is enough for it: it has to detect incomplete
            writes, and no result depends on it.
    """

    content: bytes
    told: bytes | memoryview = b""


def read(kind: str, key: str) -> bytes | None:
    """Return the content of a key's entry, None without a complete entry."""
    found = entry(kind, key)
    return None if found is None else found.content


def entry(kind: str, key: str) -> Entry | None:
    """Return the entry of a key (hexadecimal digits), None without a complete one."""
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
    """Store an entry; return False if it is too large or the disk rejects it."""
    path = _path(kind, key)
    whole = told + sealed(content + _TOLD.pack(len(told), _checksum(told)))
    if len(whole) > bounded.share():
        return False
    try:
        write_atomically(path, whole)
        bounded.shrink(path.parent)
    except OSError:  # this process has the result; only the next one has to compute it again
        return False
    return True


def _checksum(told: bytes | memoryview) -> int:
    """Return the CRC of a text; for a long one that of a byte in each disk page."""
    return zlib.crc32(told if len(told) < _LONG else bytes(told[::_APART]))


def _path(kind: str, key: str) -> Path:
    return cache_dir() / kind / key[:2] / key
