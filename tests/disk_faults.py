"""Faults of file systems: makes the n-th operation on the files of a folder go wrong.

An operation is a call of one of `CALLS` with a path in the folder, or a read, write or close of a
file that was opened there. `faults` lists what can be done to one; `Disk` does it.
"""

from __future__ import annotations

import errno
import io
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

#: functions of `os` that take a path first
CALLS = ("open", "replace", "unlink", "mkdir", "utime", "scandir", "stat", "access")
ERRORS = ("ENOSPC", "EROFS", "EACCES", "ESTALE", "EIO", "EDQUOT", "ENOENT")
#: faults that raise nothing where they happen
SILENT = ("torn write", "short read", "vanish", "becomes a file")


@dataclass(frozen=True)
class Fault:
    """What goes wrong: the name of an error, or one of `SILENT`; once, or from then on."""

    kind: str
    lasting: bool = False


def faults() -> list[Fault]:
    """Return all faults."""
    errors = [Fault(kind, lasting) for kind in ERRORS for lasting in (False, True)]
    return errors + [Fault(kind) for kind in SILENT]


class Disk:
    """A folder whose operations are counted, and one of which goes wrong.

    Attributes:
        operations: what was done, in order; what went wrong is the last of the fault's.
    """

    def __init__(self, folder: Path, step: int = -1, fault: Fault | None = None) -> None:
        self.folder, self.step, self.fault = folder, step, fault
        self.operations: list[str] = []
        self._open: dict[int, str] = {}

    def goes_wrong(self, name: str) -> bool:
        """Count an operation; return whether the fault happens to it.

        Raises:
            OSError: that is how it goes wrong.
        """
        number = len(self.operations)
        self.operations.append(name)
        fault = self.fault
        if fault is None or not (number == self.step or (fault.lasting and number > self.step)):
            return False
        if fault.kind in ERRORS:
            code = getattr(errno, fault.kind)
            raise OSError(code, os.strerror(code), str(self.folder))
        if fault.kind in ("vanish", "becomes a file"):
            shutil.rmtree(self.folder, ignore_errors=True)
            if fault.kind == "becomes a file":
                self.folder.write_bytes(b"")
        return True

    def within(self, path: Any) -> bool:
        """Return whether a path is of the folder."""
        if not isinstance(path, str | bytes | os.PathLike):
            return False
        return os.fsdecode(path).startswith(str(self.folder))

    def call(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        """Return what takes the place of a function of `os`."""

        def called(path: Any, *args: Any, **how: Any) -> Any:
            if self.within(path):
                self.goes_wrong(name)
            result = real(path, *args, **how)
            if name == "open":
                self._open.pop(result, None)
                if self.within(path):
                    self._open[result] = os.fsdecode(path)
            return result

        return called

    def opened(self, real: Callable[..., Any]) -> Callable[..., Any]:
        """Return what takes the place of `os.fdopen`."""

        def fdopen(file: int, mode: str = "r", *args: Any, **how: Any) -> Any:
            result = real(file, mode, *args, **how)
            return File(result, self) if file in self._open else result

        return fdopen

    @contextmanager
    def at_work(self) -> Iterator[Disk]:
        """Let operations be counted, and go wrong, in a block."""
        with mock.patch.multiple(
            os,
            fdopen=self.opened(os.fdopen),
            **{name: self.call(name, getattr(os, name)) for name in CALLS},
        ):
            yield self


class File(io.RawIOBase):
    """A file of the folder."""

    def __init__(self, real: Any, disk: Disk) -> None:
        self._real, self._disk = real, disk

    def read(self, size: int = -1) -> bytes:
        torn = self._disk.goes_wrong("read") and self._is("short read")
        content: bytes = self._real.read(size)
        return content[: len(content) // 2] if torn else content

    def write(self, content: Any) -> int:
        try:
            torn = self._disk.goes_wrong("write") and self._is("torn write")
        except OSError:
            self._real.write(content[: len(content) // 2])
            raise
        self._real.write(content[: len(content) // 2] if torn else content)
        return len(content)

    def fileno(self) -> int:
        return int(self._real.fileno())

    def close(self) -> None:
        if not self._real.closed:
            self._real.close()
            self._disk.goes_wrong("close")

    def __exit__(self, *raised: object) -> None:
        self.close()

    def _is(self, kind: str) -> bool:
        return self._disk.fault is not None and self._disk.fault.kind == kind


def steps_of(folder: Path, work: Callable[[], object]) -> int:
    """Return how many operations on the files of a folder a function does."""
    with Disk(folder).at_work() as disk:
        work()
    return len(disk.operations)
