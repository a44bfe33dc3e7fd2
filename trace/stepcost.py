"""What was measured of running programs goes in (``tc_profile``); what a step costs comes out.

A row is a generated program, or what passed between two of them: guards, dispatch, autograd's own
work, and Python. Each step of a program gets its share of what the machine can do, after the
roofline model (Williams, Waterman, Patterson, "Roofline", CACM 52(4), 2009): bytes a second against
those that memory gives, operations a second against those that a product of matrices reaches, both
measured on the machine that ran.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from tc.trace.ids import is_resumed, plain_function
from tc.trace.parsed import real, whole

#: seconds below which a step is as short as the call of it from Python
SHORT: Final = 5e-6
#: share of a limit from which on a step counts as bound by it
BOUND: Final = 0.5
#: share of the bytes moved that are in pages fresh from the system, from which on these are its
#: limit: the system takes longer to map and clear a page than a kernel to fill it
MAPPED: Final = 1 / 8
#: a program is slower than eager if it takes so many times eager's time: less may be noise
SLOWER: Final = 1.1

MEMORY, FRESH, ARITHMETIC, CALLS, PYTHON, NEITHER, UNKNOWN, EAGER = (
    "memory", "fresh memory", "arithmetic", "calls", "Python", "neither", "unknown", "eager",
)  # fmt: skip
VERDICTS: Final = {
    MEMORY: "bound by memory",
    FRESH: "bound by memory, which the system gives again in each call",
    ARITHMETIC: "bound by arithmetic",
    CALLS: "bound by calls: steps as short as calling them",
    PYTHON: "bound by its wrapper, in Python",
    NEITHER: "below half of what memory and arithmetic give",
    UNKNOWN: "bytes and operations unknown",
    EAGER: "slower than eager",
    "": "called too seldom to be measured step by step",
}
_WIDE: Final = 24  # characters of the longest bar
_NO_LINE: Final = "guards, dispatch, wrappers, and what lies between calls"
#: the line in the name of a function that continues after a graph break
_RESUMED: Final = re.compile(r"resume_in_.*_at_(\d+)")


@dataclass(frozen=True, slots=True)
class Step:
    """One kernel or call of a program.

    Attributes:
        places: the user's lines (``file:line``) it computes.
        seconds: in one call of the program.
        limit: which limit it is nearest to, or why there is none: a key of `VERDICTS`.
        reached: its share of that limit; 0 where there is none.
        moved: bytes in one call; -1 unknown.
        copies: it computes nothing: it only writes values in another order or to another place.
    """

    name: str
    places: tuple[str, ...]
    seconds: float
    limit: str
    reached: float
    moved: int = -1
    copies: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """A program, or what passed before it.

    Attributes:
        label: what it is called.
        compile: whose program it is, or comes next; ``graph``: which of its programs.
        function: its name in the record; resume functions have one of their own.
        between: what passed, not the program itself.
        calls, seconds: how often, and all together; ``usual``: of one call, without first calls
            and without what other processes were in the way; 0 unknown.
        verdict: of a program, a key of `VERDICTS`.
        steps: of a program, those that take longest first.
        after: of what passed between programs, compile and graph of the one before.
        guards: of what passed between programs, seconds of it that checking guards takes: no more
            than a check took when it was measured, nor than what usually passes there.
        checked: the number of guards; ``handed`` is that of the tensors given to the program,
            each of which is guarded.
        around: seconds of it in which a call of the compiled graph passes its inputs and results
            over: all of that call except the program.
        broke: of what passed at a graph break, the user's line that broke, ``file:line``.
        eager, instead: of a program, the seconds of eager in its place, and its own in those calls;
            0 where nobody asked for that.
    """

    label: str
    compile: str
    graph: str
    function: str
    file: str
    line: int
    between: bool
    calls: int
    seconds: float
    verdict: str = ""
    steps: tuple[Step, ...] = ()
    usual: float = 0.0
    after: tuple[str, str] = ("", "")
    guards: float = 0.0
    checked: int = 0
    handed: int = 0
    around: float = 0.0
    broke: str = ""
    eager: float = 0.0
    instead: float = 0.0

    @property
    def each(self) -> float:
        """Seconds of a usual call."""
        return self.usual or self.seconds / max(self.calls, 1)

    @property
    def steady(self) -> float:
        """Seconds of all calls, if each had been a usual one: cost of a step × steps."""
        return self.each * self.calls


@dataclass(frozen=True, slots=True)
class StepCost:
    """Where the time of a process went while compiled code ran, and between.

    Attributes:
        rows: those that take most of a step first.
        bandwidth, arithmetic: of the machine, in bytes and operations a second; 0 unknown.
    """

    rows: tuple[Row, ...]
    bandwidth: float
    arithmetic: float

    @property
    def seconds(self) -> float:
        """Return the time of all rows, each of their calls as a usual one: see `Row.steady`."""
        return sum(row.steady for row in self.rows)

    @property
    def count(self) -> int:
        """Return the number of steps: the calls of the function that most of the time goes to.

        A function is a step if it is called from outside: not one that continues after a break.
        """
        calls: Counter[tuple[str, str]] = Counter()
        spent: Counter[tuple[str, str]] = Counter()
        for row in self.rows:
            key = row.file, plain_function(row.function)
            spent[key] += row.steady  # type: ignore[assignment]
            if not row.between and row.graph != "backward" and not is_resumed(row.function):
                calls[key] += row.calls
        return calls[max(calls, key=lambda key: spent[key])] if calls else 0

    def lines(self) -> list[tuple[str, float]]:
        """Return the seconds of the user's lines; what computes several is shared out evenly.

        A line that breaks the graph has the time that passes there, too. Steps are timed in few
        calls and the program in all: those that come out longer together are shortened to it.
        """
        spent: defaultdict[str, float] = defaultdict(float)
        for row in self.rows:
            if row.broke:
                spent[row.broke] += row.steady
            all_steps = sum(step.seconds for step in row.steps) * row.calls
            times = row.calls * min(1.0, row.steady / (all_steps or 1.0))
            for step in row.steps:
                for place in step.places:
                    spent[place] += step.seconds * times / len(step.places)
        return sorted(spent.items(), key=lambda pair: -pair[1])

    def with_breaks(self, places: Mapping[str, str]) -> StepCost:
        """Return the same with `Row.broke`.

        Args:
            places: compile -> the user's line at which its graph breaks.
        """
        rows = list(self.rows)
        crossed = set()
        for at, row in enumerate(rows):
            place = places.get(row.after[0], "")
            goes_on = row.between and row.graph != "backward" and is_resumed(row.function)
            if place and goes_on:
                rows[at] = replace(row, broke=place)
                crossed.add((row.compile, row.after[0]))
        for at, row in enumerate(rows):  # backward passes the same place, the other way round
            if row.graph == row.after[1] == "backward" and (row.after[0], row.compile) in crossed:
                rows[at] = replace(row, broke=places[row.compile])
        return replace(self, rows=tuple(rows))

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "seconds": round(self.seconds, 9),
            "count": self.count,
            "bandwidth": self.bandwidth,
            "arithmetic": self.arithmetic,
            "rows": [
                {
                    "label": row.label,
                    "compile": row.compile,
                    "graph": row.graph,
                    "between": row.between,
                    "calls": row.calls,
                    "seconds": round(row.seconds, 9),
                    "steady": round(row.steady, 9),
                    "each": round(row.each, 9),
                    "guards": round(row.guards, 9),
                    "around": round(row.around, 9),
                    "broke": row.broke,
                    "eager": round(row.eager, 9),
                    "verdict": row.verdict,
                    "steps": [
                        {
                            "name": step.name,
                            "places": list(step.places),
                            "seconds": round(step.seconds, 9),
                            "limit": step.limit,
                            "reached": round(step.reached, 4),
                        }
                        for step in row.steps
                    ],
                }
                for row in self.rows
            ],
            "lines": [[place, round(seconds, 9)] for place, seconds in self.lines()],
        }


def merged(
    old: Mapping[str, Any], profile: Mapping[str, Any], name: Callable[[str], str]
) -> dict[str, Any]:
    """Return a record of ``tc_profile`` together with the earlier ones of its process.

    After a reset the programs of before are in no record any more, and others have their ids.

    Args:
        old: the earlier ones; empty for the first.
        name: of a compile, from the id in the record.
    """
    programs = {(one["compile"], one["graph"]): one for one in old.get("programs", ())}
    for one in profile["programs"]:
        gaps = [{**gap, "after": name(str(gap["after"]))} for gap in one["gaps"]]
        row = {**one, "compile": name(str(one["compile"])), "gaps": gaps}
        programs[row["compile"], row["graph"]] = row
    return {**profile, "programs": list(programs.values())}


def step_cost(profile: Mapping[str, Any]) -> StepCost:
    """Return what a record of ``tc_profile`` holds."""
    bandwidth, arithmetic = real(profile["bandwidth"]), real(profile["arithmetic"])
    programs = profile["programs"]
    labels = {(one["compile"], one["graph"]): _label(one) for one in programs}
    rows = []
    for one in programs:
        steps = tuple(_step(step, bandwidth, arithmetic) for step in one["steps"])
        steps = tuple(sorted(steps, key=lambda step: -step.seconds))
        label = labels[one["compile"], one["graph"]]
        place = (
            str(one["compile"]), str(one["graph"]),
            str(one["function"]), str(one["file"]), whole(one["line"]),
        )  # fmt: skip
        calls, seconds = whole(one["calls"]), real(one["seconds"])
        # What newer versions of tc record is missing in the logs of older ones.
        usual, eager, instead = (real(one.get(key, 0)) for key in ("usual", "eager", "instead"))
        verdict = EAGER if eager and instead > SLOWER * eager else _verdict(steps)
        around = max(real(one.get("whole", 0)) - usual, 0.0) if usual else 0.0
        known = Row(label, *place, False, calls, seconds, verdict, steps, usual)
        rows.append(replace(known, eager=eager, instead=instead))
        for gap in one["gaps"]:
            before = labels.get((gap["after"], gap["graph"]), "another program")
            what = f"between calls of {label}" if before == label else f"{before} → {label}"
            times, seconds, usual = whole(gap["times"]), real(gap["seconds"]), gap.get("usual", 0)
            row = Row(
                what, *place, True, times, seconds, usual=real(usual),
                after=(str(gap["after"]), str(gap["graph"])), around=around * times,
                checked=whole(one.get("checked", 0)), handed=whole(one.get("handed", 0)),
            )  # fmt: skip
            # One check was measured, in any weather; what usually passes there was, in many calls.
            guards = min(real(one.get("guards", 0)) * times, row.steady)
            rows.append(replace(row, guards=guards))
    cost = StepCost(tuple(sorted(rows, key=lambda row: -row.steady)), bandwidth, arithmetic)
    return replace(cost, rows=tuple(row for row in cost.rows if not _once(row, cost.count)))


def _once(row: Row, steps: int) -> bool:
    """Whether a row is what passed one time between two of many steps.

    There a program was compiled, or another part of the job began: no step takes that long.
    """
    return row.between and row.calls == 1 < steps and not is_resumed(row.function)


def _label(program: Mapping[str, Any]) -> str:
    function = plain_function(str(program["function"])) or "a graph"
    if resumed := _RESUMED.search(str(program["function"])):
        function += f", resumed at {resumed[1]},"
    graph = "" if program["graph"] in ("", "inference") else f" {program['graph']}"
    return f"{function}{graph} [{program['compile']}]"


def _step(step: Mapping[str, Any], bandwidth: float, arithmetic: float) -> Step:
    seconds = real(step["seconds"])
    busy = real(step.get("busy", 0)) or seconds  # other processes are no limit of the step
    limit, reached = _limit(step, busy, bandwidth, arithmetic)
    places, copies = tuple(map(str, step["places"])), bool(step.get("copies"))
    return Step(str(step["name"]), places, seconds, limit, reached, whole(step["moved"]), copies)


def _limit(
    step: Mapping[str, Any], seconds: float, bandwidth: float, arithmetic: float
) -> tuple[str, float]:
    if not step["line"]:
        return PYTHON, 0.0
    moved, operations = whole(step["moved"]), whole(step["operations"])
    if moved < 0 or not (bandwidth and arithmetic and seconds):
        return UNKNOWN, 0.0
    if seconds < SHORT:
        return CALLS, 0.0
    if moved and whole(step.get("fresh", 0)) >= MAPPED * moved:
        return FRESH, 0.0
    shares = {
        MEMORY: moved / seconds / bandwidth,
        ARITHMETIC: max(operations, 0) / seconds / arithmetic,
    }
    nearest = max(shares, key=shares.__getitem__)
    return nearest, shares[nearest]


def _verdict(steps: Iterable[Step]) -> str:
    """Return what most of a program's time is bound by."""
    spent: defaultdict[str, float] = defaultdict(float)
    for step in steps:
        reached = step.limit not in (MEMORY, ARITHMETIC) or step.reached >= BOUND
        spent[step.limit if reached else NEITHER] += step.seconds
    return max(spent, key=lambda limit: spent[limit]) if spent else ""


