"""Recompiles go in; the functions that were compiled too often to continue come out as events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tc.trace.compiles import LIBRARY, Compile, calls_in_python
from tc.trace.findings.codes import Code, Order
from tc.trace.findings.model import Event, Finding, Recompile, Where, here
from tc.trace.findings.rows import Facts, finding
from tc.trace.fixes import NOTHING_TO_DO
from tc.trace.session import Session, all_compiles
from tc.trace.words import count

_WHY = (
    "each set of inputs needed its own compile, until there were too many: new ones run in Python"
)
_LIMIT, _CHANGED = "TC209", "TC201"
_NAMED = 3  # findings in a fix
_MEND = "fix the inputs that keep changing"
_FIX = (
    f"{_MEND}: see the other findings of this function",
    "if all these compiles are wanted, raise the limit: {}",
)


@finding(
    Code(
        "TC209",
        "a function was compiled too often: new inputs run in Python",
        "mend what keeps changing: the other findings of the function",
        "refused",
        eager=True,
    ),
    order=Order.LIMITS,
)
def limits(facts: Facts) -> list[Event]:
    """Return each function that reached its recompile limit, once a refusal."""
    events: list[Event] = []
    reported: set[int] = set()
    for compiled in all_compiles(facts.session):
        for note in compiled.noted("tc_recompile_limit"):
            reported.add(id(compiled))
            line = note.data.get("line")
            limit = note.data.get("limit")
            function = str(note.data.get("function") or compiled.function)
            where = Where(
                file=str(note.data.get("file") or compiled.file),
                line=line if isinstance(line, int) else compiled.line,
                function=function,
            )
            events.append(
                Event(
                    code="TC209",
                    title=f"{function} reached the recompile limit ({limit})",
                    why=_WHY,
                    fix=(_FIX[0], _FIX[1].format("tc.config.recompile_limit")),
                    where=here(compiled) if LIBRARY.search(where.file) else where,
                    named=(where.file, function),
                    reason=_reason(compiled),
                    compiled=compiled,
                    place=note.place,
                    time=note.time,
                    artifact=note.artifact,
                    python_calls=calls_in_python(compiled),
                )
            )
    for one in facts.recompiles:
        if one.refused and id(one.compiled) not in reported:
            events.append(_refusal(facts.session, one))
    return events


def behind_causes(facts: Facts, findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings, each reached limit behind what keeps its function changing.

    The limit names these in its fix: there is nothing to mend at the limit itself.
    """
    frames = {one.slug: (one.lane.index, one.frame_id) for one in all_compiles(facts.session)}

    def of(one: Finding) -> set[tuple[int, str]]:
        return {frames[seen.compile] for seen in one.occurrences if seen.compile in frames}

    listed: list[Finding] = []
    led: set[str] = set()
    changing = [one for one in findings if one.code == _CHANGED]
    for one in findings:
        mine = [cause for cause in changing if one.code == _LIMIT and of(cause) & of(one)]
        listed += [cause for cause in mine if cause.id not in led]
        led.update(cause.id for cause in mine)
        if mine:
            to_mend = [cause for cause in mine if cause.fix
                       and not cause.fix[0].startswith(NOTHING_TO_DO)] or mine  # fmt: skip
            names = ", ".join(cause.id for cause in to_mend[:_NAMED])
            rest = len(to_mend) - _NAMED
            more = f" and {count(rest, 'more finding')}" if rest > 0 else ""
            one = replace(one, fix=(f"{_MEND}: {names}{more}", *one.fix[1:]))
        if one.code != _CHANGED or one.id not in led:
            listed.append(one)
    return listed


def _reason(compiled: Compile) -> str:
    """What distinguishes the limits of a function: what continues behind a break has its own."""
    return "behind a break" if compiled.line_of_resume else ""


def _refusal(session: Session, one: Recompile) -> Event:
    """PyTorch records a reason to compile again, and then no compile."""
    first = next(
        (
            mine
            for mine in session.compiles
            if mine.lane == one.compiled.lane and mine.frame_id == one.compiled.frame_id
        ),
        one.compiled,
    )
    note = one.compiled.noted("recompile_reasons", "tc_recompile")[-1]
    return Event(
        code="TC209",
        title=f"{first.title} reached the recompile limit",
        why=_WHY,
        fix=(_FIX[0], _FIX[1].format("torch._dynamo.config.recompile_limit")),
        where=here(first),
        reason=_reason(first),
        compiled=one.compiled,
        place=note.place,
        time=note.time,
        artifact=note.artifact,
        detail="; ".join(str(cause) for cause in one.causes),
        causes=one.causes,
    )
