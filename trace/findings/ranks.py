"""What ranks did goes in; ranks that did otherwise than most come out as events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tc.trace.compiles import Compile, Note
from tc.trace.findings.codes import Code, Order
from tc.trace.findings.model import Event, Recompile, Where, here
from tc.trace.findings.recompiles import as_passed, fits, guard_values, plain
from tc.trace.findings.remedies import remedy
from tc.trace.findings.rows import Facts, finding
from tc.trace.parsed import line_number
from tc.trace.ranks import Divergence, Ranks, Step, compare_ranks
from tc.trace.recipes import FEW, SIDES, recipe_of
from tc.trace.session import Session, all_compiles

_FIXES: Final = {
    "compile": (
        "call the same compiled functions in the same order, with inputs of the same shapes, on "
        "every rank",
    ),
    "graph": (
        "take what depends on the rank (its number, its share of the data) out of the compiled "
        "function",
    ),
    "collectives": ("issue the same collectives in the same order on every rank",),
    "cache": (
        "let all ranks share one cache folder, or fill it before they start: a rank that hits "
        "runs ahead of those that compile",
    ),
    "break": ("make every rank take the same way through the function",),
    "failure": ("see why the compile failed on that rank: see its own finding",),
}
_VERBS: Final = {
    "compile": "has other compiles",
    "graph": "captured another graph",
    "collectives": "has other collectives",
    "cache": "met another cache",
    "break": "broke elsewhere",
    "failure": "failed",
}


def compared(session: Session, found: Sequence[Recompile]) -> Ranks:
    """Compare the ranks of a session, knowing what made functions compile again."""
    causes = {id(one.compiled): "; ".join(map(str, one.causes[:3])) for one in found if one.causes}
    return compare_ranks(session, causes)


@finding(
    Code(
        "TC601",
        "ranks of one job did not do the same: other compiles, graphs, collectives, or another "
        "cache",
        "the first difference and its causes are reported; give all ranks inputs of the same kind "
        "and one cache",
    )
)
def divergences(facts: Facts) -> list[Event]:
    """Return an event for each group of ranks that did otherwise than most."""
    story = {id(one.compiled): one for one in facts.recompiles}
    return [_event(one, story, facts.session) for one in facts.ranks.divergences]


_APART: Final = {"diverged": "TC602", "waits": "TC603"}


@finding(
    Code(
        "TC602",
        "ranks of a running job waited for different collectives (`TC_RANK_CHECK`)",
        "make all ranks take the same way through compiled functions: the cause names the first "
        "decision that differs ([ranks](solve/ranks.md))",
        "error",
    ),
    order=Order.FAILURES,
)
def apart(facts: Facts) -> list[Event]:
    """Return what the guard over ranks reported while the job ran, once a pair of lines."""
    return _apart(facts, "diverged")


@finding(
    Code(
        "TC603",
        "a collective waited long for a rank that was late (`TC_RANK_CHECK`)",
        "the title says what that rank did meanwhile; compile before the job, or share the cache",
    ),
    order=Order.TIME,
)
def late(facts: Facts) -> list[Event]:
    """Return where ranks waited longer than the limit for one that came late."""
    return _apart(facts, "waits")


def _apart(facts: Facts, kind: str) -> list[Event]:
    found: dict[tuple[str, ...], Event] = {}
    for compiled in all_compiles(facts.session):
        for note in compiled.noted("tc_ranks"):
            if note.data.get("kind") == kind:
                one = _apart_event(compiled, note, kind)
                lines = (str(note.data.get(name)) for name in ("file", "line"))
                others = (str(note.data.get(name)) for name in ("other_file", "other_line"))
                found.setdefault(tuple(sorted((":".join(lines), ":".join(others)))), one)
    return list(found.values())


def _apart_event(compiled: Compile, note: Note, kind: str) -> Event:
    data = note.data
    rank, other = data.get("rank"), data.get("other")
    verb = "diverged" if kind == "diverged" else f"met late: rank {rank} waited"
    cause = str(data.get("cause") or "")
    fixes = [FIXES_APART[kind]]
    if not cause and kind == "diverged":
        fixes.append("look at branches on the rank or on data outside of compiled functions")
    return Event(
        code=_APART[kind],
        title=f"ranks {rank} and {other} {verb} at {data.get('what')}",
        why=str(data.get("message") or "") + (f"; {cause}" if cause and kind == "waits" else ""),
        fix=tuple(fixes),
        where=Where(
            str(data.get("file") or ""),
            line_number(data.get("line")),
            function=str(data.get("function") or ""),
        ),
        reason=str(data.get("what") or ""),
        compiled=compiled,
        place=note.place,
        time=note.time,
        artifact=note.artifact,
        detail=cause,
    )


FIXES_APART: Final = {
    "diverged": "make the decision that differs the same on all ranks, before the function",
    "waits": "let ranks share one cache folder (TC_CACHE_DIR), or run one step before the job",
}


#: how many inputs that differ are named
_MOST_NAMED: Final = 3


def _unlike(one: Divergence, session: Session) -> str:
    """Return which inputs of two ranks differ where they captured different graphs, with values."""
    if one.of_most is None or one.of_group is None or one.of_group.kind != "graph":
        return ""
    most, group = (guard_values(session, of.compiled) for of in (one.of_most, one.of_group))
    named = [
        f"{source} is {plain(most[source])} on {one.most.name}, {plain(value)} on {one.group.name}"
        for source, value in group.items()
        if source in most and not fits(most[source], value) and not fits(value, most[source])
    ]
    return "; ".join(named[:_MOST_NAMED])


def _event(one: Divergence, story: dict[int, Recompile], session: Session) -> Event:
    step = one.of_group or one.of_most
    assert step is not None
    compiled = step.compiled
    fixes: tuple[str, ...] = _FIXES[step.kind]
    unlike = _unlike(one, session)
    again = story.get(id(compiled))
    causes = again.causes if step.kind == "compile" and again else ()
    if causes and again is not None:
        at = (causes[0].file or compiled.file, causes[0].line or compiled.line)
        named_so = compiled.alias or compiled.function
        lead = as_passed(again, causes[0])
        known = remedy(lead, session.producer, named_so, at=at)[2]
        # A graph for each value is nothing that ranks can have.
        fixes = (*[text for text in known if recipe_of(text) not in (FEW, SIDES)][:1], *fixes)
    return Event(
        code="TC601",
        title=_title(one, step),
        why="; ".join(filter(None, (unlike, *one.chain))),
        fix=fixes,
        where=here(compiled),
        reason=f"{step.kind} {step.words}",
        compiled=compiled,
        artifact=step.artifact,
        place=compiled.artifacts[max(step.artifact, 0)].place,
        detail=one.chain[0],
        causes=tuple(causes),
        # the ranks that compile nothing wait for this one
        seconds=compiled.seconds if step.kind == "compile" and one.of_most is None else 0.0,
    )


def _title(one: Divergence, step: Step) -> str:
    if one.of_most is None or one.of_group is None:
        has, lacks = (one.group, one.most) if one.of_most is None else (one.most, one.group)
        return f"{has.name} {step.words}, {lacks.name} did not"
    return f"{one.group.name} {_VERBS[step.kind]} than {one.most.name}"
