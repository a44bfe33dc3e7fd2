"""The compiles of one function go in; a table of the inputs that changed between them comes out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tc.trace.compiles import Compile
from tc.trace.findings import Diagnosis
from tc.trace.findings.ledger import changing, held_values, named


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
    values = held_values(diagnosis.session, rows, story)
    columns = changing(rows, values, story)
    return {
        "columns": columns,
        "rows": [
            {
                "compile": row.slug,
                "refused": not row.started,
                "of": story[id(row)].of if id(row) in story else "",
                "cells": [held.get(column, "") for column in columns],
                "changed": [
                    column in named(story, row) for column in columns
                ],
            }
            for row, held in zip(rows, values, strict=True)
        ],
    }  # fmt: skip
