"""The cache of this process: content under names, checked when it is read, bounded in size.

In: a name and bytes. Out: the same bytes, or nothing. An entry that a crash, a full disk or another
program left incomplete, or that was written under another name, counts as missing. A place that
cannot be written costs the cache and not the run: this process keeps in memory what it makes, and
says so once.
"""

from __future__ import annotations

import hashlib
import hmac
import linecache
import os
import struct
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, TypeVar

from tc import trace
from tc.compiler.runtime import bounded, scratch
from tc.compiler.runtime.places import Folder, Memory, Place, mappable
from tc.compiler.runtime.remote import Remote, is_address

T = TypeVar("T")
MAGIC = b"tc-cache-2:"
TRAILER = len(MAGIC) + hashlib.sha256().digest_size
#: seconds that nothing is written to a place that has just refused something
REST = 60.0
#: length and CRC of the text for traces, at the end of the content
_EVENTS = struct.Struct("<QI")
_LONG = 1 << 16  # bytes
_APART = 1021  # bytes


class Entry(NamedTuple):
    """The entry of a key.

    Attributes:
        content: the data that results depend on, under a cryptographic hash.
        events: longer text for traces. A fast checksum is enough: it has to detect incomplete
            writes, and no result depends on it.
    """

    content: bytes
    events: bytes | memoryview = b""


# -- the store of this process -----------------------------------------------------------------
class Store:
    """A place, and the memory that takes what the place does not.

    Attributes:
        place: where entries outlive the process; None where the process is to keep them alone.
    """

    def __init__(self, place: Place | None) -> None:
        self.place = place
        self.maps = isinstance(place, Folder) and mappable(place.root)
        self._memory = Memory()
        self._resting_until = 0.0
        self._warned = False

    def read(self, name: str, opened: Callable[[bytes, str], T | None]) -> T | None:
        """Return what a file holds, None if there is none as it was written under this name.

        Args:
            opened: content, name -> what it holds; None if it is not whole, or of another name.
        """
        for place in (self.place, self._memory):
            if place is None:
                continue
            try:
                found = opened(place.read(name), name)
            except OSError:
                continue
            if found is not None:
                with suppress(OSError):
                    place.touch(name)
                return found
        return None

    def path(self, name: str) -> Path | None:
        """Return where a file lies that was just read or written, if it can be mapped from there.

        What the memory has is not what lies in the place: that was refused, or is missing.
        """
        if not isinstance(self.place, Folder) or not self.maps or self._memory.has(name):
            return None
        return self.place.path(name)

    def write(self, name: str, content: bytes) -> bool:
        """Write a file with its seal; return whether other processes find it."""
        if self.place is not None and self._written(self.place, name, content):
            return True
        self._memory.write(name, content)
        return False

    def write_text(self, name: str, content: bytes) -> Path | None:
        """Write a file for people; return where it is, None where there is no such place."""
        place = self.place
        if place is None:
            try:
                place = Folder(scratch.folder())
            except OSError:
                return None
        if not isinstance(place, Folder):
            return None
        with suppress(OSError):
            if place.read(name) == content:
                place.touch(name)
                return place.path(name)
        return place.path(name) if self._written(place, name, content) else None

    def _written(self, place: Place, name: str, content: bytes) -> bool:
        if time.monotonic() < self._resting_until:
            return False
        try:
            place.write(name, content)
        except OSError as error:
            self._refused(place, error)
            return False
        with suppress(OSError):
            bounded.shrink(place, name.rpartition("/")[0])
        return True

    def _refused(self, place: Place, error: OSError) -> None:
        self._resting_until = time.monotonic() + REST
        if not self._warned:
            self._warned = True
            trace.warn(_cannot_write(place.label, error))


def _cannot_write(label: str, error: OSError) -> str:
    return (
        f"tc cannot write to its cache {label} ({error.strerror or error}): this process keeps "
        "what it compiles in memory, and the next one compiles it again. Free space there, or set "
        "TC_CACHE_DIR to a folder that can be written."
    )


class _Current:
    """The store, and the settings and process that it is for."""

    found: tuple[tuple[object, ...], Store] | None = None


