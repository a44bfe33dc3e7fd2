"""Two traces, compiles or ranks go in; what pairs up, and where the two differ, comes out."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from functools import cached_property
from typing import Final, TypeVar

from tc.trace.commands import Command
from tc.trace.compiles import Artifact, Compile
from tc.trace.findings import Diagnosis, duration
from tc.trace.places import file_name
from tc.tui import look
from tc.tui.facts import Model, size_of
from tc.tui.lines import Line, clean, cut, left, line, right, tail
from tc.tui.views.compile import laid_out

_T = TypeVar("_T")
SAME: Final = "="
DIFFERENT: Final = "≠"
ONLY_LEFT: Final = "◂"
ONLY_RIGHT: Final = "▸"
_MOST: Final = 20_000  # lines compared with each other; of more, by their number
_FAST: Final = 2_000  # of more, lines that are everywhere are left out of the comparison
_MEASURED: Final = ("json",)  # times, sizes and hashes: no two compiles have the same


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two: a name, and the compiles that are looked at."""

    name: str
    diagnosis: Diagnosis
    compiles: tuple[Compile, ...]
    model: Model
    command: Command

    def text(self, one: Artifact) -> str:
        """Return the text of an artifact, JSON laid out."""
        return laid_out(self.diagnosis.session.text(one), one.kind)[0]


def sides_in(diagnosis: Diagnosis, name: str, command: Command) -> Side | None:
    """Return the compile or the rank of a trace that a name refers to."""
    model = Model(diagnosis)
    one = model.by_slug.get(name.strip("[]"))
    if one is not None:
        return Side(f"[{one.slug}]", diagnosis, (one,), model, command)
    bare = name.lower().removeprefix("rank").strip(" :=") if name[:1] in "rR" else ""
    bare = bare.removeprefix("r").strip()
    for index, label in model.lanes.items():
        if label == name or (bare.isdecimal() and label == f"rank {int(bare)}"):
            ranked = Model(diagnosis, lane=index)
            return Side(label, diagnosis, tuple(ranked.everything), ranked, command)
    return None


def whole(diagnosis: Diagnosis, name: str, command: Command) -> Side:
    """Return all compiles of a trace."""
    model = Model(diagnosis)
    return Side(name, diagnosis, tuple(model.everything), model, command)


@dataclass(slots=True)
class Pair:
    """What stands side by side in one row; either may be missing."""

    draw: Callable[[int], tuple[Line, Line]]
    mark: Callable[[], str]
    key: Hashable | None = None
    _mark: str = field(default="")

    @property
    def sign(self) -> str:
        """Whether the two are the same; found out once, when it is first asked for."""
        self._mark = self._mark or self.mark()
        return self._mark


