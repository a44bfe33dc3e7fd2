"""A session goes in; what its compiled programs lose in every step comes out as events.

The cost of an event is what the fix would save, as far as that is known: all of what a copy or
guards take, half of what a kernel takes that waits for memory (with half the bytes), the difference
from eager. What passes at graph breaks is the breaks' own cost (`trace/findings/breaks.py`).
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tc.trace.compiles import Compile
from tc.trace.findings.codes import Code, Order
from tc.trace.findings.model import Event, Where, here
from tc.trace.findings.rows import Facts, finding
from tc.trace.ids import plain_function
from tc.trace.provenance import source_lines
from tc.trace.session import Session
from tc.trace.stepcost import BOUND, CALLS, EAGER, FRESH, MEMORY, PYTHON, Row, Step, StepCost, span
from tc.trace.widths import widened
from tc.trace.words import count

#: calls of a program below which nothing is said about its steps
_OFTEN: Final = 8
#: seconds, and share of all running, that the fix must save to be worth a finding
_LEAST: Final = 0.01
_SHARE: Final = 0.1
#: kernels and calls that are as short as calling them, from which on they are many
_MANY: Final = 8
#: share of a program that steps of one kind must take to be what it is bound by
_MOSTLY: Final = 0.5


@dataclass(frozen=True, slots=True)
class _Loss:
    """What one program loses in every step, for the one line of the user's that it is named by.

    Attributes:
        saved: seconds of all calls that the fix would save.
        steps: of which the first with a line of the user's is where the finding stands.
        place: where it stands instead, ``file:line``.
    """

    title: str
    why: str
    fix: tuple[str, ...]
    saved: float
    steps: Sequence[Step] = ()
    place: str = ""


@dataclass(frozen=True, slots=True)
class _Ran:
    """A row of what was measured, of a compile that ran often enough.

    Attributes:
        row: a program, or what passed before it.
        beside: the other rows of that program: what passes before it, or the program itself.
    """

    session: Session
    cost: StepCost
    row: Row
    compiled: Compile
    beside: tuple[Row, ...]

    def widened(self, steps: Sequence[Step]) -> str:
        """Return where the values of most of the steps became float64, ``file:line``; or ""."""
        name = f"aot_{self.row.graph}_graph"
        graph = next((one for one in self.compiled.artifacts if one.name == name), None)
        lines = widened(self.session.text(graph)) if graph is not None else {}
        began: Counter[str] = Counter()
        for step in steps:
            places = [place.rpartition(":") for place in step.places]
            wide = [lines.get((file, int(line))) for file, _, line in places if line.isdigit()]
            for one in filter(None, wide):
                began[f"{one[0]}:{one[1]}"] += 1
                break
        place, times = began.most_common(1)[0] if began else ("", 0)
        return place if times >= _MOSTLY * len(steps) else ""

    def text(self, place: str) -> str:
        """Return a line of the user's as the trace holds it; "" if it does not."""
        file, _, line = place.rpartition(":")
        for one in self.compiled.artifacts:
            if one.name == "tc_source":
                row = source_lines(self.session.text(one)).get((file, int(line)))
                if row:
                    return row[0]
        return ""

    def share(self, steps: Iterable[Step]) -> float:
        """Return the seconds of some of the steps in all calls of the program."""
        all_steps = _seconds(self.row.steps)
        return self.row.steady * _seconds(steps) / all_steps if all_steps else 0.0


_Lose = Callable[[_Ran], _Loss | None]


def _losing(code: Code, *, between: bool = False) -> Callable[[_Lose], _Lose]:
    """Register what a program loses as a finding, wherever a fix is worth it.

    Args:
        between: it is asked about what passed between programs, else about programs.
    """

    def register(lose: _Lose) -> _Lose:
        def find(facts: Facts) -> list[Event]:
            found = []
            for ran in _running(facts.session):
                loss = lose(ran) if ran.row.between == between else None
                if loss is not None and loss.saved >= max(_LEAST, _SHARE * ran.cost.seconds):
                    found.append(_event(code.name, ran, loss))
            return found

        find.__name__ = lose.__name__
        finding(code, order=Order.TIME)(find)
        return lose

    return register


