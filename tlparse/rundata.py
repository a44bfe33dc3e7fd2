"""What was measured, and planned, of running code goes in; what the page draws of it comes out."""

from __future__ import annotations

from typing import Any, Final

from tc.trace.compiles import Compile
from tc.trace.findings import Diagnosis
from tc.trace.memory import step_memory
from tc.trace.stepcost import VERDICTS

_MOST_MOMENTS: Final = 240


def running(diagnosis: Diagnosis) -> list[dict[str, Any]]:
    """Return what each process spent while compiled code ran.

    Rows have the pages of their compiles, and those at a graph break the id of its finding.
    """
    session = diagnosis.session
    slugs = {(one.lane.index, one.id): one.slug for one in session.compiles}
    breaks = {
        f"{place.file}:{place.line}": one.id
        for one in diagnosis.findings
        if one.kind.mark == "break"
        for place in (one.where, *one.stack)
    }
    found = []
    for lane, cost in session.step_costs:
        data = cost.to_json()
        for row in data["rows"]:
            row["slug"] = slugs.get((lane.index, row["compile"]), "")
            row["verdict"] = VERDICTS[row["verdict"]] if not row["between"] else ""
            row["finding"] = breaks.get(row["broke"], "")
        found.append({"lane": lane.label, **data})
    return found


def memory(compiled: Compile) -> dict[str, Any] | None:
    """Return the predicted memory of a compile's step, thinned out to what a page can draw."""
    notes = [note.data for note in compiled.noted("tc_memory") if isinstance(note.data, dict)]
    try:
        found = step_memory(notes)
    except (KeyError, TypeError, ValueError):  # of a log that was damaged
        return None
    if not found.moments:
        return None
    data = found.to_json()
    size = -(-len(found.moments) // _MOST_MOMENTS)  # of each few that follow, the largest
    rows = [data["moments"][at : at + size] for at in range(0, len(found.moments), size)]
    return {**data, "moments": [max(some, key=lambda row: row[3]) for some in rows]}
