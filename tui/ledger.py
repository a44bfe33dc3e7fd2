"""The compiles of one function go in; a table of the inputs that changed between them comes out."""

from __future__ import annotations

from dataclasses import dataclass

from tc.trace.compiles import Compile
from tc.trace.findings import Diagnosis
from tc.trace.findings.ledger import changing, held_values, named
from tc.tui.facts import Function


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
    held = held_values(diagnosis.session, rows, story) if story else [{} for _ in rows]
    columns = tuple(changing(rows, held, story))
    return Ledger(columns, tuple(
        Entry(
            compiled=row,
            cells=tuple(values.get(column, "") for column in columns),
            changed=tuple(column in named(story, row) for column in columns),
            of=story[id(row)].of if id(row) in story else "",
            refused=not row.started,
        )
        for row, values in zip(rows, held, strict=True)
    ))  # fmt: skip
