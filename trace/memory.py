"""Predicted memory of programs (``tc_memory``) goes in; that of a step, and its holders, comes out.

A forward's results, and what it saves for backward, are alive when backward begins; backward frees
what was saved after its last use. Inputs of a step, such as parameters, are there before it and
after it, so they do not count: the figures are what a step takes beside them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tc.trace.parsed import whole
from tc.trace.words import count

#: the number of holders of a peak that are reported
_MOST: Final = 12
_UNITS: Final = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3))


@dataclass(frozen=True, slots=True)
class Moment:
    """One kernel or call: the bytes alive while it runs.

    Attributes:
        graph: ``inference``, ``forward`` or ``backward``.
        line: the user's, ``file:line``; empty if unknown.
    """

    graph: str
    step: str
    line: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Holder:
    """Memory alive at the peak: what filled it, and of which line of the user's."""

    name: str
    step: str
    line: str
    bytes: int


@dataclass(frozen=True, slots=True)
class StepMemory:
    """The memory of a compiled graph over a step, beside its inputs: predicted by its plan.

    Attributes:
        moments: in order; a backward's behind its forward's.
        holders: of the peak, the largest first.
    """

    moments: tuple[Moment, ...]
    holders: tuple[Holder, ...]

    @property
    def peak(self) -> int:
        """Bytes alive at the moment of most."""
        return max((one.bytes for one in self.moments), default=0)

    @property
    def at(self) -> Moment | None:
        """The first moment of the peak."""
        return next((one for one in self.moments if one.bytes == self.peak), None)

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "peak": self.peak,
            "moments": [[one.graph, one.step, one.line, one.bytes] for one in self.moments],
            "holders": [[one.name, one.step, one.line, one.bytes] for one in self.holders],
        }

    def text(self, most: int = _MOST) -> list[str]:
        """Return the peak and its holders as lines of text."""
        at = self.at
        if at is None:
            return []
        where = f" at {at.line}" if at.line else ""
        peak = f"{size_text(self.peak)} beside the inputs at the peak"
        lines = [f"{peak}, in {at.step} ({at.graph}){where}"]
        for one in self.holders[:most]:
            made = " · ".join(filter(None, (one.step, one.line)))
            lines.append(f"{size_text(one.bytes):>10}  {one.name}  {made}")
        if len(self.holders) > most:
            lines.append(f"{'':10}  … and {count(len(self.holders) - most, 'other')}")
        return lines


def size_text(number: float) -> str:
    """Write a number of bytes: `12.3 MB`."""
    for unit, size in _UNITS:
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return f"{number:.0f} bytes"


def step_memory(plans: Sequence[Mapping[str, Any]]) -> StepMemory:
    """Return the memory of one compile's programs, from their records.

    A program that was compiled more than once counts as it was made last.
    """
    newest = {str(one["graph"]): one for one in plans}
    forward, backward = newest.get("forward"), newest.get("backward")
    first = newest.get("inference") or forward
    moments, holders = list[Moment](), list[Holder]()
    if first is not None:
        moments = [Moment(*row) for row in _rows(first, list(map(whole, first["alive"])))]
        holders = [Holder(**one) for one in first["holders"]]
    if backward is not None:
        given = {str(one["name"]) for one in (forward or {}).get("inputs", ())}
        mine = [one for one in backward["inputs"] if str(one["name"]) not in given]
        # The results of forward are alive beside what it saved, as long as the user holds them.
        tangents = sum(whole(one["bytes"]) for one in mine if _is_tangent(one))
        base = (
            whole(forward["kept"]) + tangents if forward else sum(whole(o["bytes"]) for o in mine)
        )
        then = [Moment(*row) for row in _rows(backward, _with_saved(backward, base, mine))]
        peak = max((one.bytes for one in moments), default=-1)
        if then and max(one.bytes for one in then) > peak:
            at = max(range(len(then)), key=lambda n: then[n].bytes)
            holders = [Holder(**one) for one in backward["holders"]]
            holders += [
                Holder(str(one["name"]), "saved for backward", "", whole(one["bytes"]))
                for one in mine
                if whole(one["freed"]) < 0 or whole(one["freed"]) > at
            ]
        moments += then
    return StepMemory(tuple(moments), tuple(sorted(holders, key=lambda one: -one.bytes)))


def _is_tangent(given: Mapping[str, Any]) -> bool:
    return str(given["name"]).startswith("tangent")


def _with_saved(
    plan: Mapping[str, Any], base: int, saved: Sequence[Mapping[str, Any]]
) -> list[int]:
    """Return the bytes alive in each step of a backward, with what it was given until freed."""
    freed: defaultdict[int, int] = defaultdict(int)
    for one in saved:
        if whole(one["freed"]) >= 0:
            freed[whole(one["freed"])] += whole(one["bytes"])
    alive = []
    for at, own in enumerate(plan["alive"]):
        base -= freed.get(at, 0)
        alive.append(base + whole(own))
    return alive


def _rows(plan: Mapping[str, Any], alive: Sequence[int]) -> list[tuple[str, str, str, int]]:
    graph = str(plan["graph"])
    return [
        (graph, str(step), str(line), size)
        for step, line, size in zip(plan["steps"], plan["lines"], alive, strict=True)
    ]