def store() -> Store:
    """Return the store that ``TC_CACHE_DIR`` names: a folder, or an address for fsspec."""
    chosen = None if caches_disabled() else os.environ.get("TC_CACHE_DIR", "")
    # A connection does not survive a fork.
    settings = chosen, chosen is not None and is_address(chosen) and os.getpid()
    found = _Current.found
    if found is None or found[0] != settings:
        found = _Current.found = settings, _store(chosen)
    return found[1]


def _store(chosen: str | None) -> Store:
    if chosen is None:
        return Store(None)
    try:
        if is_address(chosen):
            return Store(Remote(chosen))
        return Store(Folder(Path(chosen) if chosen else Path.home() / ".cache" / "tc"))
    except (OSError, RuntimeError) as error:  # RuntimeError: there is no home
        trace.warn(_cannot_write(chosen or "~/.cache/tc", OSError(str(error))))
        return Store(None)


def caches_disabled() -> bool:
    """Return whether the user asked that nothing be read from, or kept in, the cache."""
    return os.environ.get("TC_FORCE_DISABLE_CACHES") == "1"


def cache_dir() -> Path:
    """Return a folder for files that people read: the cache's, else one of this process.

    Raises:
        OSError: there is none.
    """
    place = store().place
    if isinstance(place, Folder):
        with suppress(OSError):
            os.makedirs(place.root, exist_ok=True)
            if os.access(place.root, os.W_OK):
                return place.root
    return scratch.folder()


def keep_source(kind: str, source: str) -> str:
    """Keep generated Python where tracebacks, Triton and people find it; return its path."""
    content = source.encode()
    key = hashlib.sha256(content).hexdigest()[:40]
    name = f"{kind}/{key[:2]}/{key}.py"
    path = str(store().write_text(name, content) or f"<tc {name}>")
    # An entry without a time stamp survives linecache.checkcache even if its file is missing.
    linecache.cache[path] = (len(source), None, source.splitlines(keepends=True), path)
    return path


# -- seals ---------------------------------------------------------------------------------------
def sealed(content: bytes, name: str) -> bytes:
    """Return content with a trailer that detects damage, and content of another name.

    Under ``TC_CACHE_KEY``, a secret of those who share a cache, nobody else can make the trailer.
    """
    return content + _trailer(content, name)


def unsealed(whole: bytes, name: str) -> bytes | None:
    """Return the content that `sealed` was given with this name, None if it is another."""
    body = whole[:-TRAILER]
    good = body and hmac.compare_digest(whole[-TRAILER:], _trailer(body, name))
    return body if good else None


def _trailer(content: bytes, name: str) -> bytes:
    secret = os.environ.get("TC_CACHE_KEY", "").encode()
    digest = hmac.new(secret, digestmod="sha256") if secret else hashlib.sha256()
    digest.update(name.encode() + b"\0")
    digest.update(content)
    return MAGIC + digest.digest()


# -- entries with text for traces ----------------------------------------------------------------
def read(kind: str, key: str) -> bytes | None:
    """Return the content of a key's entry, None without a complete entry."""
    found = entry(kind, key)
    return None if found is None else found.content


def entry(kind: str, key: str) -> Entry | None:
    """Return the entry of a key (hexadecimal digits), None without a complete one."""
    return store().read(name_of(kind, key), _opened)


def write(kind: str, key: str, content: bytes, events: bytes = b"") -> bool:
    """Store an entry; return whether other processes find it."""
    name = name_of(kind, key)
    whole = events + sealed(content + _EVENTS.pack(len(events), _checksum(events)), name)
    return len(whole) <= bounded.share() and store().write(name, whole)


def name_of(kind: str, key: str, ending: str = "") -> str:
    """Return the name of a key's file."""
    return f"{kind}/{key[:2]}/{key}{ending}"


def _opened(whole: bytes, name: str) -> Entry | None:
    at = len(whole) - TRAILER - _EVENTS.size
    if at < 0:
        return None
    size, checksum = _EVENTS.unpack_from(whole, at)
    content = unsealed(whole[size:], name)
    events = memoryview(whole)[:size]
    if content is None or _checksum(events) != checksum:
        return None
    return Entry(content[: -_EVENTS.size], events)


def _checksum(events: bytes | memoryview) -> int:
    """Return the CRC of a text; for a long one that of a byte in each disk page."""
    return zlib.crc32(events if len(events) < _LONG else bytes(events[::_APART]))
