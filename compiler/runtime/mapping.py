"""A shared library that was read and checked, and the ways to map it into this process.

It is mapped from where it lies where that is safe (see `places.mappable`), so that profilers find
it by its path; else, and if its folder has vanished meanwhile, from a copy that belongs to this
process, or from memory.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tc.compiler.core.once import once
from tc.compiler.runtime import scratch


@dataclass(frozen=True)
class Library:
    """A library.

    Attributes:
        name: of its file in the store.
        content: the file as the compiler wrote it.
        path: where it lies, if other processes find it there and it can be mapped from there.
    """

    name: str
    content: bytes = field(repr=False)
    path: Path | None

    def __str__(self) -> str:
        return next(self.paths(), self.name)

    def paths(self) -> Iterator[str]:
        """Return paths under which it can be mapped, the best one first."""
        found = False
        with suppress(OSError):  # of a folder that has gone from the network, say
            found = self.path is not None and self.path.exists()
        if found:
            yield str(self.path)
        for folder in scratch.folders():
            with suppress(OSError):
                yield str(self._copy(folder))
        with suppress(OSError, AttributeError):
            yield _in_memory(self.name, self.content)

    def open(self) -> ctypes.CDLL:
        """Map it.

        Raises:
            OSError: it is no library for this machine.
        """
        why: OSError | None = None
        for path in self.paths():
            try:
                return ctypes.CDLL(path)
            except OSError as error:
                why = error
        raise why or OSError(f"there is no folder to map {self.name} from")

    def _copy(self, folder: Path) -> Path:
        # By its content, as files that are loaded may have other code under the same name.
        copy = folder / f"{hashlib.sha256(self.content).hexdigest()[:40]}.so"
        if not copy.exists():
            # In two steps, as another thread may map the file at once.
            made = copy.with_suffix(f".{os.urandom(4).hex()}")
            made.write_bytes(self.content)
            os.replace(made, copy)
        return copy


@once
def _in_memory(name: str, content: bytes) -> str:
    file = os.memfd_create(name)
    with open(file, "wb", closefd=False) as opened:
        opened.write(content)
    # The file stays open: under the same number the loader would take another for this one.
    return f"/proc/self/fd/{file}"
