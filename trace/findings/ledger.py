"""The ledger of a function: a row a compile, a column an input that ever changed.

In: the compiles of one function, and the recompiles of the run. Out: what each compile holds its
inputs to, and which of them it was made for. The report and the terminal explorer show the same
ledger.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tc.trace.compiles import Compile
from tc.trace.findings.model import Recompile
from tc.trace.findings.recompiles import fits, guard_values
from tc.trace.notebook import Shown, View
from tc.trace.session import Session

MOST_COLUMNS: Final = 12
_NAMED: Final = 1000  # an input that a recompile is put down to comes before one that only differs

_Story = Mapping[int, Recompile]
"""``id`` of a compile -> the recompile it was."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One compile, or one that was refused.

    Attributes:
        cells: what it holds the input of each column to; empty where that is not known.
        changed: the columns whose inputs made it necessary.
        again: it is a recompile, or was refused as one.
        of: the id of the earlier compile that it differs least from.
        refused: it was not compiled: the limit of recompiles was reached.
    """

    compiled: Compile
    cells: tuple[str, ...]
    changed: tuple[bool, ...]
    again: bool = False
    of: str = ""
    refused: bool = False


@dataclass(frozen=True, slots=True)
class Ledger(Shown):
    """Inputs that ever changed (none if nothing was compiled again), and a row a compile."""

    columns: tuple[str, ...]
    entries: tuple[Entry, ...]

    @property
    def recompiled(self) -> bool:
        """Whether there is anything to compare: a function that was compiled again."""
        return len(self.entries) > 1 and any(one.again for one in self.entries)

    def __str__(self) -> str:
        head = "  ".join(("compile", *self.columns))
        rows = ("  ".join((_name(one), *(cell or "-" for cell in one.cells)))
                for one in self.entries)  # fmt: skip
        return "\n".join((head, *rows))

    def as_view(self) -> View:
        """See `Shown`."""
        rows = [
            (_name(one), list(zip(one.cells, one.changed, strict=True))) for one in self.entries
        ]
        values = {"title": "ledger of a function", "columns": self.columns, "rows": rows}
        return View("ledger", str(self), values)

    def to_json(self) -> dict[str, Any]:
        """Return the ledger as plain values."""
        rows = [
            {
                "compile": one.compiled.slug,
                "refused": one.refused,
                "of": one.of,
                "cells": list(one.cells),
                "changed": list(one.changed),
            }
            for one in self.entries
        ]
        return {"columns": list(self.columns), "rows": rows}


def _name(entry: Entry) -> str:
    """`[0/2] refused`."""
    return f"[{entry.compiled.slug}]{' refused' if entry.refused else ''}"


def ledger(
    session: Session, recompiles: Sequence[Recompile], compiles: Sequence[Compile]
) -> Ledger:
    """Return the ledger of a function.

    Args:
        recompiles: those of the run; refused ones of the function's frames have rows, too.
        compiles: those of the function.
    """
    frames = {(one.lane.index, one.frame_id) for one in compiles}
    mine = {id(one) for one in compiles}
    story = {
        id(one.compiled): one
        for one in recompiles
        if id(one.compiled) in mine
        or (one.refused and (one.compiled.lane.index, one.compiled.frame_id) in frames)
    }
    refused = [one.compiled for one in story.values() if id(one.compiled) not in mine]
    rows = sorted([*compiles, *refused], key=lambda one: (one.lane.index, one.order))
    held = _held_values(session, rows, story) if story else [{} for _ in rows]
    columns = tuple(_changing(rows, held, story))
    entries = [
        Entry(
            compiled=row,
            cells=tuple(values.get(column, "") for column in columns),
            changed=tuple(column in _named(story, row) for column in columns),
            again=id(row) in story,
            of=story[id(row)].of if id(row) in story else "",
            refused=not row.started,
        )
        for row, values in zip(rows, held, strict=True)
    ]
    return Ledger(columns, tuple(entries))


def _held_values(session: Session, rows: Sequence[Compile], story: _Story) -> list[dict[str, str]]:
    """Return source -> value for each compile; causes fill in what no guard shows."""
    held = [_held(session, row, story.get(id(row))) for row in rows]
    position = {(row.lane.index, row.id): index for index, row in enumerate(rows)}
    for index, row in enumerate(rows):
        recompile = story.get(id(row))
        for cause in recompile.causes if recompile else ():
            if cause.new:
                held[index].setdefault(cause.source, cause.new)
            before = position.get((row.lane.index, recompile.of if recompile else ""))
            if before is not None and cause.old and cause.kind != "shape":
                held[before].setdefault(cause.source, cause.old)
    return held


def _held(session: Session, row: Compile, recompile: Recompile | None) -> dict[str, str]:
    if recompile is not None and recompile.values:
        return dict(recompile.values)
    return dict(guard_values(session, row))


def _named(story: _Story, row: Compile) -> set[str]:
    """Return the inputs that a compile is attributed to."""
    recompile = story.get(id(row))
    return {cause.source for cause in recompile.causes} if recompile else set()


def _changing(rows: Sequence[Compile], held: Sequence[dict[str, str]], story: _Story) -> list[str]:
    """Return the inputs that ever changed, the likeliest cause first."""
    weight: Counter[str] = Counter()
    for row in rows:
        recompile = story.get(id(row))
        weight.update({cause.source: _NAMED for cause in recompile.causes} if recompile else {})
    for source in sorted({source for values in held for source in values}):
        seen = [values[source] for values in held if source in values]
        if any(not fits(value, seen[0]) for value in seen):
            weight[source] += 1
    return [source for source, _ in weight.most_common(MOST_COLUMNS)]
