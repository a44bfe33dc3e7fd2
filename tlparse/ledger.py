"""The compiles of one function go in; a table of the inputs that changed between them comes out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from tc.trace.compiles import Compile
from tc.trace.findings import Diagnosis
from tc.trace.findings.recompiles import Recompile, fits, guard_values

_MOST_COLUMNS: Final = 12


def ledger(diagnosis: Diagnosis, compiles: Sequence[Compile]) -> dict[str, Any] | None:
    """Return columns (sources) and rows (compiles); None if nothing was compiled twice."""
    story = {id(one.compiled): one for one in diagnosis.recompiles}
    refused = [
        one.compiled
        for one in diagnosis.recompiles
        if one.refused
        and any(c.lane == one.compiled.lane and c.frame_id == one.compiled.frame_id
                for c in compiles)
    ]  # fmt: skip
    rows = sorted([*compiles, *refused], key=lambda c: (c.lane.index, c.order))
    if len(rows) < 2 or not any(id(row) in story for row in rows):
        return None
    values = [dict(_values(diagnosis, row, story.get(id(row)))) for row in rows]
    _fill_from_causes(rows, values, story)
    columns = _columns(rows, values, story)
    return {
        "columns": columns,
        "rows": [
            {
                "compile": row.slug,
                "refused": not row.started,
                "of": story[id(row)].of if id(row) in story else "",
                "cells": [held.get(column, "") for column in columns],
                "changed": [
                    any(c.source == column for c in story[id(row)].causes)
                    if id(row) in story else False
                    for column in columns
                ],
            }
            for row, held in zip(rows, values, strict=True)
        ],
    }  # fmt: skip


def _values(diagnosis: Diagnosis, row: Compile, told: Recompile | None) -> dict[str, str]:
    if told is not None and told.values:
        return dict(told.values)
    return guard_values(diagnosis.session, row)


def _fill_from_causes(
    rows: Sequence[Compile], values: list[dict[str, str]], story: dict[int, Recompile]
) -> None:
    """Causes know old and new values that no guard shows."""
    position = {(row.lane.index, row.id): index for index, row in enumerate(rows)}
    for index, row in enumerate(rows):
        told = story.get(id(row))
        for cause in told.causes if told else ():
            if cause.new:
                values[index].setdefault(cause.source, cause.new)
            before = position.get((row.lane.index, told.of if told else ""))
            if before is not None and cause.old and cause.kind != "shape":
                values[before].setdefault(cause.source, cause.old)


def _columns(
    rows: Sequence[Compile], values: Sequence[dict[str, str]], story: dict[int, Recompile]
) -> list[str]:
    weight: Counter[str] = Counter()
    for row in rows:
        told = story.get(id(row))
        weight.update({cause.source: 1000 for cause in told.causes} if told else {})
    for source in sorted({source for held in values for source in held}):
        seen = [held[source] for held in values if source in held]
        if any(not fits(a, b) for a in seen for b in seen[:1]):
            weight[source] += 1
    return [source for source, _ in weight.most_common(_MOST_COLUMNS)]
