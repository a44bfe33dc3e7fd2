"""Events without the text of their line go in; they come out with it, where the trace holds it.

By the text of its line a cause keeps its id when lines are added above it, and differs from another
of its kind in the same function. Other events may quote the line, as may the printed graph of a
compile of PyTorch's. Traces of tc hold the functions that a compile went through; the line may be
in one that another compile went through.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from tc.trace.compiles import Compile
from tc.trace.findings.apart import last_name
from tc.trace.findings.model import Event, Where
from tc.trace.ids import plain_function
from tc.trace.provenance import source_lines
from tc.trace.session import Session, all_compiles

_SOURCE: Final = "tc_source"
_GRAPH: Final = "dynamo_output_graph"
_QUOTED: Final = re.compile(r"# File: (.+?):(\d+) in ([^,\n]*), code: (.*)")
Lines = dict[tuple[str, int], tuple[str, str]]
"""(file, line) -> its text, and the name of its function."""


def quoted(session: Session, events: Mapping[str, Sequence[Event]]) -> dict[str, list[Event]]:
    """Return the events, each with the text of its line if the trace has it."""
    each = [one for some in events.values() for one in some]
    lacking = [one for one in each if one.where.file and one.where.line and not one.where.source]
    texts = _texts(session, each, lacking) if lacking else {}
    return {
        name: [
            replace(one, where=_with(one.where, *texts[one.where.file, one.where.line]))
            if not one.where.source and (one.where.file, one.where.line) in texts
            else one
            for one in some
        ]
        for name, some in events.items()
    }


def _with(where: Where, text: str, function: str) -> Where:
    """Return a place with the text of its line, which may be in a function that was inlined."""
    same = last_name(plain_function(where.function)) == last_name(plain_function(function))
    return replace(where, source=text, function=where.function if same else function)


def _texts(session: Session, each: Iterable[Event], lacking: Sequence[Event]) -> Lines:
    wanted = {(one.where.file, one.where.line) for one in lacking}
    places = [place for one in each for place in (one.where, *one.stack) if place.source]
    texts = {(one.file, one.line): (one.source, one.function) for one in places
             if (one.file, one.line) in wanted}  # fmt: skip
    for found in _records(session, [one.compiled for one in lacking]):
        if wanted <= texts.keys():
            break
        texts = {place: text for place, text in found.items() if place in wanted} | texts
    return texts


def _records(session: Session, mine: Sequence[Compile]) -> Iterator[Lines]:
    """Yield what each record quotes, those of the given compiles first, each once."""
    read: set[str] = set()
    for number, compiled in enumerate((*mine, *all_compiles(session))):
        for one in compiled.artifacts:
            of_graph = one.name == _GRAPH and number < len(mine)
            if not of_graph and one.name != _SOURCE:
                continue
            text = session.text(one)
            if text not in read:
                read.add(text)
                yield _of_graph(text) if of_graph else source_lines(text)


def _of_graph(text: str) -> Lines:
    return {
        (file, int(line)): (code, function) for file, line, function, code in _QUOTED.findall(text)
    }