def _running(session: Session) -> Iterator[_Ran]:
    """The rows that ran often enough, with their compiles."""
    compiles = {(one.lane.index, one.id): one for one in session.compiles}
    for lane, cost in session.step_costs:
        of_program: defaultdict[tuple[str, str], list[Row]] = defaultdict(list)
        for row in cost.rows:
            of_program[row.compile, row.graph].append(row)
        for row in cost.rows:
            compiled = compiles.get((lane.index, row.compile))
            if compiled is not None and row.calls >= _OFTEN:
                rows = of_program[row.compile, row.graph]
                beside = tuple(one for one in rows if one.between != row.between)
                yield _Ran(session, cost, row, compiled, beside)


def _short(row: Row) -> list[Step]:
    """The kernels and calls of a program that are as short as calling them."""
    return [step for step in row.steps if step.limit == CALLS]


def _is_called(row: Row) -> bool:
    """Whether a program is bound by calls: many kernels, most of it, are short."""
    spent = _seconds(step for step in row.steps if step.limit in (CALLS, PYTHON))
    return len(_short(row)) >= _MANY and spent >= _MOSTLY * _seconds(row.steps)


def _guards_of_tensors(row: Row) -> float:
    """Return the seconds of guards that are there for the tensors passed to the program."""
    return row.guards * min(row.handed / row.checked, 1.0) if row.checked else 0.0


@_losing(
    Code(
        "TC311",
        "a program is bound by calls: its kernels are as short as calling them",
        "do more in each call: one operation over a stacked tensor in place of many, a larger "
        'batch, `mode="reduce-overhead"` on a GPU',
    )
)
def bound_by_calls(ran: _Ran) -> _Loss | None:
    """What calling many short kernels takes, with passing tensors to each and checking them."""
    row, short = ran.row, _short(ran.row)
    if not _is_called(row):
        return None
    calls = [step for step in row.steps if step.limit in (CALLS, PYTHON)]
    passing = sum(one.around + _guards_of_tensors(one) for one in ran.beside)
    also = f", and {span(passing / row.calls)} to check and pass their tensors"
    return _Loss(
        f"{_name(row)} is bound by calls: {len(short)} kernels of "
        f"{span(_seconds(short) / len(short))} each",
        f"a call of a kernel takes as long as its work: {span(_seconds(calls))} of "
        f"{span(row.each)} in each call pass so" + (also if passing else ""),
        ("do the work of many in one operation: stack the tensors that a loop goes over, or "
         "use torch._foreach_* functions",
         "a larger batch, so that each kernel has more to do"),
        ran.share(calls) + passing, _busiest(short),
    )  # fmt: skip


_FRESH_WHY: Final = (
    "; results are in memory that the system maps and clears again in each call, a page at a time"
)
_FRESH_FIX: Final = (
    "keep freed memory in the process: MALLOC_TRIM_THRESHOLD_=4294967296 "
    "MALLOC_MMAP_THRESHOLD_=4294967296 in the environment (glibc), or jemalloc"
)


_HALF_FIX: Final = (
    "a type of half the size, where its precision is enough: bfloat16 halves the bytes"
)
_DOUBLE_WHY: Final = "; its values are float64, of twice the bytes of float32"
_DOUBLE_FIX: Final = "keep the values float32, if nobody asked for float64: they become that at"


def _short_place(place: str) -> str:
    return Where(*_parted(place)).short


def _parted(place: str) -> tuple[str, int]:
    file, _, line = place.rpartition(":")
    return file, int(line)


