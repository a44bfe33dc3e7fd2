"""The compiles of one function go in; a table of the inputs that changed between them comes out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tc.trace.compiles import Compile
from tc.trace.findings import Diagnosis
from tc.trace.findings.recompiles import Recompile, fits, guard_values
from tc.tui.facts import Function

MOST_COLUMNS: Final = 12
_NAMED: Final = 1000  # an input that a recompile is put down to comes before one that only differs


@dataclass(frozen=True, slots=True)
class Entry:
    """One compile: what it holds each input to, and which of them it was made for."""

    compiled: Compile
    cells: tuple[str, ...]
    changed: tuple[bool, ...]
    of: str = ""
    refused: bool = False


@dataclass(frozen=True, slots=True)
class Ledger:
    """Inputs that ever changed, and a row for each compile."""

    columns: tuple[str, ...]
    entries: tuple[Entry, ...]


def ledger(diagnosis: Diagnosis, function: Function) -> Ledger:
    """Make the ledger of a function; it has no columns if nothing changed."""
    rows = sorted(
        (*function.compiles, *function.refused), key=lambda one: (one.lane.index, one.order)
    )
    mine = {id(row) for row in rows}
    story = {id(one.compiled): one for one in diagnosis.recompiles if id(one.compiled) in mine}
    held = [_held(diagnosis, row, story) for row in rows] if story else [{} for _ in rows]
    _complete(rows, held, story)
    columns = _columns(rows, held, story)
    return Ledger(columns, tuple(
        Entry(
            compiled=row,
            cells=tuple(values.get(column, "") for column in columns),
            changed=tuple(column in _named(story, row) for column in columns),
            of=story[id(row)].of if id(row) in story else "",
            refused=not row.started,
        )
        for row, values in zip(rows, held, strict=True)
    ))  # fmt: skip


def _held(diagnosis: Diagnosis, row: Compile, story: Mapping[int, Recompile]) -> dict[str, str]:
    told = story.get(id(row))
    if told is not None and told.values:
        return dict(told.values)
    return guard_values(diagnosis.session, row)


def _named(story: Mapping[int, Recompile], row: Compile) -> set[str]:
    told = story.get(id(row))
    return {cause.source for cause in told.causes} if told else set()


def _complete(
    rows: Sequence[Compile], held: list[dict[str, str]], story: Mapping[int, Recompile]
) -> None:
    """Causes know old and new values that no guard shows."""
    position = {(row.lane.index, row.id): index for index, row in enumerate(rows)}
    for index, row in enumerate(rows):
        told = story.get(id(row))
        for cause in told.causes if told else ():
            if cause.new:
                held[index].setdefault(cause.source, cause.new)
            before = position.get((row.lane.index, told.of if told else ""))
            if before is not None and cause.old and cause.kind != "shape":
                held[before].setdefault(cause.source, cause.old)


def _columns(
    rows: Sequence[Compile], held: Sequence[dict[str, str]], story: Mapping[int, Recompile]
) -> tuple[str, ...]:
    weight: Counter[str] = Counter()
    for row in rows:
        weight.update(dict.fromkeys(_named(story, row), _NAMED))
    seen: dict[str, list[str]] = {}
    for values in held:
        for source, value in values.items():
            seen.setdefault(source, []).append(value)
    for source in sorted(seen):
        if any(not fits(value, seen[source][0]) for value in seen[source]):
            weight[source] += 1
    return tuple(source for source, _ in weight.most_common(MOST_COLUMNS))