class Pairs:
    """Pairs as rows: a half for each, what differs marked between them."""

    width = 0

    def __init__(self, pairs: Sequence[Pair], shift: int = 0) -> None:
        self.pairs, self.shift = pairs, shift
        self.here = -1  # the difference that was gone to

    def __len__(self) -> int:
        return len(self.pairs)

    def key(self, index: int) -> Hashable | None:
        return self.pairs[index].key

    def index(self, key: Hashable) -> int:
        return next((n for n, one in enumerate(self.pairs) if one.key == key), -1)

    def line(self, index: int, width: int) -> Line:
        pair = self.pairs[index]
        half = max((width - 4) // 2, 1)
        first, second = pair.draw(half)
        sign = pair.sign
        shown = ("  ", "dim") if sign == SAME else (f"{sign} ", "mark")
        lead = line(("▸", "mark")) if index == self.here else line(" ")
        return (lead + fitted(first, half, self.shift) + line(" ") + line(shown)
                + fitted(second, half, self.shift))  # fmt: skip

    def differing(self, start: int, step: int) -> int:
        """Return the next row that is not the same on both sides, of a group of rows the first."""
        at = start + step
        while 0 <= at < len(self.pairs):
            if self._begins(at):
                return at
            at += step
        return -1

    def _begins(self, at: int) -> bool:
        if self.pairs[at].sign == SAME:
            return False
        return self.pairs[at].key is not None or at == 0 or self.pairs[at - 1].sign == SAME


def fitted(row: Line, width: int, shift: int = 0) -> Line:
    """Cut a line to a width, and pad it to that; `shift` characters on its left are left out."""
    pieces: list[tuple[str, str]] = []
    for text, role in row.pieces:
        kept, shift = text[shift:], max(shift - len(text), 0)
        space = width - Line(tuple(pieces)).width
        if kept and space > 0:
            pieces.append((cut(kept, space), role))
    done = Line(tuple(pieces))
    return done + line(" " * max(width - done.width, 0))


# ---------------------------------------------------------------------------- compiles


def compile_pairs(a: Side, b: Side) -> list[tuple[Compile | None, Compile | None]]:
    """Pair compiles: of the same id and code, then of the same code in order, then of one id."""
    if len(a.compiles) == len(b.compiles) == 1:
        return [(a.compiles[0], b.compiles[0])]
    partner: dict[int, Compile] = {}
    free = list(b.compiles)
    for name in (lambda one: (one.id, _code(one)), _code, lambda one: one.id):
        waiting: dict[Hashable, deque[Compile]] = {}
        for other in free:
            waiting.setdefault(name(other), deque()).append(other)
        for one in a.compiles:
            if id(one) not in partner and (alike := waiting.get(name(one))):
                partner[id(one)] = alike.popleft()
        taken = set(map(id, partner.values()))
        free = [other for other in free if id(other) not in taken]
    rows: list[tuple[Compile | None, Compile | None]] = [
        (one, partner.get(id(one))) for one in a.compiles
    ]
    return rows + [(None, other) for other in free]


def _code(one: Compile) -> Hashable:
    """The code object: its name, and its place without folders, which differ by machine."""
    return one.title, file_name(one.home[0]), one.home[1]


def compile_rows(a: Side, b: Side) -> Iterator[Pair]:
    """Rows of compiles."""
    for number, (one, other) in enumerate(compile_pairs(a, b)):
        yield Pair(
            lambda width, one=one, other=other: (  # type: ignore[misc]
                _compile_words(a, one, width), _compile_words(b, other, width)),
            lambda one=one, other=other: _compile_sign(a, one, b, other),  # type: ignore[misc]
            ("compile", number),
        )  # fmt: skip


def _compile_words(side: Side, one: Compile | None, width: int) -> Line:
    if one is None:
        return Line()
    status = side.model.statuses.get(id(one), "ok")
    sign = look.STATUS[status][0]
    time = " " + right(duration(one.seconds), 7)
    head = line((f"{sign} ", status), (f"[{one.slug}] ", "title"))
    space = max(width - head.width - len(time), 1)
    return head + line((left(one.title, space), ""), (time, "dim"))


def _sign(one: object | None, other: object | None, same: Callable[[], bool]) -> str:
    if one is None or other is None:
        return ONLY_LEFT if other is None else ONLY_RIGHT
    return SAME if same() else DIFFERENT


def _compile_sign(a: Side, one: Compile | None, b: Side, other: Compile | None) -> str:
    def same() -> bool:
        assert one is not None and other is not None
        statuses = a.model.statuses.get(id(one)), b.model.statuses.get(id(other))
        rows = (row for row in artifact_pairs(one, other) if not _is_measured(row))
        return statuses[0] == statuses[1] and all(_alike(a, x, b, y) for x, y in rows)

    return _sign(one, other, same)


# ---------------------------------------------------------------------------- artifacts


def artifact_pairs(
    one: Compile | None, other: Compile | None
) -> list[tuple[Artifact | None, Artifact | None]]:
    """Pair the artifacts of two compiles by name, in order."""
    first = list(one.artifacts) if one else []
    second = list(other.artifacts) if other else []
    return _aligned(first, second, [x.name for x in first], [x.name for x in second])


def _aligned(
    first: Sequence[_T], second: Sequence[_T], names: Sequence[str], others: Sequence[str]
) -> list[tuple[_T | None, _T | None]]:
    rows: list[tuple[_T | None, _T | None]] = []
    for tag, i, i_end, j, j_end in _steps(names, others):
        if tag == "equal":
            rows += zip(first[i:i_end], second[j:j_end], strict=True)
        else:
            rows += [(x, None) for x in first[i:i_end]] + [(None, y) for y in second[j:j_end]]
    return rows


def _is_measured(row: tuple[Artifact | None, Artifact | None]) -> bool:
    return all(one is None or one.kind in _MEASURED for one in row)


def _alike(a: Side, one: Artifact | None, b: Side, other: Artifact | None) -> bool:
    if one is None or other is None:
        return False
    return a.diagnosis.session.text(one) == b.diagnosis.session.text(other)


def artifact_rows(a: Side, one: Compile | None, b: Side, other: Compile | None) -> Iterator[Pair]:
    """Rows of the artifacts of two compiles."""
    for number, (x, y) in enumerate(artifact_pairs(one, other)):
        yield Pair(
            lambda width, x=x, y=y: (_artifact_words(x, width), _artifact_words(y, width)),  # type: ignore[misc]
            lambda x=x, y=y: _sign(x, y, lambda: _alike(a, x, b, y)),  # type: ignore[misc]
            ("artifact", number),
        )


def _artifact_words(one: Artifact | None, width: int) -> Line:
    if one is None:
        return Line()
    size = " " + right(size_of(one.size), 7)
    return line((left(one.name, max(width - len(size), 1)), ""), (size, "dim"))


# ---------------------------------------------------------------------------- texts


def text_rows(a: str, b: str) -> list[Pair]:
    """Rows of two texts, those that are the same on one line."""
    first, second = ([clean(row) for row in text.removesuffix("\n").split("\n")] if text else []
                     for text in (a, b))  # fmt: skip
    pairs: list[tuple[int | None, int | None]] = []
    for tag, i, i_end, j, j_end in _steps(first, second):
        both = max(i_end - i, j_end - j)
        if tag == "insert":
            pairs += [(None, n) for n in range(j, j_end)]
        elif tag == "delete":
            pairs += [(n, None) for n in range(i, i_end)]
        else:
            pairs += [(i + n if i + n < i_end else None, j + n if j + n < j_end else None)
                      for n in range(both)]  # fmt: skip
    space = len(str(max(len(first), len(second), 1)))
    return [_text_pair(first, second, x, y, space) for x, y in pairs]


def _text_pair(
    first: list[str], second: list[str], x: int | None, y: int | None, space: int
) -> Pair:
    same = x is not None and y is not None and first[x] == second[y]

    def half(rows: list[str], at: int | None) -> Line:
        if at is None:
            return Line()
        return Line(((f"{at + 1:>{space}} ", "dim"), (rows[at], "" if same else "mark")))

    return Pair(lambda width: (half(first, x), half(second, y)), lambda: _sign(x, y, lambda: same))


Step = tuple[str, int, int, int, int]


def _steps(first: Sequence[str], second: Sequence[str]) -> Iterator[Step]:
    """How to get from one list to the other; equal ends are left out of the search."""
    short = min(len(first), len(second))
    head = next((n for n in range(short) if first[n] != second[n]), short)
    rest = short - head
    end = next((n for n in range(rest) if first[-1 - n] != second[-1 - n]), rest)
    if head:
        yield "equal", 0, head, 0, head
    a, b = first[head : len(first) - end], second[head : len(second) - end]
    if len(a) + len(b) > _MOST:
        yield "replace", head, head + len(a), head, head + len(b)
    else:
        fast = len(a) + len(b) > _FAST
        for tag, i, i_end, j, j_end in SequenceMatcher(None, a, b, autojunk=fast).get_opcodes():
            yield tag, head + i, head + i_end, head + j, head + j_end
    if end:
        yield "equal", len(first) - end, len(first), len(second) - end, len(second)


# ---------------------------------------------------------------------------- levels


@dataclass(frozen=True)
class Level:
    """One screen: the pairs it lists, what it is called, and how deep one is."""

    a: Side
    b: Side
    compiles: tuple[Compile | None, Compile | None] | None = None
    artifacts: tuple[Artifact | None, Artifact | None] | None = None

    @cached_property
    def pairs(self) -> list[Pair]:
        """The rows."""
        if self.artifacts is not None:
            x, y = self.artifacts
            return text_rows(self.a.text(x) if x else "", self.b.text(y) if y else "")
        if self.compiles is not None:
            return list(artifact_rows(self.a, self.compiles[0], self.b, self.compiles[1]))
        return list(compile_rows(self.a, self.b))

    def inside(self, key: Hashable | None) -> Level | None:
        """Return what Enter on a row leads to."""
        if not isinstance(key, tuple):
            return None
        if self.compiles is None:
            return Level(self.a, self.b, compile_pairs(self.a, self.b)[key[1]])
        return Level(self.a, self.b, self.compiles, artifact_pairs(*self.compiles)[key[1]])

    def names(self) -> tuple[str, str]:
        """What stands above the two halves."""
        return (self._name(self.a, 0), self._name(self.b, 1))

    def _name(self, side: Side, n: int) -> str:
        if self.compiles is None:
            return side.name
        one = self.compiles[n]
        head = f"[{one.slug}]" if one else "not there"
        head = side.name if head == side.name else f"{tail(side.name, 24)} {head}"
        artifact = self.artifacts[n] if self.artifacts else None
        return f"{head} {artifact.name}" if artifact else head

    def words(self) -> str:
        """What is the same and what is not, counted; texts by their lines."""
        signs = [one.sign for one in self.pairs]
        noun = "lines" if self.artifacts else "artifacts" if self.compiles else "compiles"
        counts = [f"{signs.count(sign)} {said}" for sign, said in
                ((SAME, "the same"), (DIFFERENT, "differ"), (ONLY_LEFT, "only left"),
                 (ONLY_RIGHT, "only right")) if sign in signs]  # fmt: skip
        return f"{noun}: {', '.join(counts) or 'none'}"


def start(a: Side, b: Side) -> Level:
    """Return the first screen: of two single compiles, their artifacts."""
    rows = compile_pairs(a, b)
    if len(a.compiles) == len(b.compiles) == 1:
        return Level(a, b, rows[0])
    return Level(a, b)


def printed(level: Level, width: int = 120) -> str:
    """Return the first screen as text, for a pipe or a file."""
    a, b = level.names()
    half = (width - 4) // 2
    rows = Pairs(level.pairs)
    lines = [level.words(), "", str(line(" ", left(a, half), "   ", left(b, half)))]
    lines += [str(rows.line(n, width)) for n in range(len(rows))]
    return "\n".join(row.rstrip() for row in lines) + "\n"
