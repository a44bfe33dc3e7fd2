"""Where the cache keeps its files: what a place has to be able to do, a folder, and memory.

A place holds small files under names of the form ``kind/ab/abcdef.so``. It makes no promise beyond
its docstring: what is read from it is checked by whoever reads (`store`), and every method may
raise OSError at any time. Nothing is ever locked: files are replaced as a whole.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

T = TypeVar("T")
#: files of this folder of a place are in the making; old ones are left by processes that died
TEMPORARY = "tmp"
STALE_SECONDS = 24 * 3600
#: a file larger than this is none of the cache's
LARGEST = 1 << 30
#: bytes that a process keeps in memory where its cache cannot be written
MEMORY = 64 << 20
#: file systems of this machine alone: a library that another process removes stays mapped there
LOCAL = frozenset((
    *("ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "bcachefs", "jfs", "reiserfs"),
    *("tmpfs", "ramfs", "overlay"),
))  # fmt: skip


class Held(NamedTuple):
    """A file of a place: when it was last used, in nanoseconds; its bytes; its name."""

    used: int
    size: int
    name: str


class Place(Protocol):
    """Where files are kept. All methods raise OSError, `FileNotFoundError` for a missing file."""

    #: how people call it
    label: str
    #: whether it is asked over a network, so that asking often is expensive
    distant: bool

    def read(self, name: str) -> bytes:
        """Return a file's content."""

    def write(self, name: str, content: bytes) -> None:
        """Create or replace a file; who reads it meanwhile gets the old content or the new."""

    def create(self, name: str, content: bytes) -> bool:
        """Create a file; return False if it exists."""

    def rewrite(self, name: str, content: bytes) -> None:
        """Replace the content of a file that exists by as many bytes."""

    def remove(self, name: str) -> None:
        """Remove a file if it exists."""

    def touch(self, name: str) -> None:
        """Record the use of a file."""

    def files(self, folder: str) -> list[Held]:
        """Return the files of a folder, none if there is no such folder."""


class Folder:
    """A folder, on a disk of this machine or mounted over a network."""

    distant = False

    def __init__(self, root: Path) -> None:
        self.root, self.label = root, str(root)
        self._swept = False

    def path(self, name: str) -> Path:
        """Return where a file is."""
        return self.root / name

    def read(self, name: str) -> bytes:
        return _retried(lambda: _content(self.root / name))

    def write(self, name: str, content: bytes) -> None:
        self._sweep()
        suffix = os.path.splitext(name)[1]
        temporary = f"{TEMPORARY}/{os.getpid()}-{secrets.token_hex(8)}{suffix}"

        def put() -> None:
            try:
                self.create(temporary, content)
                os.replace(self.root / temporary, self.root / name)
            except OSError as error:
                with suppress(OSError):
                    os.unlink(self.root / temporary)
                if error.errno == errno.ENOENT:
                    os.makedirs((self.root / name).parent, exist_ok=True)
                raise

        _retried(put)

    def create(self, name: str, content: bytes) -> bool:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        path = self.root / name
        try:
            try:
                file = os.open(path, flags, 0o666)
            except FileNotFoundError:
                os.makedirs(path.parent, exist_ok=True)
                file = os.open(path, flags, 0o666)
        except FileExistsError:
            if not path.parent.is_dir():
                raise
            return False
        try:
            with os.fdopen(file, "wb") as opened:
                opened.write(content)
        except BaseException:
            with suppress(OSError):
                os.unlink(path)
            raise
        return True

    def rewrite(self, name: str, content: bytes) -> None:
        # In place, not by renaming: a client of NFS that opens a file asks for its content, but may
        # know for a minute which file a name had.
        file = os.open(self.root / name, os.O_WRONLY | os.O_CLOEXEC)
        with os.fdopen(file, "wb") as opened:
            opened.write(content)

    def remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(self.root / name)

    def touch(self, name: str) -> None:
        os.utime(self.root / name)

    def files(self, folder: str) -> list[Held]:
        found = []
        with suppress(FileNotFoundError), os.scandir(self.root / folder) as listed:
            for file in listed:
                with suppress(FileNotFoundError):  # another process was faster
                    facts = file.stat()
                    name = f"{folder}/{file.name}"
                    found.append(Held(facts.st_mtime_ns, facts.st_size, name))
        return found

    def _sweep(self) -> None:
        """Remove, once a process, what processes that were killed left unfinished."""
        if self._swept:
            return
        self._swept = True
        oldest = time.time_ns() - STALE_SECONDS * 10**9
        with suppress(OSError):
            for used, _, name in self.files(TEMPORARY):
                if used < oldest:
                    with suppress(OSError):
                        self.remove(name)


def _content(path: Path) -> bytes:
    # Without waiting: what lies there may be a pipe.
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        facts = os.fstat(file.fileno())
        if not stat.S_ISREG(facts.st_mode) or facts.st_size > LARGEST:
            raise OSError(errno.EINVAL, "not a file of tc's cache", str(path))
        return file.read()


def _retried(work: Callable[[], T]) -> T:
    """Do something again whose folder was missing, or a file of which NFS had an old handle."""
    try:
        return work()
    except OSError as error:
        if error.errno not in (errno.ESTALE, errno.ENOENT):
            raise
    return work()


class Memory:
    """The memory of a process; what was used least recently is dropped."""

    label, distant = "memory", False

    def __init__(self) -> None:
        self._files: dict[str, tuple[int, bytes]] = {}

    def has(self, name: str) -> bool:
        """Return whether there is a file."""
        return name in self._files

    def read(self, name: str) -> bytes:
        held = self._files.get(name)
        if held is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        return held[1]

    def write(self, name: str, content: bytes) -> None:
        self._files[name] = time.time_ns(), content
        held = sorted(self._files.items(), key=lambda item: item[1][0])
        excess = sum(len(one) for _, (_, one) in held) - MEMORY
        for oldest, (_, one) in held:
            if excess <= 0:
                break
            excess -= len(one)
            self._files.pop(oldest, None)

    def create(self, name: str, content: bytes) -> bool:
        made = time.time_ns(), content
        return self._files.setdefault(name, made) is made

    def rewrite(self, name: str, content: bytes) -> None:
        self.read(name)
        self.write(name, content)

    def remove(self, name: str) -> None:
        self._files.pop(name, None)

    def touch(self, name: str) -> None:
        held = self._files.get(name)
        if held is not None:
            self._files[name] = time.time_ns(), held[1]

    def files(self, folder: str) -> list[Held]:
        return [
            Held(used, len(content), name)
            for name, (used, content) in list(self._files.items())
            if name.rpartition("/")[0] == folder
        ]


def mappable(folder: Path) -> bool:
    """Return whether libraries can be mapped from where they lie in a folder.

    Only on file systems of this machine: over a network a library that another machine removes or
    replaces takes its pages along, and the process dies when it runs into one. Not where programs
    may not be run.
    """
    try:
        place = os.path.realpath(folder)
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    longest, answer = -1, False
    for line in mounts.splitlines():
        fields, _, more = line.partition(" - ")
        parts, kind = fields.split(), more.split()[:1]
        if len(parts) < 6 or not kind:
            continue
        point = parts[4].replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")
        within = place == point or place.startswith(point.rstrip("/") + "/")
        if within and len(point) >= longest:
            longest = len(point)
            answer = kind[0] in LOCAL and "noexec" not in parts[5].split(",")
    return answer
