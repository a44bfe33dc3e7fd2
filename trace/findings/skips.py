"""A session goes in; functions that were not captured, graphs that were not compiled, come out."""

from __future__ import annotations

from tc.trace.compiles import Compile
from tc.trace.findings.model import Event, Where
from tc.trace.session import Session, all_compiles

_TITLE = "{} runs in Python"


def skips(session: Session) -> list[Event]:
    """Return each skipped frame of the run."""
    return [event for one in all_compiles(session) for event in _of(one)]


def eager_graphs(session: Session) -> list[Event]:
    """Return each captured graph that runs op by op, without kernels of its own."""
    events = []
    for compiled in session.compiles:
        for note in compiled.noted("tc_graph_runs_eagerly"):
            events.append(
                Event(
                    code="TC701",
                    title=f"the graph of {compiled.title} is not compiled",
                    why=f"it was captured, but runs in eager mode: {note.data}",
                    fix=(),
                    where=Where(*compiled.home, function=compiled.alias or compiled.function),
                    reason=str(note.data),
                    compiled=compiled,
                    place=note.place,
                    time=note.time,
                    artifact=note.artifact,
                )
            )
    return events


def _of(compiled: Compile) -> list[Event]:
    events = []
    for note in compiled.noted("tc_frame_skipped"):
        if note.data.get("harmless"):
            continue
        function = str(note.data.get("function") or compiled.function)
        line = note.data.get("line")
        fix = str(note.data.get("fix") or "")
        reason = str(note.data.get("reason") or "")
        events.append(
            Event(
                code="TC190",
                title=_TITLE.format(function),
                why=reason,
                fix=(fix,) if fix else (),
                where=Where(
                    file=str(note.data.get("file") or compiled.file),
                    line=line if isinstance(line, int) else compiled.line,
                    function=function,
                ),
                reason=reason,
                compiled=compiled,
                place=note.place,
                time=note.time,
                artifact=note.artifact,
            )
        )
    if not events and compiled.skipped:
        events.append(
            Event(
                code="TC190",
                title=_TITLE.format(compiled.title),
                why=compiled.skipped.partition("\n")[0],
                fix=(),
                where=Where(*compiled.home, function=compiled.alias or compiled.function),
                reason=compiled.skipped.partition("\n")[0],
                compiled=compiled,
                evidence=compiled.skipped,
            )
        )
    return events
