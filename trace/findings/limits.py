"""Recompiles go in; the functions that were compiled too often to continue come out as events."""

from __future__ import annotations

from tc.trace.compiles import calls_in_python
from tc.trace.findings.codes import Code, Order
from tc.trace.findings.model import Event, Recompile, Where
from tc.trace.findings.rows import Facts, finding
from tc.trace.session import Session, all_compiles

_WHY = (
    "each set of inputs needed its own compile, until there were too many: new ones run in Python"
)
_FIX = (
    "fix the inputs that keep changing: see the other findings of this function",
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
                    where=where,
                    reason="",
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
        where=Where(*first.own_place, function=first.alias or first.function),
        reason="",
        compiled=one.compiled,
        place=note.place,
        time=note.time,
        artifact=note.artifact,
        detail="; ".join(str(cause) for cause in one.causes),
        causes=one.causes,
    )
