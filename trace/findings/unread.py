"""A session goes in; what compiled autograd captured again, that nothing was compiled, and what
nobody here understands, come out."""

from __future__ import annotations

from typing import Final

from tc.trace.findings.codes import Code, Order
from tc.trace.findings.model import Event, Finding, Occurrence, Where
from tc.trace.findings.rows import Facts, finding
from tc.trace.ids import cause_id
from tc.trace.kinds import kind_of
from tc.trace.parsed import parse_json
from tc.trace.session import all_compiles
from tc.trace.timing import duration
from tc.trace.words import count, file_size

_REASONS: Final = "compiled_autograd_compile_reasons"
_LEAST: Final = 0.1  # seconds
_SHARE: Final = 0.05
_MOST_NAMED: Final = 5


_EMPTY: Final = {  # by what wrote the log: whose compiles it has none of, and the way to others
    "torch": "TC_TRACE=DIR records those of tc.compile",
    "tc": "TORCH_TRACE=DIR records those of torch.compile",
}


@finding(
    Code(
        "TC910",
        "no compile was recorded: the log says nothing about the program",
        "`TC_TRACE=DIR` records a program that uses `tc.compile`, `TORCH_TRACE=DIR` one that uses "
        "`torch.compile`",
    ),
    order=Order.DAMAGE,
)
def nothing_recorded(facts: Facts) -> list[Finding]:
    """Return one finding if there is nothing to judge: that is no clean bill of health."""
    session = facts.session
    noted = any(one.notes for one in session.loose)  # of an export, say
    if session.compiles or facts.recompiles or noted or unread(facts):
        return []
    name = cause_id("TC910", "", "", "no compile")
    return [
        Finding(
            code="TC910",
            id=name,
            title=f"no compile was recorded: {_EMPTY[session.producer]}",
            where=Where(),
            why="the program compiled nothing, or another compiler than the one that wrote the log "
            "compiled it: what is not in the log was not looked at",
            fix=("trace the program with the variable of its compiler: TC_TRACE=DIR for "
                 "tc.compile, TORCH_TRACE=DIR for torch.compile",),
            count=1,
            cost="",
            seconds=0.0,
            occurrences=(),
        )
    ]  # fmt: skip


@finding(
    Code(
        "TC202",
        "compiled autograd captured a backward pass again",
        "the reason is reported, in PyTorch's words",
        "recompile",
    )
)
def captured_again(facts: Facts) -> list[Event]:
    """Return each time that compiled autograd captured a backward pass again."""
    events, session = [], facts.session
    for compiled in all_compiles(session):
        for note in compiled.noted(_REASONS):
            reasons = _reasons(str(note.data))
            where = next((one for one in session.compiles
                          if one.lane == compiled.lane and one.id.startswith(f"{compiled.id}/")),
                         compiled)  # fmt: skip
            events.append(
                Event(
                    code="TC202",
                    title="compiled autograd captures the backward pass again",
                    why="; ".join(reasons) or "it differs from those captured before",
                    fix=(),
                    where=Where(*where.home, function=where.alias or where.function),
                    reason=reasons[0] if reasons else "",
                    compiled=where,
                    place=note.place,
                    time=note.time,
                    artifact=note.artifact if where is compiled else -1,
                    evidence="\n".join(reasons),
                )
            )
    return events


def _reasons(text: str) -> list[str]:
    try:
        rows = parse_json(text)
    except ValueError:
        return [text.strip()] if text.strip() else []
    return [str(row) for row in rows] if isinstance(rows, list) else [str(rows)]


@finding(
    Code(
        "TC908",
        "part of the trace is not understood: records of no known kind, time of no known compile",
        "nothing: their size is reported, so that no page looks complete that is not",
    ),
    order=Order.UNREAD,
)
def unread(facts: Facts) -> list[Finding]:
    """Return what the log holds and this reader does not understand, with its size."""
    session = facts.session
    kinds: dict[str, list[int]] = {}
    places: list[str] = []
    for compiled in session.loose:
        if compiled.id != "-/-":
            continue
        for one in compiled.artifacts:
            kind = kind_of(one.name)
            if not kind.loose and not kind.kept:
                row = kinds.setdefault(one.name, [0, 0])
                row[0], row[1] = row[0] + 1, row[1] + one.size
                places.append(one.place)
    for name, number in session.unknown.items():
        kinds.setdefault(name, [number, 0])
    total = sum(one.seconds for one in session.compiles)
    lost = float(sum(session.unowned.values()))
    if lost < max(_LEAST, _SHARE * total):
        lost = 0.0
    if not kinds and not lost:
        return []
    name = cause_id("TC908", "", "unread", "")
    return [
        Finding(
            code="TC908",
            id=name,
            title="part of the trace is not understood",
            where=Where(),
            why="; ".join(_unread_parts(kinds, dict(session.unowned) if lost else {}, lost)),
            fix=(),
            count=max(sum(row[0] for row in kinds.values()), 1),
            cost="",
            seconds=0.0,
            occurrences=tuple(Occurrence("", "", "", place, -1) for place in places[:20]),
        )
    ]


def _unread_parts(kinds: dict[str, list[int]], steps: dict[str, float], lost: float) -> list[str]:
    parts = []
    if lost:
        most = sorted(steps, key=lambda step: -steps[step])[:_MOST_NAMED]
        parts.append(f"{duration(lost)} of work belong to no known compile: {', '.join(most)}")
    if kinds:
        number = sum(row[0] for row in kinds.values())
        size = sum(row[1] for row in kinds.values())
        most = sorted(kinds, key=lambda kind: -kinds[kind][1])[:_MOST_NAMED]
        of = f" ({file_size(size)})" if size else ""
        rest = len(kinds) - len(most)
        more = f" and {count(rest, 'more kind')}" if rest > 0 else ""
        parts.append(f"{count(number, 'record')}{of} of no known kind: {', '.join(most)}{more}")
    return parts
