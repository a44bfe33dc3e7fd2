"""A place behind an address that fsspec understands: ``s3://bucket/folder``, ``memory://``, …

fsspec and what it needs for an address are asked for only where one is given. An object store
replaces objects as a whole; of other file systems a reader may get half a file, which the checksum
finds.
"""

from __future__ import annotations

import errno
import importlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any, TypeVar

from tc.compiler.runtime.places import Held

T = TypeVar("T")
#: under what name file systems say when a file was changed
CHANGED = ("mtime", "LastModified", "last_modified", "updated", "modified", "created")


def is_address(text: str) -> bool:
    """Return whether a setting is an address rather than a folder."""
    return "://" in text


class Remote:
    """A folder of a file system of fsspec."""

    distant = True

    def __init__(self, address: str) -> None:
        """Connect.

        Raises:
            OSError: fsspec is missing, or does not understand the address.
        """
        self.label = address
        self._system: Any
        self._system, root = _asked(lambda: _fsspec().core.url_to_fs(address))
        self._root = root.rstrip("/")

    def read(self, name: str) -> bytes:
        return bytes(_asked(lambda: self._system.cat_file(self._path(name))))

    def write(self, name: str, content: bytes) -> None:
        self._put(name, content)

    def create(self, name: str, content: bytes) -> bool:
        try:
            self._put(name, content, mode="create")
        except FileExistsError:
            return False
        return True

    def rewrite(self, name: str, content: bytes) -> None:
        if not _asked(lambda: self._system.exists(self._path(name))):
            raise FileNotFoundError(errno.ENOENT, "no such file", name)
        self._put(name, content)

    def remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            _asked(lambda: self._system.rm_file(self._path(name)))

    def touch(self, name: str) -> None:
        """Do nothing: object stores know when a file was written, not when it was read."""

    def files(self, folder: str) -> list[Held]:
        path = self._path(folder)
        try:
            self._system.invalidate_cache(path)
            listed = _asked(lambda: self._system.ls(path, detail=True))
        except FileNotFoundError:
            return []
        return [
            Held(_changed(facts), int(facts.get("size") or 0), f"{folder}/{_last(facts['name'])}")
            for facts in listed
            if facts.get("type") == "file"
        ]

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _put(self, name: str, content: bytes, **how: Any) -> None:
        path = self._path(name)
        try:
            _asked(lambda: self._system.pipe_file(path, content, **how))
        except FileNotFoundError:  # a file system with folders
            _asked(lambda: self._system.makedirs(path.rpartition("/")[0], exist_ok=True))
            _asked(lambda: self._system.pipe_file(path, content, **how))


def _fsspec() -> Any:
    try:
        return importlib.import_module("fsspec")
    except ImportError as error:
        raise OSError(errno.EINVAL, "fsspec is not installed") from error


def _asked(question: Callable[[], T]) -> T:
    """Ask a file system; whatever its library raises is an OSError here."""
    try:
        return question()
    except OSError:
        raise
    except Exception as error:
        raise OSError(errno.EIO, f"{type(error).__name__}: {error}") from error


def _last(name: str) -> str:
    return name.rstrip("/").rpartition("/")[2]


def _changed(facts: Mapping[str, Any]) -> int:
    """Return when a file was changed, in nanoseconds; 0 where nobody says."""
    for name in CHANGED:
        value = facts.get(name)
        if isinstance(value, datetime):
            return int(value.timestamp() * 1e9)
        if isinstance(value, int | float):
            return int(value * 1e9)
    return 0
