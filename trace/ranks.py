"""A session of several ranks goes in; which ranks did the same, and where the others first did
otherwise and why, comes out."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import Any, Final

from tc.trace.compiles import Compile, Lane
from tc.trace.parsed import measured, parse_json
from tc.trace.plaintext import plain_code
from tc.trace.session import Session
from tc.trace.words import count

_DEVICE: Final = re.compile(r"\bcuda:\d+")
_GRAPH: Final = "dynamo_output_graph"
_ONLY_NAMED: Final = re.compile(r"^[^=]+ = [A-Za-z_]\w*(?:;.*)?\s*$")  # an input: `l_x_ = L_x_`
_SCHEDULE: Final = "inductor_collective_schedule"
_META: Final = "inductor_runtime_and_tensor_meta"
_CACHE: Final = re.compile(r"(\w+)_cache_(hit|miss|bypass)")
_BREAKS: Final = ("tc_graph_break", "dynamo_graph_break_reason")
_WAIT: Final = "wait_tensor"
_MOST_RUNS: Final = 4
#: What capture decides. A rank that finds in the cache what another has just compiled differs only
#: after that, so such a race is no news beside a compile that the other does not have.
_DECISIONS: Final = ("compile", "graph", "break")
_LOOKED: Final = {"hit": "hit", "miss": "missed", "bypass": "bypassed"}


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that a rank did; two ranks did the same if `digest` is the same.

    Attributes:
        kind: compile, break, graph, collectives, cache or failure.
        words: what it was, as a person says it: `compiled f [0/1]`.
        compiled, artifact: where to look; -1 if there is no artifact.
    """

    kind: str
    words: str
    digest: str
    compiled: Compile
    artifact: int = -1
    collectives: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Group:
    """Ranks that did the same things in the same order."""

    lanes: tuple[Lane, ...]
    steps: tuple[Step, ...]
    collectives: Mapping[str, int]

    @property
    def name(self) -> str:
        """`rank 3`, `ranks 0–2, 5`, `900 ranks (0–8, 10–18, …)`."""
        return names_of(self.lanes)

    @property
    def every_name(self) -> str:
        """The same, all of them listed."""
        return names_of(self.lanes, len(self.lanes))


@dataclass(frozen=True, slots=True)
class Divergence:
    """Where a group first does otherwise than most ranks do.

    Attributes:
        at: how many steps there are until then.
        of_most, of_group: the first step that differs; None: that side has no more steps.
            One that capture decides comes before one that a cache does.
        chain: from the cause to what follows from it, a sentence each.
    """

    most: Group
    group: Group
    at: int
    of_most: Step | None
    of_group: Step | None
    chain: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Ranks:
    """All ranks of a run: groups that did the same, the largest first, and what differs."""

    groups: tuple[Group, ...] = ()
    divergences: tuple[Divergence, ...] = ()


def compare_ranks(session: Session, causes: Mapping[int, str]) -> Ranks:
    """Compare the ranks of a run.

    Args:
        causes: for the id() of a compile that was a recompile, what had changed.
    """
    lanes = [lane for lane in session.lanes if lane.label.startswith("rank")]
    if len(lanes) < 2:
        return Ranks()
    compiles: dict[Lane, list[Compile]] = {lane: [] for lane in lanes}
    for one in session.compiles:
        if one.lane in compiles:
            compiles[one.lane].append(one)
    found: dict[tuple[str, ...], tuple[list[Lane], list[Step]]] = {}
    for lane, mine in compiles.items():
        steps = [step for one in mine for step in steps_of(session, one)]
        found.setdefault(tuple(step.digest for step in steps), ([], steps))[0].append(lane)
    groups = [Group(tuple(of), tuple(steps), _collectives(steps)) for of, steps in found.values()]
    groups.sort(key=lambda one: (-len(one.lanes), one.lanes))
    most = groups[0]
    return Ranks(tuple(groups), tuple(_diverge(most, one, causes) for one in groups[1:]))


def names_of(lanes: Sequence[Lane], most: int = _MOST_RUNS) -> str:
    """Name ranks, runs of numbers in short: `ranks 0–2, 5`; of many runs the first ones."""
    numbers = [int(lane.label.removeprefix("rank ")) for lane in lanes]
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    spans = [str(run[0]) if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs]
    if len(spans) > most:
        return f"{len(numbers)} ranks ({', '.join(spans[:2])}, …)"
    return f"{'rank' if len(numbers) == 1 else 'ranks'} {', '.join(spans)}"


