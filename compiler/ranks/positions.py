"""Where a rank of a job is, and what shows that two ranks went different ways.

In: positions of two ranks. Out: a `Difference`, or None as long as both may still meet. Only what
cannot end well is a difference: two collectives of which the other rank issued another one in the
same place of the order, or one that the other rank will never issue. That a rank is late, compiles
more or has other sizes of data is none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Collective:
    """One collective that a rank is about to issue or has issued.

    Attributes:
        group: name of the process group.
        number: its place in the order of the collectives of that group, from 0.
        what: the operation, and what of its arguments has to be the same on all ranks.
        file, line: the user's innermost line; empty where no Python called.
        functions: of the user's that are running, the innermost first.
    """

    group: str
    number: int
    what: str
    file: str = ""
    line: int = 0
    functions: Sequence[str] = ()

    @property
    def function(self) -> str:
        """The innermost function."""
        return self.functions[0] if self.functions else ""

    @property
    def place(self) -> str:
        """``train.py:8 in step``."""
        return f"{Path(self.file).name}:{self.line} in {self.function}" if self.file else "backward"

    def __str__(self) -> str:
        return f"{self.what} ({self.place})"


@dataclass(frozen=True)
class Position:
    """Where a rank is.

    Attributes:
        question: number of the last question that this answers; see `Board`.
        recent: the last collectives of each group, oldest first.
        waiting: collectives issued that do not end, longer than the time limit.
        inexact: groups that had collectives before the guard began: numbers may be off.
        doing: what the main thread does: ``compiles step (train.py:8)``, ``is at train.py:9``.
        ended: whether the process is at its end.
        digest: of the compile decisions; equal where all ranks compiled the same.
    """

    rank: int
    question: int = 0
    recent: Mapping[str, Sequence[Collective]] = field(default_factory=dict)
    waiting: Sequence[Collective] = ()
    inexact: Sequence[str] = ()
    doing: str = ""
    ended: bool = False
    digest: str = ""

    def last(self, group: str) -> int:
        """Return the number of the last collective of a group; -1 before the first."""
        of = self.recent.get(group)
        return of[-1].number if of else -1

    def at(self, group: str, number: int) -> Collective | None:
        """Return a collective by its place in the order, if it is still known."""
        return next((one for one in self.recent.get(group, ()) if one.number == number), None)

    def is_stuck_in(self, group: str) -> bool:
        """Return whether a collective of a group does not end."""
        return any(one.group == group for one in self.waiting)

    def to_bytes(self) -> bytes:
        """Return it as JSON."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def of_bytes(cls, data: bytes) -> Position:
        """Return what `to_bytes` wrote."""
        row: dict[str, Any] = json.loads(data)
        row["recent"] = {
            name: [Collective(**one) for one in of] for name, of in row["recent"].items()
        }
        row["waiting"] = [Collective(**one) for one in row["waiting"]]
        return cls(**row)


@dataclass(frozen=True)
class Difference:
    """Two ranks that went different ways.

    Attributes:
        own: the collective of this rank that the other one does not join.
        other: what the other one issued in its place; None: nothing.
        rank: the other one.
        doing: what the other one does, where it issued nothing.
    """

    own: Collective
    other: Collective | None
    rank: int
    doing: str = ""


def difference(
    mine: Position, theirs: Position, members: Mapping[str, Sequence[int]]
) -> Difference | None:
    """Return how two ranks differ; None: they may still meet.

    Args:
        members: group -> its ranks, for the groups that this rank is in.
    """
    shared = [
        name for name in mine.recent if {mine.rank, theirs.rank} <= set(members.get(name, ()))
    ]
    for name in shared:
        found = _in_group(mine, theirs, name)
        if found is not None:
            return found
    return None


def _in_group(mine: Position, theirs: Position, name: str) -> Difference | None:
    if name in mine.inexact or name in theirs.inexact:
        return _both_stuck(mine, theirs, name)
    for one in mine.recent[name]:
        other = theirs.at(name, one.number)
        if other is not None and other.what != one.what:
            return Difference(one, other, theirs.rank)
    missed = mine.at(name, theirs.last(name) + 1)
    if theirs.ended and missed is not None:
        return Difference(missed, None, theirs.rank, "has ended")
    return None


def _both_stuck(mine: Position, theirs: Position, name: str) -> Difference | None:
    """Return the difference of ranks whose numbers may be off: both must wait, each for another."""
    own = next((one for one in mine.waiting if one.group == name), None)
    if own is None:
        return None
    if theirs.ended:
        return Difference(own, None, theirs.rank, "has ended")
    other = next((one for one in theirs.waiting if one.group == name), None)
    return Difference(own, other, theirs.rank) if other and other.what != own.what else None
