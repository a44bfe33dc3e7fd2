"""A diagnosis goes in; functions, statuses and shares of time, as shown, come out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sized
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from tc.trace import words
from tc.trace.compiles import Compile, by_function
from tc.trace.findings import Diagnosis, Finding
from tc.trace.places import file_name
from tc.trace.session import all_compiles
from tc.trace.timing import PHASES, phase_of

# From worst to best: what a function is called whose compiles fared differently.
WORST: Final = ("error", "refused", "break", "recompile", "skipped", "ok", "cached")


@dataclass(frozen=True, slots=True)
class Function:
    """One function of the user's and its compiles in order, those that were refused included."""

    key: tuple[str, str, int]
    compiles: tuple[Compile, ...]
    refused: tuple[Compile, ...]
    status: str

    @property
    def title(self) -> str:
        """Its name as a person would say it."""
        return self.compiles[0].title

    @property
    def place(self) -> tuple[str, int]:
        """File and line to show."""
        return self.compiles[0].home

    @property
    def where(self) -> str:
        """`model.py:6`."""
        return short_place(*self.place)

    @property
    def seconds(self) -> float:
        """Wall seconds of all its compiles."""
        return sum(compiled.seconds for compiled in self.compiles)

    @property
    def phases(self) -> dict[str, float]:
        """Wall seconds by phase."""
        return phases_of(self.compiles)


class Model:
    """What the screens show: a diagnosis, of all ranks or of one.

    Attributes:
        partial: only the beginning of the trace has been read.
        waiting: why there is no diagnosis, in words.
    """

    def __init__(
        self,
        diagnosis: Diagnosis | None = None,
        *,
        lane: int | None = None,
        partial: bool = False,
        waiting: str = "",
    ) -> None:
        self.diagnosis = diagnosis
        self.partial = partial
        self.waiting = waiting
        self.lanes = (
            {} if diagnosis is None else {one.index: one.label for one in diagnosis.session.lanes}
        )
        self.lane = lane if lane in self.lanes else None

    @property
    def lane_label(self) -> str:
        """The rank shown, `all 8 ranks`, or nothing if there is only one."""
        if len(self.lanes) < 2:
            return ""
        if self.lane is not None:
            return f"{self.lanes[self.lane]} of {len(self.lanes)}"
        ranks = all(name.startswith("rank") for name in self.lanes.values())
        return f"all {count(self.lanes, 'rank' if ranks else 'process')}"

    @cached_property
    def compiles(self) -> list[Compile]:
        """Compiles of the ranks shown."""
        return [one for one in self.everything if one.started]

    @cached_property
    def everything(self) -> list[Compile]:
        """Compiles, and then what else left artifacts: refused ones, records of no compile."""
        if self.diagnosis is None:
            return []
        session = self.diagnosis.session
        return [one for one in all_compiles(session) if self.lane in (None, one.lane.index)]

    @cached_property
    def by_slug(self) -> dict[str, Compile]:
        """Compiles by their name in links, `0/2` or `1:0/2`."""
        return {one.slug: one for one in self.everything}

    @cached_property
    def findings(self) -> list[Finding]:
        """Findings of the ranks shown; damage of the trace concerns all."""
        if self.diagnosis is None:
            return []
        label = self.lanes.get(self.lane) if self.lane is not None else None
        return [
            one
            for one in self.diagnosis.findings
            if label is None or any(seen.lane in (label, "") for seen in one.occurrences)
        ]

    @cached_property
    def statuses(self) -> dict[int, str]:
        """What became of each compile, by its identity, the weightiest word last."""
        found: dict[int, str] = {}
        if self.diagnosis is None:
            return found
        for one in self.everything:
            found[id(one)] = "cached" if one.cache == "hit" else "ok"
        for recompile in self.diagnosis.recompiles:
            found[id(recompile.compiled)] = "recompile"
        for event in self.diagnosis.breaks:
            found[id(event.compiled)] = "break"
        for recompile in self.diagnosis.recompiles:
            if recompile.refused:
                found[id(recompile.compiled)] = "refused"
        for event in self.diagnosis.skips:
            found[id(event.compiled)] = "skipped"
        for event in self.diagnosis.failures:
            found[id(event.compiled)] = "error"
        return found

    @cached_property
    def functions(self) -> list[Function]:
        """Functions, the one that cost most first."""
        refused: dict[tuple[int, str], list[Compile]] = {}
        for recompile in self.diagnosis.recompiles if self.diagnosis else ():
            if recompile.refused:
                key = recompile.compiled.lane.index, recompile.compiled.frame_id
                refused.setdefault(key, []).append(recompile.compiled)
        found = []
        for name, compiles in by_function(self.compiles).items():
            frames = {(one.lane.index, one.frame_id): None for one in compiles}
            rejected = [one for frame in frames for one in refused.get(frame, ())]
            words = {self.statuses[id(one)] for one in (*compiles, *rejected)}
            worst = next((word for word in WORST if word in words), "ok")
            found.append(Function(name, tuple(compiles), tuple(rejected), worst))
        return sorted(found, key=lambda one: -one.seconds)

    @cached_property
    def seconds(self) -> float:
        """Wall seconds of all compiles shown."""
        return sum(one.seconds for one in self.compiles)


def phases_of(compiles: Iterable[Compile]) -> dict[str, float]:
    """Wall seconds by phase over these compiles, in the order of the pipeline."""
    total: Counter[str] = Counter()
    for compiled in compiles:
        total.update(compiled.phases)
    return {phase: total[phase] for phase in PHASES if total[phase]}


def steps_of(compiles: Iterable[Compile], phase: str = "") -> list[tuple[str, float]]:
    """Wall seconds by step, of one phase or of all, longest first."""
    total: Counter[str] = Counter()
    for compiled in compiles:
        for name, seconds in compiled.steps.items():
            if not phase or phase_of(name) == phase:
                total[name] += seconds  # type: ignore[assignment]
    return sorted(total.items(), key=lambda row: (-row[1], row[0]))


def count(things: Sized, noun: str) -> str:
    """`1 compile`, `2 compiles`."""
    return words.count(len(things), noun)


def short_place(file: str, line: int) -> str:
    """`model.py:6`: the folder left out."""
    name = file_name(file)
    if not name:
        return ""
    return f"{name}:{line}" if line else name


def size_of(count: int) -> str:
    """Write a number of bytes as people read it."""
    if count < 1000:
        return f"{count} B"
    for unit in ("kB", "MB"):
        count_of = count / 1000
        if count_of < 1000 or unit == "MB":
            return f"{count_of:.1f} {unit}" if count_of < 100 else f"{count_of:.0f} {unit}"
        count //= 1000
    return f"{count} MB"


def version_of(diagnosis: Diagnosis) -> str:
    """Name what wrote the trace."""
    session = diagnosis.session
    known = session.environment
    torch = known.get("pytorch_version") or known.get("torch_version") or known.get("torch") or ""
    torch = torch.partition("+")[0]
    if session.producer == "tc":
        version = known.get("tc_version") or known.get("tc") or ""
        return f"tc {version}".strip() + (f", torch {torch}" if torch else "")
    return f"torch {torch}" if torch else "unknown version of torch"


def bar(shares: dict[str, float], width: int, whole: float) -> list[tuple[str, int]]:
    """Divide a bar of `width` cells for `whole` among shares; what is lost by rounding is kept."""
    if whole <= 0 or width <= 0:
        return []
    cells, run, used = [], 0.0, 0
    for name, share in shares.items():
        run += share
        upto = round(run / whole * width)
        cells.append((name, upto - used))
        used = upto
    return [(name, count) for name, count in cells if count > 0]
