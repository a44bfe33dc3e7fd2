"""The name of a .zip or .tar archive goes in; the files in it, and their bytes, come out."""

from __future__ import annotations

import lzma
import os
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Final

SEPARATOR: Final = "!"  # `traces.zip!folder/x.log` names a log in an archive
_ZIP: Final = (".zip",)
_TAR: Final = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
ERRORS: Final = (
    zipfile.BadZipFile, tarfile.TarError, NotImplementedError, RuntimeError,
    zlib.error, lzma.LZMAError,
)  # fmt: skip


def is_archive(path: str) -> bool:
    """Whether a name is that of an archive."""
    return path.lower().endswith(_ZIP + _TAR)


def split(path: str) -> tuple[str, str] | None:
    """Return (archive, member) if a path names a log in an archive."""
    archive, found, member = path.partition(SEPARATOR)
    return (archive, member) if found and is_archive(archive) else None


def members(path: str) -> list[str]:
    """Return the names of all files in an archive, sorted.

    Raises:
        OSError and the ones of `ERRORS`: it cannot be read.
    """
    if path.lower().endswith(_ZIP):
        with zipfile.ZipFile(path) as archive:
            return sorted(one.filename for one in archive.infolist() if not one.is_dir())
    with tarfile.open(path) as tar:
        return sorted(one.name for one in tar.getmembers() if one.isfile())


@contextmanager
def stream(path: str, member: str) -> Iterator[tuple[IO[bytes], int]]:
    """Give the bytes of one file of an archive, and how many bytes they are packed in.

    Nothing is written to disk by its name; of a .tar the size is that of the whole archive.
    """
    if path.lower().endswith(_ZIP):
        with zipfile.ZipFile(path) as archive, archive.open(member) as file:
            yield file, archive.getinfo(member).compress_size
        return
    with tarfile.open(path) as tar:
        plain = tar.extractfile(member)
        if plain is None:
            raise tarfile.ReadError(f"{member} is no plain file")
        yield plain, os.stat(path).st_size
