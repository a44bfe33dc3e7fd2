"""Two diagnoses go in; what differs between the runs, function by function and stage by stage,
comes out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Final

from tc.tlparse.hunks import Hunk, hunks
from tc.tlparse.settings import configured
from tc.tlparse.summary import phases_of
from tc.trace.cachekeys import KeyRing, Miss, cache_events, explain, keyed
from tc.trace.compiles import Artifact, Compile
from tc.trace.findings import Diagnosis, Finding
from tc.trace.findings.matching import Row, match
from tc.trace.plaintext import plain_code
from tc.trace.session import Session

# The stages that are compared, and the artifacts that hold their text, best first.
_STAGES: Final = (
    ("captured graph", ("dynamo_output_graph",)),
    ("ATen graph", ("aot_joint_graph",)),
    ("ATen graph", ("aot_inference_graph",)),
    ("ATen forward", ("aot_forward_graph",)),
    ("ATen backward", ("aot_backward_graph",)),
    ("post-grad graph", ("inductor_post_grad_graph",)),
    ("plan", ("tc_plan",)),
    ("kernels", ("inductor_output_code",)),
)
_RESUMED: Final = re.compile(r" \(resumed at \d+\)$")
IDENTICAL, DIFFERS, ONLY_A, ONLY_B = "identical", "differs", "only in A", "only in B"


@dataclass(frozen=True, slots=True)
class StageDiff:
    """One stage of one compile in both runs."""

    stage: str
    state: str
    hunks: tuple[Hunk, ...] = ()
    line: int = 0  # of the first difference, in B

    def __str__(self) -> str:
        if self.state != DIFFERS:
            return f"{self.stage} {self.state}"
        verb = "differ" if self.stage.startswith("kernels") else "differs"
        return f"{self.stage} {verb} at line {self.line}"


@dataclass(frozen=True, slots=True)
class CompileDiff:
    """One compile of A beside the one of B that corresponds to it."""

    a: Compile | None
    b: Compile | None
    stages: tuple[StageDiff, ...] = ()
    misses: tuple[Miss, ...] = ()

    @property
    def state(self) -> str:
        """`identical`, `differs`, `only in A` or `only in B`."""
        if self.a is None or self.b is None:
            return ONLY_B if self.a is None else ONLY_A
        same = all(stage.state == IDENTICAL for stage in self.stages)
        return IDENTICAL if same else DIFFERS


@dataclass(frozen=True, slots=True)
class FunctionDiff:
    """All compiles of one function in both runs."""

    name: str
    compiles: tuple[CompileDiff, ...]
    seconds: tuple[float, float]

    @property
    def state(self) -> str:
        """`identical` if every compile is."""
        states = {one.state for one in self.compiles}
        return states.pop() if len(states) == 1 else DIFFERS


@dataclass(frozen=True, slots=True)
class Comparison:
    """What differs between two runs.

    Attributes:
        settings: (name, in A, in B) of versions, environment and configuration that differ.
        functions: every function of either run.
        gone, new: findings that only A, only B has; `changed` have another count.
        phases: (phase, seconds in A, in B).
    """

    a: Diagnosis
    b: Diagnosis
    settings: tuple[tuple[str, str, str], ...]
    functions: tuple[FunctionDiff, ...]
    gone: tuple[Finding, ...]
    new: tuple[Finding, ...]
    changed: tuple[tuple[Finding, Finding], ...]
    phases: tuple[tuple[str, float, float], ...]

    @property
    def differs(self) -> bool:
        """Whether graphs, kernels, compiles or findings differ; times and settings may."""
        told = self.gone or self.new or self.changed
        return bool(told) or any(one.state != IDENTICAL for one in self.functions)


def compare(a: Diagnosis, b: Diagnosis) -> Comparison:
    """Compare two runs."""
    # What is told because it took long may be told of one of two like runs.
    old = {one.id: one for one in a.findings if not one.timed}
    new = {one.id: one for one in b.findings if not one.timed}
    matched = match([Row.of(one) for one in old.values()], [Row.of(one) for one in new.values()])
    both = [(old[x.id], new[y.id]) for x, y in matched.same]
    before, after = phases_of(a.session.compiles), phases_of(b.session.compiles)
    ring = KeyRing()
    for compiled, artifact in cache_events(a.session):
        ring.add(a.session, compiled, artifact)
    return Comparison(
        a=a,
        b=b,
        settings=tuple(_settings(a.session, b.session)),
        functions=tuple(_functions(a, b, ring)),
        gone=tuple(old[one.id] for one in matched.gone),
        new=tuple(new[one.id] for one in matched.new),
        changed=tuple((x, y) for x, y in both if x.count != y.count),
        phases=tuple(
            (name, before.get(name, 0.0), after.get(name, 0.0))
            for name in dict.fromkeys((*before, *after))
        ),
    )


# ------------------------------------------------------------------------------------ settings


def _settings(a: Session, b: Session) -> list[tuple[str, str, str]]:
    old, new = {**a.environment, **_config(a)}, {**b.environment, **_config(b)}
    names = [*old, *(name for name in new if name not in old)]
    return [
        (name, old.get(name, ""), new.get(name, ""))
        for name in names
        if old.get(name, "") != new.get(name, "")
    ]


def _config(session: Session) -> dict[str, str]:
    """The configuration of the compiler, as the metrics of the first compile record it."""
    each = (configured(one.metrics) for one in session.compiles)
    first = next((config for config in each if config), {})
    return {name: plain_code(str(value)) for name, value in first.items()}


# ------------------------------------------------------------------------------------ functions


def _functions(a: Diagnosis, b: Diagnosis, ring: KeyRing) -> list[FunctionDiff]:
    old, new = _by_name(a.session), _by_name(b.session)
    found = []
    for name in dict.fromkeys((*old, *new)):
        before, after = old.get(name, []), new.get(name, [])
        found.append(
            FunctionDiff(
                name=name,
                compiles=tuple(
                    _compile(a.session, b.session, x, y, ring)
                    for x, y in _pair(a.session, b.session, before, after)
                ),
                seconds=(sum(x.seconds for x in before), sum(y.seconds for y in after)),
            )
        )
    return found


def _by_name(session: Session) -> dict[str, list[Compile]]:
    """Group compiles by a name that survives another checkout and lines that moved."""
    groups: dict[str, list[Compile]] = {}
    resumes: dict[tuple[str, str], list[int]] = {}
    for compiled in session.compiles:
        title = compiled.title
        if _RESUMED.search(title):
            key = _RESUMED.sub("", title), compiled.home[0]
            lines = resumes.setdefault(key, [])
            if compiled.line_of_resume not in lines:
                lines.append(compiled.line_of_resume)
            title = f"{key[0]} (rest {lines.index(compiled.line_of_resume) + 1})"
        lane = f" · {compiled.lane.label}" if compiled.lane.label.startswith("rank") else ""
        groups.setdefault(title + lane, []).append(compiled)
    return groups


def _pair(
    a: Session, b: Session, old: Sequence[Compile], new: Sequence[Compile]
) -> list[tuple[Compile | None, Compile | None]]:
    """Pair compiles whose captured graphs are equal, in order; the rest by position."""
    before, after = [_graph(a, one) for one in old], [_graph(b, one) for one in new]
    pairs: list[tuple[Compile | None, Compile | None]] = []
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    for _, i, i_end, j, j_end in matcher.get_opcodes():
        for step in range(max(i_end - i, j_end - j)):
            pairs.append(
                (
                    old[i + step] if i + step < i_end else None,
                    new[j + step] if j + step < j_end else None,
                )
            )
    return pairs


def _graph(session: Session, compiled: Compile) -> str:
    found = [one for one in compiled.artifacts if one.name == "dynamo_output_graph"]
    return plain_code(session.text(found[-1])) if found else ""


def _compile(
    a: Session, b: Session, old: Compile | None, new: Compile | None, ring: KeyRing
) -> CompileDiff:
    if old is None or new is None:
        return CompileDiff(old, new)
    stages = []
    for stage, names in _STAGES:
        before, after = _texts(a, old, names), _texts(b, new, names)
        for number in range(max(len(before), len(after))):
            several = max(len(before), len(after)) > 1
            words = f"{stage} ({_which(number)})" if several else stage
            stages.append(
                _stage(
                    words,
                    before[number] if number < len(before) else None,
                    after[number] if number < len(after) else None,
                )
            )
    return CompileDiff(old, new, tuple(stages), tuple(_misses(a, b, new, ring)))


def _which(number: int) -> str:
    return ("forward", "backward")[number] if number < 2 else str(number + 1)


def _texts(session: Session, compiled: Compile, names: tuple[str, ...]) -> list[str]:
    """The texts of a stage; of several attempts the last."""
    found: list[Artifact] = [one for one in compiled.artifacts if one.name in names]
    last = max((one.attempt for one in found), default=0)
    return [session.text(one) for one in found if one.attempt == last]


def _stage(stage: str, old: str | None, new: str | None) -> StageDiff:
    if old is None or new is None:
        return StageDiff(stage, ONLY_B if old is None else ONLY_A)
    made = hunks(old, new)
    if not made:
        return StageDiff(stage, IDENTICAL)
    return StageDiff(stage, DIFFERS, made, made[0].line)


def _misses(a: Session, b: Session, new: Compile, ring: KeyRing) -> list[Miss]:
    """What differs between the keys of B's misses and the nearest entries of A."""
    found = []
    for artifact in keyed(new):
        entry = ring.add(b, new, artifact)
        if entry is None:
            continue
        ring.entries.pop()  # only A's entries are to be compared with
        nearest = None if entry.hit else ring.nearest(entry)
        if nearest is not None:
            found.append(explain(ring, b, entry, a, nearest))
    return found
