"""A session goes in; what its compiled programs lose in every step comes out as events.

The cost of an event is what mending would save, as far as that is known: all of what a copy or
guards take, half of what a kernel takes that waits for memory (with half the bytes), the difference
from eager. What passes at graph breaks is the breaks' own cost (`trace/findings/breaks.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from tc.trace.compiles import Compile, Lane
from tc.trace.findings.codes import Code, Order
from tc.trace.findings.model import Event, Where
from tc.trace.findings.rows import Facts, finding
from tc.trace.ids import plain_function
from tc.trace.session import Session
from tc.trace.stepcost import BOUND, CALLS, EAGER, FRESH, MEMORY, PYTHON, Row, Step, StepCost, span
from tc.trace.words import count

#: calls of a program below which nothing is said about its steps
_OFTEN: Final = 8
#: seconds, and share of all running, that mending must save to be worth a finding
_LEAST: Final = 0.01
_SHARE: Final = 0.1
#: kernels and calls that are as short as calling them, from which on they are many
_MANY: Final = 8
#: share of a program that steps of one kind must take to be what it is bound by
_MOSTLY: Final = 0.5


def _running(session: Session) -> Iterator[tuple[Lane, StepCost, Row, Compile]]:
    """The rows of programs that ran often enough, with their compiles."""
    compiles = {(one.lane.index, one.id): one for one in session.compiles}
    for lane, cost in session.step_costs:
        for row in cost.rows:
            compiled = compiles.get((lane.index, row.compile))
            if compiled is not None and row.calls >= _OFTEN:
                yield lane, cost, row, compiled


def _worth(saved: float, cost: StepCost) -> bool:
    return saved >= max(_LEAST, _SHARE * cost.seconds)


@finding(
    Code(
        "TC311",
        "a program is bound by calls: its kernels are as short as calling them",
        "do more in each call: one operation over a stacked tensor in place of many, a larger "
        'batch, `mode="reduce-overhead"` on a GPU',
    ),
    order=Order.TIME,
)
def bound_by_calls(facts: Facts) -> list[Event]:
    """Return the programs whose time is that of calling many short kernels."""
    found = []
    for _, cost, row, compiled in _running(facts.session):
        short = [step for step in row.steps if step.limit == CALLS]
        calls = [step for step in row.steps if step.limit in (CALLS, PYTHON)]
        spent, all_steps = _seconds(calls), _seconds(row.steps)
        saved = row.steady * spent / all_steps if all_steps else 0.0
        # Each of many small tensors is handed over in each call, too.
        saved += sum(one.around for one in cost.rows if one.compile == row.compile and short)
        if len(short) < _MANY or spent < _MOSTLY * all_steps or not _worth(saved, cost):
            continue
        mean = span(_seconds(short) / len(short))
        found.append(_event(
            row, compiled, "TC311",
            f"{_name(row)} is bound by calls: {len(short)} kernels of {mean} each",
            f"a call of a kernel takes as long as its work: {span(spent)} of {span(row.each)} in "
            "each call pass so",
            ("do the work of many in one operation: stack the tensors that a loop goes over, or "
             "use torch._foreach_* functions",
             "a larger batch, so that each kernel has more to do"),
            saved, _busiest(short),
        ))  # fmt: skip
    return found


_FRESH_WHY: Final = (
    "; results are in memory that the system maps and clears anew in each call, a page at a time"
)
_FRESH_FIX: Final = (
    "keep freed memory in the process: MALLOC_TRIM_THRESHOLD_=4294967296 "
    "MALLOC_MMAP_THRESHOLD_=4294967296 in the environment (glibc), or jemalloc"
)


@finding(
    Code(
        "TC312",
        "a program is bound by memory: its kernels wait for bytes, not for arithmetic",
        "move fewer bytes: a smaller type (`bfloat16`), fewer intermediate results that are "
        "returned or saved, work done in place",
    ),
    order=Order.TIME,
)
def bound_by_memory(facts: Facts) -> list[Event]:
    """Return the programs that spend most of their time on moving bytes."""
    found = []
    for _, cost, row, compiled in _running(facts.session):
        fresh = [step for step in row.steps if step.limit == FRESH]
        slow = [s for s in row.steps if s.limit == MEMORY and s.reached >= BOUND and not s.copies]
        slow += fresh
        spent, all_steps = _seconds(slow), _seconds(row.steps)
        saved = row.steady * spent / all_steps / 2 if all_steps else 0.0
        if spent < _MOSTLY * all_steps or not _worth(saved, cost):
            continue
        moved = sum(step.moved for step in slow)
        found.append(_event(
            row, compiled, "TC312", f"{_name(row)} is bound by memory",
            f"{count(len(slow), 'kernel')} of it move {_bytes(moved)} in each call, at "
            f"{moved / spent / 1e9:.1f} GB/s; this machine's memory gives "
            f"{cost.bandwidth / 1e9:.1f}" + (_FRESH_WHY if fresh else ""),
            (*((_FRESH_FIX,) if fresh else ()),
             "a type of half the size, where its precision is enough: bfloat16 halves the bytes",
             "return, or keep for backward, fewer of the results on the way: each is written once "
             "and read again"),
            saved, slow,
        ))  # fmt: skip
    return found


@finding(
    Code(
        "TC313",
        "values are only copied into another layout or place, in every call",
        "keep one layout throughout: make weights and inputs contiguous (or `channels_last`) once, "
        "outside of the step",
    ),
    order=Order.TIME,
)
def copied(facts: Facts) -> list[Event]:
    """Return the copies that take a good part of the time, one event a program."""
    found = []
    for _, cost, row, compiled in _running(facts.session):
        copies = [step for step in row.steps if step.copies and step.places]
        all_steps = _seconds(row.steps)
        saved = row.steady * _seconds(copies) / all_steps if all_steps else 0.0
        if not _worth(saved, cost):
            continue
        moved = sum(step.moved for step in copies if step.moved > 0)
        found.append(_event(
            row, compiled, "TC313",
            f"{_name(row)} copies {_bytes(moved)} into another layout in each call",
            f"{count(len(copies), 'step')} of it compute nothing: they take "
            f"{span(_seconds(copies))} of {span(row.each)}",
            ("make the change of layout once, outside of the step, where the tensor is a weight or "
             "an input",
             "leave out .contiguous(), or compute in the layout that the tensor has"),
            saved, copies,
        ))  # fmt: skip
    return found


@finding(
    Code(
        "TC314",
        "guards take a good part of each call",
        "guard less: compile what is inside of the module that holds so many objects, or pass "
        "fewer tensors; `guard_filter_fn` leaves out those that cannot change",
    ),
    order=Order.TIME,
)
def costly_guards(facts: Facts) -> list[Event]:
    """Return the functions whose guards cost more than a tenth of the running time."""
    found = []
    for _, cost, row, compiled in _running(facts.session):
        if not row.between or not _worth(row.guards, cost):
            continue
        place, each = _guarded_most(facts.session, compiled), span(row.guards / row.calls)
        found.append(_event(
            row, compiled, "TC314",
            f"{count(row.checked, 'guard', ',')} of {_name(row)} take {each} in each call",
            "all are checked before each call of the compiled code: those of each parameter, "
            "buffer and object that it reads",
            ("compile the part that does the work, and give it one stacked tensor in place of many",
             "options={'guard_filter_fn': tc.skip_guard_on_all_nn_modules_unsafe}, where modules "
             "do not change",),
            row.guards, (), place,
        ))  # fmt: skip
    return found


@finding(
    Code(
        "TC315",
        "a compiled graph is slower than eager",
        "leave it to eager (`tc.disable`), and report it",
    ),
    order=Order.TIME,
)
def slower_than_eager(facts: Facts) -> list[Event]:
    """Return the graphs that eager ran faster, where that was measured."""
    found = []
    for _, cost, row, compiled in _running(facts.session):
        saved = (row.instead - row.eager) * row.calls
        if row.verdict != EAGER or not _worth(saved, cost):
            continue
        found.append(_event(
            row, compiled, "TC315", f"{_name(row)} is slower than eager",
            f"its graph takes {span(row.instead)}, and {span(row.eager)} when eager runs it, in "
            "the same calls",
            ("leave this function to eager with tc.disable, and report it with the trace",),
            saved, row.steps,
        ))  # fmt: skip
    return found


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


def _event(
    row: Row,
    compiled: Compile,
    code: str,
    title: str,
    why: str,
    fix: tuple[str, ...],
    saved: float,
    steps: Iterable[Step],
    place: str = "",
) -> Event:
    place = place or next((step.places[0] for step in steps if step.places), "")
    file, _, line = place.rpartition(":")
    own = Where(*compiled.own_place, function=compiled.alias or compiled.function)
    where = Where(file, int(line), function=plain_function(row.function)) if file else own
    return Event(
        code=code,
        title=title,
        why=why,
        fix=fix,
        where=where,
        reason=f"{row.graph} of {plain_function(row.function)}",
        compiled=compiled,
        detail=f"{row.graph} graph",
        running=saved,
        times=row.calls,
    )
