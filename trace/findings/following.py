"""Findings go in; recompiles that only follow from a graph break come out behind it, naming it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from tc.trace.compiles import Compile
from tc.trace.decisions import lines_of_stores
from tc.trace.findings.model import Finding
from tc.trace.findings.rows import Facts
from tc.trace.ids import plain_function
from tc.trace.recipes import MEND_BREAK
from tc.trace.session import all_compiles
from tc.trace.words import count

_BREAK: Final = "break"
_BEFORE: Final = "before it"
Place = tuple[int, str, str, int]
"""(rank, file, function, line) where a compiled function continues, or is left."""


def behind_breaks(facts: Facts, findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings, each recompile that breaks alone lead to behind the first of these.

    Its only way out is to fix the breaks, whose ids the fix names: a function may have called one
    that breaks in several lines.
    """
    compiles = {one.slug: one for one in all_compiles(facts.session)}
    left: dict[Place, dict[str, Finding]] = {}
    for one in findings:
        if one.kind.mark == _BREAK and MEND_BREAK.text not in one.fix:
            for place in _left_at(one, compiles):
                left.setdefault(place, {})[one.id] = one
    named: dict[str, dict[str, Finding]] = {}
    for one in findings:
        if MEND_BREAK.text in one.fix:
            for place in _resumed_at(one, compiles):
                named.setdefault(one.id, {}).update(_passed_since(one, place, left))
    listed: dict[str, Finding] = {}
    for one in findings:
        if causes := named.get(one.id):
            said = MEND_BREAK.text.replace(_BEFORE, f"{_BEFORE}, {_all_of(list(causes))}", 1)
            if one.fix[0] == MEND_BREAK.text:
                listed.setdefault(*next(iter(causes.items())))
            one = replace(one, fix=tuple(said if x == MEND_BREAK.text else x for x in one.fix))
        listed.setdefault(one.id, one)
    return list(listed.values())


def _all_of(ids: Sequence[str]) -> str:
    """`A, B and C`; of many the first ones."""
    some = ids[:_NAMED]
    more = count(len(ids) - _NAMED, "other") if len(ids) > _NAMED else ""
    *first, last = (*some, more) if more else some
    return f"{', '.join(first)} and {last}" if first else last


_NAMED: Final = 3


def _behind(place: Place, left: Mapping[Place, Mapping[str, Finding]]) -> Mapping[str, Finding]:
    """Return the breaks behind which a function continues, by their ids.

    After a break in a loop it continues at the loop, or behind it: the break is the nearest one
    above in the function, or else the last.
    """
    if place in left:
        return left[place]
    *function, line = place
    lines = [at[-1] for at in left if [*at[:-1]] == function]
    above = [one for one in lines if one <= line]
    nearest = max(above or lines, default=None)
    return {} if nearest is None else left[place[0], place[1], place[2], nearest]


def _passed_since(
    one: Finding, place: Place, left: Mapping[Place, Mapping[str, Finding]]
) -> Mapping[str, Finding]:
    """Return the breaks that a variable of the function passes, from where it is set to a place.

    Where it is not known, or has no name, the nearest: a value may be made behind the others.
    """
    nearest = _behind(place, left)
    lane, file, function, line = place
    names = (_ROOT.match(cause.source) for cause in one.causes[:1])
    set_at = max((at for name in names if name for at in lines_of_stores(file, line, name[0])
                  if at <= line), default=0)  # fmt: skip
    if not set_at:
        return nearest
    passed = [at for at in left if at[:3] == (lane, file, function) and set_at <= at[3] <= line]
    return {**nearest, **{name: of for at in sorted(passed) for name, of in left[at].items()}}


_ROOT: Final = re.compile(r"[A-Za-z_]\w*")


def _left_at(one: Finding, compiles: Mapping[str, Compile]) -> Iterator[Place]:
    """Yield where a break leaves functions: the compiled one, and those that it had called."""
    for of in _compiles_of(one, compiles):
        for at in one.stack or (one.where,):
            name = plain_function(at.function).rpartition(".")[2]
            yield of.lane.index, at.file, name, at.line


def _resumed_at(one: Finding, compiles: Mapping[str, Compile]) -> Iterator[Place]:
    """Yield where the functions of a recompile continue after a break."""
    for of in _compiles_of(one, compiles):
        if of.line_of_resume:
            yield of.lane.index, of.file, plain_function(of.function), of.line_of_resume


def _compiles_of(one: Finding, compiles: Mapping[str, Compile]) -> Iterator[Compile]:
    found = (compiles.get(seen.compile) for seen in one.occurrences)
    return (of for of in found if of is not None)