@_losing(
    Code(
        "TC312",
        "a program is bound by memory: its kernels wait for bytes, not for arithmetic",
        "move fewer bytes: a smaller type (`bfloat16`), fewer intermediate results that are "
        "returned or saved, work done in place",
    )
)
def bound_by_memory(ran: _Ran) -> _Loss | None:
    """Half of what moving bytes takes, where most of the time does."""
    row = ran.row
    fresh = [step for step in row.steps if step.limit == FRESH]
    slow = [s for s in row.steps if s.limit == MEMORY and s.reached >= BOUND and not s.copies]
    slow += fresh
    spent = _seconds(slow)
    if not spent or spent < _MOSTLY * _seconds(row.steps):
        return None
    moved = sum(step.moved for step in slow)
    moves = "moves" if len(slow) == 1 else "move"
    began = ran.widened(slow)
    half = f"{_DOUBLE_FIX} {_short_place(began)}" if began else _HALF_FIX
    return _Loss(
        f"{_name(row)} is bound by memory",
        f"{count(len(slow), 'kernel')} of it {moves} {_bytes(moved)} in each call, at "
        f"{moved / spent / 1e9:.1f} GB/s; this machine's memory gives "
        f"{ran.cost.bandwidth / 1e9:.1f}" + (_DOUBLE_WHY if began else "")
        + (_FRESH_WHY if fresh else ""),
        (*((half,) if began else ()),
         *((_FRESH_FIX,) if fresh else ()),
         *(() if began else (half,)),
         "return, or keep for backward, fewer of the results on the way: each is written once "
         "and read again"),
        ran.share(slow) / 2, slow,
    )  # fmt: skip


@_losing(
    Code(
        "TC313",
        "values are only copied into another layout or place, in every call",
        "keep one layout throughout: make weights and inputs contiguous (or `channels_last`) once, "
        "outside of the step",
    )
)
def copied(ran: _Ran) -> _Loss | None:
    """What the copies of a program take."""
    every = [step for step in ran.row.steps if step.copies and step.places]
    if not every:
        return None
    longest = max(every, key=lambda step: step.seconds)
    kind = _kind_of(longest, ran)
    copies = sorted(every, key=lambda step: step is not longest)
    moved = sum(step.moved for step in copies if step.moved > 0)
    nothing = "step of it computes" if len(copies) == 1 else "steps of it compute"
    return _Loss(
        f"{_name(ran.row)} copies {_bytes(moved)} {kind.title} in each call",
        f"{len(copies)} {nothing} nothing: {span(_seconds(copies))} of {span(ran.row.each)}",
        kind.fix,
        ran.share(copies),
        copies,
    )


@dataclass(frozen=True, slots=True)
class _Copies:
    """What a copy is for, by the names of operations that it is made of."""

    names: frozenset[str]
    title: str
    fix: tuple[str, ...]


_COPIES: Final = (
    _Copies(
        frozenset(("cat", "stack", "concat", "hstack", "vstack", "append")),
        "to join tensors",
        ("allocate the whole once, with space for all, and write the new part into it "
         "(buffer[:, n : n + 1] = part); compute on a slice of it",
         "compute on the parts, where the result can be put together from theirs"),
    ),
    _Copies(
        frozenset(("repeat", "repeat_interleave", "tile")),
        "to repeat values",
        ("expand() or broadcasting in place of the repetition: a view, which copies nothing",
         "compute with the tensor as it is, and repeat the smaller result"),
    ),
)  # fmt: skip
_INTO_LAYOUT: Final = _Copies(
    frozenset(),
    "into another layout",
    ("make the change of layout once, outside of the step, where the tensor is a weight or "
     "an input",
     "leave out .contiguous(), or compute in the layout that the tensor has"),
)  # fmt: skip
_WORD: Final = re.compile(r"[a-z_]+")
_PART: Final = re.compile(r"[a-z]+")


