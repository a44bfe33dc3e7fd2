"""Folders that belong to this process alone, and end with it.

The C compiler works there, and libraries are mapped from there that cannot be mapped from the
cache. There may be several, on different file systems: one may be full, or vanish.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

#: where folders are made, after the one that `tempfile` picks (``TMPDIR``)
MORE = ("/dev/shm", "/var/tmp")


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
            folder = self.made[base] = Path(tempfile.mkdtemp(prefix="tc-", dir=base or None))
        return folder

    def _end(self, process: int) -> None:
        if process == os.getpid():
            for folder in self.made.values():
                shutil.rmtree(folder, ignore_errors=True)


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
