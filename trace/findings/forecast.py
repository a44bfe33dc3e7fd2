"""Recompiles of a function go in; how many would be left if inputs stopped changing comes out."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Final

from tc.trace.compiles import Compile
from tc.trace.findings.model import FREED, Finding, Recompile
from tc.trace.findings.recompiles import apart, fits, guard_values
from tc.trace.findings.rows import Facts
from tc.trace.ids import in_users_words
from tc.trace.session import Session
from tc.trace.words import grouped

Row = Mapping[str, str]
_MOST_TOGETHER: Final = 3
_MOST_TRIED: Final = 8
_RECOMPILED: Final = "TC201"


@dataclass(frozen=True, slots=True)
class Step:
    """Fix these inputs, on top of the steps before: `before` recompiles become `after`.

    `frees`: calls that reached the recompile limit, and ran in Python, would no longer.
    """

    sources: tuple[str, ...]
    before: int
    after: int
    frees: bool = False

    def __str__(self) -> str:
        freed = FREED if self.frees else ""
        names = in_users_words(grouped(self.sources))
        return f"{names}: {self.before} → {self.after}{freed}"


def with_forecasts(facts: Facts, findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings; those about recompiles with the recompiles that would be left."""
    of_slug = {one.compiled.slug: one.compiled for one in facts.recompiles}
    frames = {
        one.id: dict.fromkeys(
            (of_slug[seen.compile].lane.index, of_slug[seen.compile].frame_id)
            for seen in one.occurrences
        )
        for one in findings
        if one.code == _RECOMPILED
    }
    predictions = forecasts(facts.session, facts.recompiles, set().union(*frames.values()))
    return [
        _with(
            one, together([predictions[frame] for frame in frames[one.id] if frame in predictions])
        )
        if one.id in frames
        else one
        for one in findings
    ]


def _with(finding: Finding, plan: tuple[Step, ...]) -> Finding:
    replayed = bool(plan) and plan[0].sources == (finding.reason,)
    return replace(finding, forecast=tuple(map(str, plan)), replayed=replayed)


def forecasts(
    session: Session, found: Sequence[Recompile], wanted: Collection[tuple[int, str]]
) -> dict[tuple[int, str], tuple[Step, ...]]:
    """Return the steps that help most, for each wanted (lane, frame) that recompiled.

    The recorded guards are played through without the inputs in question. Where playing them
    through as they are does not give the recompiles that took place, nothing is predicted.
    """
    groups: dict[tuple[int, str], list[Recompile]] = {}
    for again in found:
        key = again.compiled.lane.index, again.compiled.frame_id
        if key in wanted:
            groups.setdefault(key, []).append(again)
    predictions = {}
    firsts: dict[tuple[int, str], Compile] = {}
    for one in session.compiles:
        firsts.setdefault((one.lane.index, one.frame_id), one)
    for key, group in groups.items():
        first = firsts.get(key)
        if first is None or all(one.refused for one in group):
            continue
        made = [one for one in group if not one.refused]
        rows = [guard_values(session, first), *(one.values for one in made)]
        steps = predict(
            rows,
            [cause.source for one in made for cause in one.causes],
            {cause.source for one in group if one.refused for cause in one.causes},
        )
        if steps:
            predictions[key] = steps
    return predictions


def together(plans: Sequence[tuple[Step, ...]]) -> tuple[Step, ...]:
    """Return the steps for a function whose code is compiled in several parts.

    Where the parts do not ask for the same steps, those of the part with most recompiles.
    """
    if len({tuple(step.sources for step in steps) for steps in plans}) != 1:
        return max(plans, key=lambda steps: steps[0].before, default=())
    return tuple(
        replace(
            steps[0],
            before=sum(step.before for step in steps),
            after=sum(step.after for step in steps),
            frees=all(step.frees for step in steps),
        )
        for steps in zip(*plans, strict=True)
    )


def predict(
    rows: Sequence[Row], changed: Sequence[str], refused: Collection[str] = ()
) -> tuple[Step, ...]:
    """Return the steps that help most with the compiles of one frame.

    Args:
        rows: what each compile held its inputs to, the first compile's first.
        changed: the inputs that recompiles name.
        refused: those that calls past the recompile limit name.
    """
    return _freed(plan(rows, list(dict.fromkeys(changed))), set(refused))


def _freed(steps: tuple[Step, ...], wanted: Collection[str]) -> tuple[Step, ...]:
    """Mark the step after which no input that a refused call had changed changes again."""
    fixed: set[str] = set()
    marked: list[Step] = []
    for step in steps:
        frees = bool(wanted) and not fixed.issuperset(wanted)
        fixed.update(step.sources)
        marked.append(replace(step, frees=frees and fixed.issuperset(wanted)))
    return tuple(marked)


def plan(rows: Sequence[Row], sources: Sequence[str]) -> tuple[Step, ...]:
    """Choose the inputs to fix, the one that helps most first.

    None if an input changed that no recorded guard holds: what it makes necessary cannot be played.
    """
    held = set().union(*rows)
    if any(one not in held and "dispatch keys" not in one for one in sources):
        return ()  # it would change still, and nothing shows when
    left = count(rows, ())
    if left != len(rows) - 1 or not all(rows):
        return ()
    steps: list[Step] = []
    fixed: set[str] = set()
    open_ = list(sources)
    while open_ and left:
        together = _best(rows, open_, fixed, left)
        after = count(rows, {*fixed, *together})
        if after == left:
            break
        steps.append(Step(together, left, after))
        fixed.update(together)
        open_ = [source for source in open_ if source not in fixed]
        left = after
    return tuple(steps)


def _best(
    rows: Sequence[Row], sources: Sequence[str], fixed: Collection[str], left: int
) -> tuple[str, ...]:
    """The fewest inputs that make a difference, those that make the largest one; else all."""
    for size in range(1, _MOST_TOGETHER + 1):
        choices = combinations(sources[:_MOST_TRIED], size)
        best = min(choices, key=lambda some: count(rows, {*fixed, *some}), default=())
        if best and count(rows, {*fixed, *best}) < left:
            return best
    return tuple(sources)


def count(rows: Sequence[Row], without: Collection[str]) -> int:
    """Count the recompiles that these inputs cause, were the given ones to fit always."""
    kept: list[Row] = []
    for row in rows:
        if not any(_serves(old, row, without) for old in kept):
            kept.append(row)
    return max(len(kept) - 1, 0)


def _serves(old: Row, new: Row, without: Collection[str]) -> bool:
    return all(
        not apart(source, was, new[source]) if source in without else fits(was, new[source])
        for source, was in old.items()
        if source in new
    )
