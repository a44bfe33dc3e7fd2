"""The compiles of one function go in; what each holds its inputs to, and what changed, come out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from tc.trace.compiles import Compile
from tc.trace.findings.recompiles import Recompile, fits, guard_values
from tc.trace.session import Session

MOST_COLUMNS: Final = 12
_NAMED: Final = 1000  # an input that a recompile is put down to comes before one that only differs

Story = Mapping[int, Recompile]
"""``id`` of a compile -> the recompile it was."""


def held_values(session: Session, rows: Sequence[Compile], story: Story) -> list[dict[str, str]]:
    """Return source -> value for each compile; causes fill in what no guard shows."""
    held = [_held(session, row, story.get(id(row))) for row in rows]
    position = {(row.lane.index, row.id): index for index, row in enumerate(rows)}
    for index, row in enumerate(rows):
        told = story.get(id(row))
        for cause in told.causes if told else ():
            if cause.new:
                held[index].setdefault(cause.source, cause.new)
            before = position.get((row.lane.index, told.of if told else ""))
            if before is not None and cause.old and cause.kind != "shape":
                held[before].setdefault(cause.source, cause.old)
    return held


def _held(session: Session, row: Compile, told: Recompile | None) -> dict[str, str]:
    if told is not None and told.values:
        return dict(told.values)
    return dict(guard_values(session, row))


def named(story: Story, row: Compile) -> set[str]:
    """Return the inputs that a compile is put down to."""
    told = story.get(id(row))
    return {cause.source for cause in told.causes} if told else set()


def changing(rows: Sequence[Compile], held: Sequence[dict[str, str]], story: Story) -> list[str]:
    """Return the inputs that ever changed, the most telling first."""
    weight: Counter[str] = Counter()
    for row in rows:
        told = story.get(id(row))
        weight.update({cause.source: _NAMED for cause in told.causes} if told else {})
    for source in sorted({source for values in held for source in values}):
        seen = [values[source] for values in held if source in values]
        if any(not fits(value, seen[0]) for value in seen):
            weight[source] += 1
    return [source for source, _ in weight.most_common(MOST_COLUMNS)]
