"""Pieces of a file go in; they stand in its place at once, or not at all."""

from __future__ import annotations

import os
import re
import stat
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO, Final

_MOST_LINKS: Final = 40  # as the system itself follows
_OF_DESCRIPTORS: Final = re.compile(r"/dev/fd|/proc/(?:self|thread-self|(\d+)(?:/task/\d+)?)/fd")


def replace_file(target: Path, pieces: Iterable[bytes]) -> None:
    """Write a file in one step: a reader never sees half of it.

    A link stays, and what it names is replaced. What exists and is no regular file (a pipe, a
    device, an open descriptor such as ``/dev/stdout``) cannot be replaced: it is written to.

    Raises:
        OSError: it cannot be written; a regular file that was there stays.
    """
    number = descriptor_of(target)
    if number is not None:
        with _same_as(number) as file:
            file.writelines(pieces)
        return
    place = Path(os.path.realpath(target))
    if not is_replaceable(place):
        with open(place, "wb") as file:
            file.writelines(pieces)
        return
    handle, name = tempfile.mkstemp(prefix=f".{place.stem}-", dir=place.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.writelines(pieces)
        os.chmod(name, 0o644)
        os.replace(name, place)
    except BaseException:
        os.unlink(name)
        raise


def is_replaceable(target: str | os.PathLike[str]) -> bool:
    """Return whether a file can be put in the place of what is there, if anything is.

    Raises:
        OSError: it cannot be looked at, other than for not being there.
    """
    if descriptor_of(target) is not None:
        return False
    try:
        mode = os.stat(target).st_mode
    except FileNotFoundError:
        return True
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode)  # putting a file over a folder is refused


def is_stdout(target: str | os.PathLike[str]) -> bool:
    """Return whether a path is a name of this process's stdout (``/dev/stdout``)."""
    return descriptor_of(target) == 1


def descriptor_of(target: str | os.PathLike[str]) -> int | None:
    """Return the descriptor of this process that a path is a name of; None if it is a file's."""
    name = os.path.abspath(target)
    for _ in range(_MOST_LINKS):
        folder, last = os.path.split(name)
        found = _OF_DESCRIPTORS.fullmatch(folder) or _OF_DESCRIPTORS.fullmatch(
            os.path.realpath(folder)
        )
        # The link of a descriptor is not followed: it names what was opened, but opening that
        # again begins at its start, and a file that has no name any more cannot be opened.
        if found and last.isdecimal():
            return int(last) if found[1] in (None, str(os.getpid())) else None
        if not os.path.islink(name):
            return None
        name = os.path.normpath(os.path.join(os.path.realpath(folder), os.readlink(name)))
    return None


def _same_as(number: int) -> BinaryIO:
    """Return a file that continues what this process has written to a descriptor."""
    if number == 1 and sys.stdout is not None:
        sys.stdout.flush()
    return os.fdopen(os.dup(number), "wb")
