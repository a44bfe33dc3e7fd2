"""A diagnosis goes in; the compiles that the page shows in full come out: all of a small job, those
of a rank of each kind of a large one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tc.trace.compiles import Compile, Lane
from tc.trace.findings import Diagnosis
from tc.trace.session import all_compiles

MOST_LANES: Final = 16
_MOST_GROUPS: Final = 32


@dataclass(frozen=True, slots=True)
class Kept:
    """What is shown in full.

    Attributes:
        compiles: in the order of the session.
        lanes: their processes.
        left_out: how many processes are only counted.
    """

    compiles: tuple[Compile, ...]
    lanes: tuple[Lane, ...]
    left_out: int


def kept(diagnosis: Diagnosis) -> Kept:
    """Choose whose artifacts the page holds.

    Of more than `MOST_LANES` processes: the first, one of each group of ranks that did the same,
    and the one in which each cause was first seen.
    """
    session = diagnosis.session
    lanes = session.lanes
    everything = tuple(all_compiles(session))
    if len(lanes) <= MOST_LANES:
        return Kept(everything, tuple(lanes), 0)
    wanted = {lanes[0], *(one.lanes[0] for one in diagnosis.ranks.groups[:_MOST_GROUPS])}
    by_label = {lane.label: lane for lane in lanes}
    for finding in diagnosis.findings:
        first = finding.occurrences[0].lane if finding.occurrences else ""
        if first in by_label:
            wanted.add(by_label[first])
    for lane in lanes:
        if len(wanted) >= MOST_LANES:
            break
        wanted.add(lane)
    shown = tuple(lane for lane in lanes if lane in wanted)
    compiles = tuple(one for one in everything if one.lane in wanted)
    return Kept(compiles, shown, len(lanes) - len(shown))