def _kind_of(step: Step, ran: _Ran) -> _Copies:
    """Return what a copy is for: its own operations say it, else the user's line."""
    words = {*_PART.findall(step.name), *_WORD.findall(ran.text(step.places[0]))}
    return next((kind for kind in _COPIES if kind.names & words), _INTO_LAYOUT)


@_losing(
    Code(
        "TC314",
        "guards take a good part of each call",
        "guard less: compile what is inside of the module that holds so many objects, or pass "
        "fewer tensors; `guard_filter_fn` leaves out those that cannot change",
    ),
    between=True,
)
def costly_guards(ran: _Ran) -> _Loss | None:
    """What checking guards takes, without those that go with the kernels of `bound_by_calls`."""
    row, guards, number = ran.row, ran.row.guards, ran.row.checked
    if any(map(_is_called, ran.beside)):
        guards, number = guards - _guards_of_tensors(row), max(number - row.handed, 0)
    return _Loss(
        f"{count(number, 'guard', ',')} of {_name(row)} take {span(guards / row.calls)} "
        "in each call",
        "all are checked before each call of the compiled code: those of each parameter, "
        "buffer and object that it reads",
        ("compile the part that does the work, and give it one stacked tensor in place of many",
         "options={'guard_filter_fn': tc.skip_guard_on_all_nn_modules_unsafe}, where modules "
         "do not change",),
        guards, place=_guarded_most(ran.session, ran.compiled),
    )  # fmt: skip


@_losing(
    Code(
        "TC315",
        "a compiled graph is slower than eager",
        "leave it to eager (`tc.disable`), and report it",
    )
)
def slower_than_eager(ran: _Ran) -> _Loss | None:
    """What a compiled graph takes more than eager, where that was measured."""
    row = ran.row
    if row.verdict != EAGER:
        return None
    return _Loss(
        f"{_name(row)} is slower than eager",
        f"its graph takes {span(row.instead)}, and {span(row.eager)} when eager runs it, in "
        "the same calls",
        ("leave this function to eager with tc.disable, and report it with the trace",),
        (row.instead - row.eager) * row.calls, row.steps,
    )  # fmt: skip


def _guarded_most(session: Session, compiled: Compile) -> str:
    """Return the user's line that most guards of a compile are there for; empty if unknown."""
    often: Counter[str] = Counter()
    for artifact in compiled.artifacts:
        if artifact.name == "dynamo_cpp_guards_str":
            place = ""
            for row in session.text(artifact).splitlines():
                if row.startswith("# ") or not row:
                    place = row[2:]
                elif place:
                    often[place] += 1
    return often.most_common(1)[0][0] if often else ""


def _seconds(steps: Iterable[Step]) -> float:
    return sum(step.seconds for step in steps)


def _name(row: Row) -> str:
    graph = f" ({row.graph})" if row.graph in ("forward", "backward") else ""
    return (plain_function(row.function) or "a graph") + graph


def _bytes(number: int) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return f"{number} bytes"


def _busiest(steps: Iterable[Step]) -> list[Step]:
    """The steps of the line that most of them are of, before all others."""
    steps = list(steps)
    often = Counter(step.places[0] for step in steps if step.places)
    return sorted(steps, key=lambda step: -often[step.places[0]] if step.places else 0)


def _event(code: str, ran: _Ran, loss: _Loss) -> Event:
    row, compiled = ran.row, ran.compiled
    lines = (step.places[0] for step in loss.steps if step.places)
    place = loss.place or next(lines, "")
    where = here(compiled)
    if place:
        function, text = plain_function(row.function), ran.text(place)
        where = Where(*_parted(place), function=function, source=text)
    return Event(
        code=code,
        title=loss.title,
        why=loss.why,
        fix=loss.fix,
        where=where,
        reason=f"{row.graph} of {plain_function(row.function)}",
        compiled=compiled,
        detail=f"{row.graph} graph",
        running=loss.saved,
        times=row.calls,
    )