# --------------------------------------------------------------------------------------- steps


def steps_of(session: Session, compiled: Compile) -> list[Step]:
    """Return what a compile did, as far as ranks have to agree on it, in order."""
    name = f"{compiled.title} [{compiled.id}]"
    # The log names the class of a method only where it got as far as its graph.
    steps = [_step("compile", f"compiled {name}", compiled.function.rpartition(".")[2], compiled)]
    for one in compiled.artifacts:
        at = one.number
        if one.name == _GRAPH:
            graph = _DEVICE.sub("cuda", plain_code(session.text(one)))
            rows = graph.split("\n")
            many = sum(" = " in row and not _ONLY_NAMED.match(row) for row in rows)
            words = f"captured a graph of {count(many, 'operation')}"
            steps.append(_step("graph", words, graph, compiled, at))
        elif one.name == _SCHEDULE:
            names = scheduled(session.text(one))
            counts = ", ".join(f"{n} {name}" for name, n in Counter(names).items()) or "none"
            step = _step("collectives", f"planned {counts}", " ".join(names), compiled, at)
            steps.append(replace(step, collectives=tuple(names)))
        elif match := _CACHE.fullmatch(one.name):
            words = f"{_LOOKED[match[2]]} the {match[1].replace('_', ' ')} cache"
            steps.append(_step("cache", words, words, compiled, at))
        elif one.name in _BREAKS:
            head = plain_code(session.text(one)).partition("\n")[0]
            steps.append(_step("break", "broke the graph", head, compiled, at))
    for note in compiled.noted("tc_cache"):
        had = note.data.get("hit") and not note.data.get("waited")  # a rank that waits is not ahead
        words = f"{_LOOKED['hit' if had else 'miss']} the cache"
        steps.append(_step("cache", words, words, compiled, note.artifact))
    if compiled.failure:
        kind = compiled.failure.type
        steps.append(_step("failure", f"failed to compile it: {kind}", kind, compiled))
    elif compiled.given_up:
        kind = compiled.given_up.type
        steps.append(_step("failure", "left it to Python, because of a break", kind, compiled))
    return steps


def _step(kind: str, words: str, text: str, compiled: Compile, artifact: int = -1) -> Step:
    content = f"{kind} {compiled.id} {text}".encode("utf-8", "replace")
    digest = hashlib.md5(content, usedforsecurity=False).hexdigest()
    return Step(kind, words, digest, compiled, artifact)


def scheduled(text: str) -> list[str]:
    """Return the collectives of a recorded schedule in order, by short name, waits left out."""
    try:
        data: Any = parse_json(text)
    except ValueError:
        return []
    rows = data if isinstance(data, list) else []
    return [_short(str(one)) for one in rows if one and _WAIT not in str(one)]


def _short(name: str) -> str:
    """`torch.ops._c10d_functional.all_reduce_.default` -> `all_reduce`."""
    return name.removesuffix(".default").rpartition(".")[2].rstrip("_")


def _collectives(steps: Sequence[Step]) -> dict[str, int]:
    return dict(sorted(Counter(name for step in steps for name in step.collectives).items()))


# ---------------------------------------------------------------------------------- divergence


def _diverge(most: Group, group: Group, causes: Mapping[int, str]) -> Divergence:
    of_most, of_group = _first_unlike(_decisions(most), _decisions(group))
    if of_most is of_group is None:
        of_most, of_group = _first_unlike(most.steps, group.steps)
    at = min(of.steps.index(step) for of, step in ((most, of_most), (group, of_group)) if step)
    chain = [*_first(most, group, of_most, of_group, causes), *_then(most, group)]
    return Divergence(most, group, at, of_most, of_group, tuple(chain))


def _decisions(group: Group) -> list[Step]:
    return [step for step in group.steps if step.kind in _DECISIONS]


def _first_unlike(most: Sequence[Step], group: Sequence[Step]) -> tuple[Step | None, Step | None]:
    """Return the first steps that differ; None for a side that has no more."""
    for mine, other in zip_longest(most, group):
        if mine is None or other is None or mine.digest != other.digest:
            return mine, other
    return None, None