def table(cost: StepCost, rows: int = 8, steps: int = 3) -> list[str]:
    """Return what takes most time as lines of text, the first of them a title.

    Args:
        rows, steps: how many rows, and how many steps of each.
    """
    machine = ""
    if cost.bandwidth:
        machine = f"; this machine's memory gives {cost.bandwidth / 1e9:.1f} GB/s, "
        machine += f"products {cost.arithmetic / 1e9:.0f} GFLOP/s"
    each = f"{span(cost.seconds / cost.count)} a step, {cost.count} steps: " if cost.count else ""
    lines = [
        f"step cost: {each}{span(cost.seconds)} in compiled programs and between them{machine}"
    ]
    for row in cost.rows[:rows]:
        share = 100 * row.steady / (cost.seconds or 1)
        head = f"    {share:3.0f} %  {span(row.each):>9}  ×{row.calls:<6} "
        verdict = _verdict_text(row)
        lines.append(f"{head}{row.label}: {verdict}")
        lines += [f"{'':13}{_step_text(step)}" for step in _long(row.steps, steps)]
    if len(cost.rows) > rows:
        lines.append(f"    … and {len(cost.rows) - rows} more")
    return [*lines, *_flame(cost, rows)]


def _flame(cost: StepCost, most: int) -> list[str]:
    """Return the user's lines as bars, as wide as their shares of a step."""
    known = cost.lines()
    if not known or not cost.seconds:
        return []
    broke = {row.broke for row in cost.rows}
    rows = ["  by your lines, ↯ where the graph breaks:"]
    for place, seconds in known[:most]:
        share = seconds / cost.seconds
        bar = "█" * max(round(_WIDE * share), 1)
        mark = "↯" if place in broke else " "
        each = span(seconds / cost.count) if cost.count else span(seconds)
        rows.append(f"    {bar:<{_WIDE}} {100 * share:3.0f} %  {each:>9} {mark} {place}")
    rest = cost.seconds - sum(seconds for _, seconds in known)
    share = rest / cost.seconds
    bar = "█" * round(_WIDE * max(share, 0.0))
    each = span(max(rest, 0.0) / (cost.count or 1))
    rows.append(f"    {bar:<{_WIDE}} {100 * share:3.0f} %  {each:>9}   on no line: {_NO_LINE}")
    return rows


