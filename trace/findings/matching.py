"""The findings of two runs go in; which of them are the same cause, new, gone or moved comes out.

Ids alone are not enough: where a function has two causes of one kind, a line that is added above
another must not take its place. What a line says, and the lines around it, do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, Final

from tc.trace.findings.model import Finding, base_id
from tc.trace.lines import line_of

_ALIKE: Final = 0.6  # of its text: an edited line is the same line still


@dataclass(frozen=True, slots=True)
class Row:
    """What is remembered of a finding.

    Attributes:
        source: the text of its line, empty if the trace does not hold it.
        near: the lines before and after it, where the file was available.
    """

    id: str
    count: int = 1
    line: int = 0
    source: str = ""
    near: tuple[str, str] = ("", "")
    title: str = ""
    where: str = ""

    @property
    def file(self) -> str:
        """The name of its file, `model.py`; empty where its place is not known."""
        return self.where.partition(" in ")[0].rpartition(":")[0]

    @classmethod
    def of(cls, finding: Finding) -> Row:
        """Return what is remembered of a finding."""
        where = finding.where
        return cls(finding.id, finding.count, where.line, _plain(where.source), _near(finding),
                   finding.title, where.short if where.file else "")  # fmt: skip

    @classmethod
    def read(cls, row: Mapping[str, Any]) -> Row:
        """Read a row of a baseline, or a finding of `summary --json`."""
        where = row.get("where")
        place = where if isinstance(where, Mapping) else row
        near = row.get("near")
        count, line = row.get("count"), place.get("line")
        return cls(
            str(row["id"]),
            count if isinstance(count, int) else 1,
            line if isinstance(line, int) else 0,
            _plain(str(place.get("source") or "")),
            (str(near[0]), str(near[1])) if isinstance(near, list) and len(near) == 2 else ("", ""),
            str(row.get("title") or ""),
            where if isinstance(where, str) else "",
        )

    def to_json(self) -> dict[str, Any]:
        """Return it as a row of a baseline."""
        return {"id": self.id, "title": self.title, "where": self.where, "count": self.count,
                "line": self.line, "source": self.source, "near": list(self.near)}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Matched:
    """What became of the findings of an earlier run.

    Attributes:
        same: pairs (before, now).
        new, gone: those that only one run has.
        moved: pairs whose line is another one now.
    """

    same: tuple[tuple[Row, Row], ...]
    new: tuple[Row, ...]
    gone: tuple[Row, ...]

    @property
    def moved(self) -> tuple[tuple[Row, Row], ...]:
        """Pairs that lie on another line now, or in a file of another name."""
        return tuple(
            (a, b)
            for a, b in self.same
            if a.line and b.line and (a.line != b.line or a.file != b.file != "")
        )


def match(before: Sequence[Row], now: Sequence[Row]) -> Matched:
    """Pair the findings of two runs."""
    pairs: list[tuple[Row, Row]] = []
    new: list[Row] = []
    gone: list[Row] = []
    groups: dict[str, tuple[list[Row], list[Row]]] = {}
    for side, rows in enumerate((before, now)):
        for row in rows:
            groups.setdefault(base_id(row.id), ([], []))[side].append(row)
    for old, fresh in groups.values():
        found = _paired(old, fresh)
        pairs += found
        gone += [one for one in old if all(one is not a for a, _ in found)]
        new += [one for one in fresh if all(one is not b for _, b in found)]
    for was, is_now in _renamed(gone, new, before, now):
        pairs.append((was, is_now))
        gone.remove(was)
        new.remove(is_now)
    return Matched(tuple(pairs), tuple(new), tuple(gone))


def _renamed(
    gone: Sequence[Row], new: Sequence[Row], before: Sequence[Row], now: Sequence[Row]
) -> list[tuple[Row, Row]]:
    """Pair the findings of a file with those of the file that it was renamed to.

    It is one where all findings of the one are gone, all of the other are new, and most of them
    are of one kind, in a function of one name, at lines that say the same.
    """
    known = [{one.file for one in rows} for rows in (before, now)]
    old = [name for name in dict.fromkeys(one.file for one in gone) if name not in known[1]]
    fresh = [name for name in dict.fromkeys(one.file for one in new) if name not in known[0]]
    found: list[tuple[Row, Row]] = []
    for name in filter(None, old):
        mine = [one for one in gone if one.file == name]
        ways = [_of_kinds(mine, [one for one in new if one.file == other]) for other in fresh]
        best = max(ways, key=len, default=[])
        if 2 * len(best) > len(mine):
            found += best
            fresh.remove(best[0][1].file)
    return found


def _of_kinds(old: Sequence[Row], new: Sequence[Row]) -> list[tuple[Row, Row]]:
    groups: dict[tuple[str, str, str], tuple[list[Row], list[Row]]] = {}
    for side, rows in enumerate((old, new)):
        for row in rows:
            kind = row.id.partition("-")[0], row.title, row.where.partition(" in ")[2]
            groups.setdefault(kind, ([], []))[side].append(row)
    return [pair for mine, theirs in groups.values() for pair in _paired(mine, theirs)]


def _paired(old: Sequence[Row], fresh: Sequence[Row]) -> list[tuple[Row, Row]]:
    """Pair causes of one kind in one function, the likest first."""
    if len(old) == 1 and len(fresh) == 1:
        return [(old[0], fresh[0])]
    ways = sorted(
        ((_likeness(a, b), -abs(a.line - b.line), n, m)
         for n, a in enumerate(old) for m, b in enumerate(fresh)),
        key=lambda way: (-way[0], -way[1], way[2], way[3]),
    )  # fmt: skip
    taken_old: set[int] = set()
    taken_new: set[int] = set()
    found = []
    for likeness, _, n, m in ways:
        if likeness >= _ALIKE and n not in taken_old and m not in taken_new:
            taken_old.add(n)
            taken_new.add(m)
            found.append((old[n], fresh[m]))
    return found


def _likeness(a: Row, b: Row) -> float:
    """How much two lines say the same: above 1 for equal ones, more for equal neighbours."""
    if not a.source or not b.source:
        return float(a.id == b.id or a.title == b.title != "")
    if a.source != b.source:
        return SequenceMatcher(None, a.source, b.source, autojunk=False).ratio() * 0.99
    return 1.0 + sum(x == y != "" for x, y in zip(a.near, b.near, strict=True))


def _plain(text: str) -> str:
    return " ".join(text.split())


def _near(finding: Finding) -> tuple[str, str]:
    """The lines around a finding, if its file is here and still says the same."""
    where = finding.where
    if not where.source or not where.line:
        return "", ""
    rows = [_plain(line_of(where.file, where.line + n)) for n in (-1, 0, 1)]
    return (rows[0], rows[2]) if rows[1] == _plain(where.source) else ("", "")
