"""A folder that looks like one of the user's, and in which programs may write as they like.

Folders are made again and files are copied, so that nothing of the user's changes; what is too
large for that, in bytes or in number, is a link.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
from collections import Counter
from collections.abc import Iterator, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ENTRIES: Final = 2000  # of one mirror: to look at them all takes milliseconds
BYTES: Final = 32 << 20  # that are copied, which takes a hundredth of a second
SUBJECT: Final = "subject.json"  # in the folder of a reduction's history, which grows with each try

Facts = dict[str, tuple[int, int]]


@dataclass
class Mirror:
    """A mirror of a folder.

    Attributes:
        made: where it is.
        without: a name in the folder that it does not show.
        seen: what the folder and the mirror were like when it was made.
        linked: folders that are too large to be made again.
        left: entries and bytes that may still be copied.
        spent: those that each name at the top has taken.
    """

    made: Path
    folder: Path
    without: str = ""
    seen: tuple[Facts, Facts] | None = None
    linked: set[str] = field(default_factory=set, init=False)
    left: Counter[str] = field(default_factory=Counter, init=False)
    spent: dict[str, Counter[str]] = field(default_factory=dict, init=False)

    def ready(self) -> Path:
        """Return the mirror; what has changed in it or in the folder is made again."""
        self._remove_own()
        now = self._facts() if self.seen is not None and self.made.is_dir() else None
        if now is None or now != self.seen:
            if now is None:
                self._begin()
            entries = {entry.name: entry for entry in entries_of(self.folder)}
            for name in sorted(entries if now is None else self._changed(now)):
                self._renew(name, entries.get(name))
            self.seen = self._facts()
        return self.made

    def _begin(self) -> None:
        """Start with an empty folder."""
        shutil.rmtree(self.made, ignore_errors=True)
        self.made.mkdir()
        self.left = Counter(entries=ENTRIES, bytes=BYTES)
        self.linked.clear()
        self.spent.clear()

    def _changed(self, now: tuple[Facts, Facts]) -> set[str]:
        """Return the names at the top below which something is another than it was."""
        assert self.seen is not None
        return {
            os.path.relpath(path, root).partition(os.sep)[0]
            for root, before, facts in zip((self.folder, self.made), self.seen, now, strict=True)
            for path, _ in before.items() ^ facts.items()
        }

    def _renew(self, name: str, entry: os.DirEntry[str] | None) -> None:
        """Make what has a name again; nothing, where the folder has it no longer."""
        target = self.made / name
        if target.is_dir() and not target.is_symlink():
            shutil.rmtree(target, ignore_errors=True)
        else:
            target.unlink(missing_ok=True)
        self.left.update(self.spent.pop(name, Counter()))
        own = os.path.join(self.folder, name)
        self.linked -= {one for one in self.linked if (one + os.sep).startswith(own + os.sep)}
        if entry is None or name == self.without:
            return
        before = self.left.copy()
        self._show(entry, target)
        self.spent[name] = Counter({what: before[what] - self.left[what] for what in before})

    def _remove_own(self) -> None:
        """Remove what was written under the name that is not shown."""
        if self.without:
            with contextlib.suppress(OSError):
                (self.made / self.without).unlink()

    def _facts(self) -> tuple[Facts, Facts]:
        return facts_of(self.folder, self.linked), facts_of(self.made, self.linked)

    def _fill(self, folder: Path, made: Path) -> None:
        made.mkdir()
        for entry in sorted(entries_of(folder), key=lambda entry: entry.name):
            self._show(entry, made / entry.name)

    def _show(self, entry: os.DirEntry[str], target: Path) -> None:
        """Copy an entry, or put a link to it in its place."""
        self.left["entries"] -= 1
        with contextlib.suppress(FileNotFoundError):  # a draft that has its name by now
            if not self._is_copied(entry, target):
                target.symlink_to(entry.path)

    def _is_copied(self, entry: os.DirEntry[str], target: Path) -> bool:
        """Copy an entry if it is not too large; returns whether it was."""
        if entry.is_dir(follow_symlinks=False):
            left = max(self.left["entries"], 0)
            if is_linked(entry) or self._is_below(entry) or count(entry.path, left) > left:
                self.linked.add(entry.path)
                return False
            self._fill(Path(entry.path), target)
            return True
        if not entry.is_file() or entry.stat().st_size > self.left["bytes"]:
            return False
        self.left["bytes"] -= entry.stat().st_size
        try:
            shutil.copy2(entry.path, target)
        except PermissionError:  # whoever reads it is to see that
            return False
        return True

    def _is_below(self, entry: os.DirEntry[str]) -> bool:
        """Return whether the mirror lies in a folder, so that it would show itself."""
        return os.path.realpath(self.made).startswith(os.path.realpath(entry.path) + os.sep)


def entries_of(folder: Path | str) -> Iterator[os.DirEntry[str]]:
    """Yield what is in a folder; nothing, where it cannot be read."""
    try:
        with os.scandir(folder) as found:
            yield from found
    except OSError:
        return


def is_linked(entry: os.DirEntry[str]) -> bool:
    """Return whether a folder is shown as it is: a hidden one, of Python's, or of tc-minify's."""
    return entry.name.startswith((".", "__pycache__")) or os.path.exists(f"{entry.path}/{SUBJECT}")


def walked(folder: Path | str, linked: Set[str] = frozenset()) -> Iterator[os.DirEntry[str]]:
    """Yield all entries below a folder that a mirror may hold."""
    for entry in entries_of(folder):
        yield entry
        is_known = entry.path in linked or not entry.is_dir(follow_symlinks=False)
        if not is_known and not is_linked(entry):
            yield from walked(entry.path, linked)


def count(folder: str, most: int) -> int:
    """Return how many entries there are below a folder; the most and one for whatever is more."""
    return sum(1 for _ in itertools.islice(walked(folder), most + 1))


def facts_of(folder: Path, linked: Set[str]) -> Facts:
    """Return when each entry below a folder was changed, and its size."""
    facts: Facts = {}
    for entry in walked(folder, linked):
        with contextlib.suppress(FileNotFoundError):  # it is gone again
            stat = entry.stat(follow_symlinks=False)
            is_file = entry.is_file(follow_symlinks=False)
            facts[entry.path] = (stat.st_mtime_ns, stat.st_size) if is_file else (stat.st_mode, 0)
    return facts