def _first(
    most: Group,
    group: Group,
    of_most: Step | None,
    of_group: Step | None,
    causes: Mapping[int, str],
) -> list[str]:
    """Return what differs first, after its reasons."""
    reasons = []
    for of, step in ((group, of_group), (most, of_most)):
        if step is not None and step.kind == "compile" and id(step.compiled) in causes:
            reasons.append(f"{of.name}: {causes[id(step.compiled)]}")
    if of_most is None or of_group is None:
        has, lacks, step = (group, most, of_group) if of_most is None else (most, group, of_most)
        assert step is not None
        return [*reasons, f"{has.name} {step.words}; {lacks.name} did not"]
    return [*reasons, f"{most.name} {of_most.words}", f"{group.name} {_unlike(of_most, of_group)}"]


def _unlike(of_most: Step, of_group: Step) -> str:
    same = of_most.kind == of_group.kind and of_most.words == of_group.words
    return f"{of_group.words}, but another one" if same else of_group.words


def _then(most: Group, group: Group) -> list[str]:
    """Return what follows: compiles and collectives that one side has more of."""
    lines = []
    for kind, noun in (("compile", "compile"), ("failure", "failed compile")):
        more = _many(group, kind) - _many(most, kind)
        if more:
            lines.append(f"{group.name}: {count(abs(more), noun)} "
                        f"{'more' if more > 0 else 'fewer'} than {most.name}")  # fmt: skip
    for name in sorted({*most.collectives, *group.collectives}):
        a, b = most.collectives.get(name, 0), group.collectives.get(name, 0)
        if a != b:
            lines.append(f"{name}: compiled {b} times on {group.name}, {a} on {most.name}; "
                        "a rank that waits for one that never comes hangs")  # fmt: skip
    return lines


def _many(group: Group, kind: str) -> int:
    return sum(step.kind == kind for step in group.steps)


def aligned(most: Group, group: Group) -> list[tuple[int, Step | None, Step | None]]:
    """Lay the steps of two groups side by side: (equal steps before it, of_most, of_group)."""
    a, b = [one.digest for one in most.steps], [one.digest for one in group.steps]
    rows: list[tuple[int, Step | None, Step | None]] = []
    alike = 0
    for tag, i, i_end, j, j_end in SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        if tag == "equal":
            alike += i_end - i
            continue
        for step in range(max(i_end - i, j_end - j)):
            left = most.steps[i + step] if i + step < i_end else None
            right = group.steps[j + step] if j + step < j_end else None
            rows.append((alike, left, right))
            alike = 0
    if alike:
        rows.append((alike, None, None))
    return rows


# ------------------------------------------------------------------------------- what ops cost


@dataclass(frozen=True, slots=True)
class Estimate:
    """What PyTorch expected one compile to take: seconds on each lane, and its operations."""

    compile: str
    seconds: Mapping[Lane, float]
    operations: int
    same_tensors: bool  # shapes, strides and dtypes are those of the other ranks


def estimates(session: Session) -> list[Estimate]:
    """Return the estimated run times of compiles, where the trace has them."""
    seconds: dict[str, dict[Lane, float]] = {}
    shapes: dict[str, set[str]] = {}
    many: dict[str, int] = {}
    for compiled in session.compiles:
        for one in compiled.artifacts:
            if one.name != _META:
                continue
            rows = _operations(session.text(one))
            key = compiled.id
            spent = seconds.setdefault(key, {})
            spent[compiled.lane] = spent.get(compiled.lane, 0.0) + sum(row[0] for row in rows)
            shapes.setdefault(key, set()).add(str([row[1:] for row in rows]))
            many[key] = max(many.get(key, 0), len(rows))
    return [Estimate(key, spent, many[key], len(shapes[key]) == 1)
            for key, spent in seconds.items()]  # fmt: skip


def _operations(text: str) -> list[tuple[float, str, str]]:
    """Return (seconds, name, outputs) of each operation."""
    try:
        data = parse_json(text)
    except ValueError:
        return []
    rows = data.get("ops") if isinstance(data, dict) else None
    found = []
    for row in rows if isinstance(rows, list) else ():
        if isinstance(row, dict):
            number = (measured(row.get("estimated_runtime_ns")) or 0.0) / 1e9
            found.append((number, str(row.get("name")), str(row.get("outputs"))))
    return found
