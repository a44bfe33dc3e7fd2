"""The text of a graph before each of its passes, from the text after all of them.

In: the record of a graph, and ``tc_pass`` records of the stages that changed it. Out: texts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def undone(lines: Sequence[str], ran: Mapping[str, Any]) -> list[str] | None:
    """Return the lines before a pass; None if they are not known.

    Args:
        lines: those after it.
        ran: one of ``passes`` of a ``tc_pass`` record.
    """
    return _replaced(lines, ran, "after", "added", "removed")


def done(lines: Sequence[str], ran: Mapping[str, Any]) -> list[str] | None:
    """Return the lines after a pass; None if they are not known.

    Args:
        lines: those before it.
        ran: one of ``passes`` of a ``tc_pass`` record.
    """
    return _replaced(lines, ran, "before", "removed", "added")


def _replaced(
    lines: Sequence[str], ran: Mapping[str, Any], size: str, out: str, into: str
) -> list[str] | None:
    """Replace the lines ``out`` of each edit by those ``into``; None where they are not there."""
    if ran["refused"]:
        return list(lines)
    if ran["left_out"] or len(lines) != ran[size]:
        return None
    result: list[str] = []
    at = grown = 0
    for edit in ran["edits"]:
        start = edit["line"] + (grown if out == "added" else 0)
        stop = start + len(edit[out])
        if list(lines[start:stop]) != list(edit[out]):
            return None
        result += [*lines[at:start], *edit[into]]
        at = stop
        grown += len(edit["added"]) - len(edit["removed"])
    return [*result, *lines[at:]]