def _verdict_text(row: Row) -> str:
    if not row.between:
        over = f", which takes {span(row.eager)}" if row.verdict == EAGER else ""
        return VERDICTS[row.verdict] + over
    guards = f" {span(row.guards / row.calls)}" if row.guards else ""
    around = f", inputs and results {span(row.around / row.calls)}" if row.around else ""
    broke = f"graph break at {row.broke}; " if row.broke else ""
    return f"{broke}guards{guards}{around}, dispatch, Python"


def _long(steps: Sequence[Step], most: int) -> Sequence[Step]:
    """The steps that make up the time: no more than `most`, and none below a twentieth of it."""
    total = sum(step.seconds for step in steps)
    return [step for step in steps[:most] if step.seconds >= total / 20]


def _step_text(step: Step) -> str:
    reached = f", {100 * step.reached:.0f} % of {step.limit}" if step.reached else ""
    where = f"  {step.places[0]}" if step.places else ""
    others = f" and {len(step.places) - 1} more" if len(step.places) > 1 else ""
    return f"{span(step.seconds):>9}  {step.name}{reached}{where}{others}"


def span(seconds: float) -> str:
    """Write a time down to microseconds: `1.20 s`, `3.40 ms`, `5.6 µs`."""
    for unit, factor in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= factor:
            return f"{seconds / factor:.2f} {unit}"
    return f"{seconds * 1e6:.1f} µs"
