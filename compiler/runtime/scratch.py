"""Folders that belong to this process alone, and end with it.

The C compiler works there, and libraries are mapped from there that cannot be mapped from the
cache. There may be several, on different file systems: one may be full, or vanish.

A process that is killed leaves its folders. Each holds a file that its process keeps locked, so
that a later process knows the folders whose process has ended, and removes them.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows, where folders of killed processes stay
    fcntl = None  # type: ignore[assignment]

#: where folders are made, after the one that `tempfile` picks (``TMPDIR``)
MORE = ("/dev/shm", "/var/tmp")
PREFIX = "tc-"
LOCKED = "in_use"


class _Folders:
    """The folders of this process, by where they were made."""

    def __init__(self) -> None:
        self.made: dict[str, Path] = {}

    def start_over(self) -> None:
        """In a forked child: the parent's folders end with the parent."""
        self.made = {}

    def get(self, base: str) -> Path:
        """Return the folder in ``base``; one that somebody removed is made again.

        Raises:
            OSError: it cannot be made.
        """
        folder = self.made.get(base)
        if folder is None or not folder.is_dir():
            if not self.made:
                atexit.register(self._end, os.getpid())
            folder = self.made[base] = Path(tempfile.mkdtemp(prefix=PREFIX, dir=base or None))
            _lock(folder)
            remove_abandoned(folder.parent)
        return folder

    def _end(self, process: int) -> None:
        if process == os.getpid():
            for folder in self.made.values():
                shutil.rmtree(folder, ignore_errors=True)


def _lock(folder: Path) -> None:
    """Lock a folder until this process, and all that it forks, have ended; where locks exist."""
    made = folder / f"{LOCKED}.new"
    with suppress(OSError):
        file = os.open(made, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            made.rename(folder / LOCKED)  # nobody sees it before it is locked


def remove_abandoned(base: Path) -> None:
    """Remove the folders of processes that have ended without removing them."""
    for mark in base.glob(f"{PREFIX}*/{LOCKED}") if fcntl is not None else ():
        with suppress(OSError):
            file = os.open(mark, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(mark.parent, ignore_errors=True)
            finally:
                os.close(file)


_FOLDERS = _Folders()
os.register_at_fork(after_in_child=_FOLDERS.start_over)


def folders(*more: Path) -> Iterator[Path]:
    """Return folders of this process that can be made now, the best one first.

    Args:
        more: folders in which to make the last ones.
    """
    for base in ("", *MORE, *map(str, more)):
        try:
            yield _FOLDERS.get(base)
        except OSError:
            continue


def folder() -> Path:
    """Return a folder of this process.

    Raises:
        OSError: none can be made.
    """
    for found in folders():
        return found
    raise OSError("no folder for temporary files can be made")
