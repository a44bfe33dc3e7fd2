"""Events without the text of their line go in; they come out with it, where the trace holds it.

By the text of its line a cause keeps its id when lines are added above it, and differs from another
of its kind in the same function. Traces of tc hold the functions that a compile went through; the
line of an event may be in one that another compile went through.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from tc.trace.compiles import Compile
from tc.trace.findings.model import Event
from tc.trace.provenance import source_lines
from tc.trace.session import Session, all_compiles

_SOURCE: Final = "tc_source"
Lines = dict[tuple[str, int], str]
"""(file, line) -> its text."""


def quoted(session: Session, events: Sequence[Event]) -> list[Event]:
    """Return the events, each with the text of its line if any compile of the session has it."""
    lacking = [one for one in events if one.where.file and one.where.line and not one.where.source]
    wanted = {(one.where.file, one.where.line) for one in lacking}
    texts: Lines = {}
    for found in _records(session, [one.compiled for one in lacking]) if lacking else ():
        texts.update({place: text for place, text in found.items() if place in wanted})
        wanted -= texts.keys()
        if not wanted:
            break
    return [
        replace(one, where=replace(one.where, source=texts[one.where.file, one.where.line]))
        if not one.where.source and (one.where.file, one.where.line) in texts
        else one
        for one in events
    ]


def _records(session: Session, first: Sequence[Compile]) -> Iterator[Lines]:
    """Yield what each record of functions holds, those of the given compiles first, each once."""
    read: set[str] = set()
    for compiled in (*first, *all_compiles(session)):
        for one in compiled.artifacts:
            if one.name == _SOURCE and (text := session.text(one)) not in read:
                read.add(text)
                yield source_lines(text)
