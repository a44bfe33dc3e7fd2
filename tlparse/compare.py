"""Two diagnoses go in; what differs between the runs, function by function and stage by stage,
comes out."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import Final

from tc.tlparse.across import graph_text, kernel_text
from tc.tlparse.hunks import Hunk, hunks
from tc.tlparse.settings import configured
from tc.tlparse.summary import phases_of
from tc.trace.cachekeys import Entry, KeyRing, Miss, cache_events, explain, keyed
from tc.trace.compiles import Artifact, Compile
from tc.trace.findings import Diagnosis, Finding
from tc.trace.findings.matching import Row, match
from tc.trace.places import file_name
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
    line: int = 0  # of the first difference, in B; 0: of a text that is in no artifact

    def __str__(self) -> str:
        if self.state != DIFFERS:
            return f"{self.stage} {self.state}"
        verb = "differ" if self.stage.startswith("kernels") else "differs"
        return f"{self.stage} {verb}" + (f" at line {self.line}" if self.line else "")


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
        unpaired: how many settings of the configuration only A or only B has: those of another
            compiler, or of another version of it.
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
    unpaired: int = 0

    @property
    def across(self) -> bool:
        """Whether only what two compilers, or versions of one, have in common is compared."""
        return _across(self.a.session, self.b.session)

    @property
    def differs(self) -> bool:
        """Whether graphs, kernels, compiles or findings differ; times and settings may."""
        findings = self.gone or self.new or self.changed
        return bool(findings) or any(one.state != IDENTICAL for one in self.functions)


def compare(a: Diagnosis, b: Diagnosis) -> Comparison:
    """Compare two runs."""
    # A finding that is reported because it took long may be reported of one of two equal runs.
    old = {one.id: one for one in a.findings if not one.timed}
    new = {one.id: one for one in b.findings if not one.timed}
    matched = match([Row.of(one) for one in old.values()], [Row.of(one) for one in new.values()])
    both = [(old[x.id], new[y.id]) for x, y in matched.same]
    gone, fresh = [old[one.id] for one in matched.gone], [new[one.id] for one in matched.new]
    if _across(a.session, b.session):
        both += _of_one_place(gone, fresh)
    before, after = phases_of(a.session.compiles), phases_of(b.session.compiles)
    ring = KeyRing()
    for compiled, artifact in cache_events(a.session):
        ring.add(a.session, compiled, artifact)
    settings, unpaired = _settings(a.session, b.session)
    return Comparison(
        a=a,
        b=b,
        settings=tuple(settings),
        unpaired=unpaired,
        functions=tuple(_functions(a, b, ring)),
        gone=tuple(gone),
        new=tuple(fresh),
        changed=tuple((x, y) for x, y in both if x.count != y.count),
        phases=tuple(
            (name, before.get(name, 0.0), after.get(name, 0.0))
            for name in dict.fromkeys((*before, *after))
        ),
    )


def _of_one_place(gone: list[Finding], new: list[Finding]) -> list[tuple[Finding, Finding]]:
    """Take the findings out that are of one kind at one line: compilers word causes differently."""
    pairs = []
    for one in list(gone):
        place = one.code, one.where.file, one.where.line
        same = [x for x in new if (x.code, x.where.file, x.where.line) == place and x.where.line]
        if same:
            pairs.append((one, same[0]))
            gone.remove(one)
            new.remove(same[0])
    return pairs


# ------------------------------------------------------------------------------------ settings


def _settings(a: Session, b: Session) -> tuple[list[tuple[str, str, str]], int]:
    """Return what differs, and how many settings of the configuration have no counterpart."""
    old, new = _config(a), _config(b)
    rows = [
        (name, _version(a.environment.get(name, "")), _version(b.environment.get(name, "")))
        for name in dict.fromkeys((*a.environment, *b.environment))
    ]
    rows += [(name, old[name], new[name]) for name in old if name in new]
    return [row for row in rows if row[1] != row[2]], len(old.keys() ^ new.keys())


def _version(text: str) -> str:
    """Return a version without the build that some writers add: `3.11.7 (main, …) [GCC 12]`."""
    return text.partition(" (")[0]


def _config(session: Session) -> dict[str, str]:
    """The configuration of the compiler, as the metrics of the first compile record it."""
    each = (configured(one.metrics) for one in session.compiles)
    first = next((config for config in each if config), {})
    return {name: plain_code(str(value)) for name, value in first.items()}


# ------------------------------------------------------------------------------------ functions


@dataclass(frozen=True, slots=True)
class _Function:
    """A code object, by what survives another checkout and lines that moved.

    Attributes:
        name: its name, the rank behind it.
        file: the last part of its file's name.
        number: which of the functions of that name in that file, from the top.
        rest: 0, or which of its resume functions, in the order of their first compiles.
    """

    name: str
    file: str
    number: int
    rest: int

    def __str__(self) -> str:
        return f"{self.name} (rest {self.rest})" if self.rest else self.name

    def same_but_file(self, other: _Function) -> bool:
        """Return whether only the file's name differs."""
        return replace(self, file=other.file) == other

    def label(self, others: Iterable[_Function]) -> str:
        """Return its name, with as much more as distinguishes it from others of that name."""
        alike = [one for one in others if one.name == self.name]
        file = f" in {self.file}" if len({one.file for one in alike}) > 1 else ""
        several = len({one.number for one in alike if one.file == self.file}) > 1
        return f"{self}{file}" + (f" ({self.number + 1})" if several else "")


def _functions(a: Diagnosis, b: Diagnosis, ring: KeyRing) -> list[FunctionDiff]:
    old, new = _by_function(a.session), _by_function(b.session)
    for moved in [key for key in new if key not in old]:
        alike = [key for key in old if key not in new and key.same_but_file(moved)]
        if len(alike) == 1:  # the file has another name
            new[alike[0]] = new.pop(moved)
    found = []
    keys = dict.fromkeys((*old, *new))
    for key in keys:
        before, after = old.get(key, []), new.get(key, [])
        found.append(
            FunctionDiff(
                name=key.label(keys),
                compiles=tuple(
                    _compile(a.session, b.session, x, y, ring)
                    for x, y in _pair(a.session, b.session, before, after)
                ),
                seconds=(sum(x.seconds for x in before), sum(y.seconds for y in after)),
            )
        )
    return found


def _by_function(session: Session) -> dict[_Function, list[Compile]]:
    """Group compiles by the code object that they are of."""
    lines: dict[tuple[str, str], set[int]] = {}  # where functions of a name begin
    for one in session.compiles:
        known = lines.setdefault(_name_and_file(one), set())
        if not _RESUMED.search(one.title):  # PyTorch gives a resume function its line of resume
            known.add(one.home[1])
    begins = {key: sorted(found) for key, found in lines.items()}
    groups: dict[_Function, list[Compile]] = {}
    resumes: dict[tuple[str, str, int], list[tuple[int, int]]] = {}
    for one in session.compiles:
        name, file = _name_and_file(one)
        number = max(bisect_right(begins[name, file], one.home[1]) - 1, 0)
        rest = 0
        if _RESUMED.search(one.title):
            parts = resumes.setdefault((name, file, number), [])
            part = one.line_of_resume, one.twin
            if part not in parts:
                parts.append(part)
            rest = 1 + parts.index(part)
        lane = f" · {one.lane.label}" if one.lane.label.startswith("rank") else ""
        groups.setdefault(_Function(name + lane, file, number, rest), []).append(one)
    return groups


def _name_and_file(one: Compile) -> tuple[str, str]:
    return _RESUMED.sub("", one.title), file_name(one.home[0])


def _pair(
    a: Session, b: Session, old: Sequence[Compile], new: Sequence[Compile]
) -> list[tuple[Compile | None, Compile | None]]:
    """Pair compiles whose captured graphs are equal, in order; the rest by position."""
    form = graph_text if _across(a, b) else plain_code
    before, after = [form(_graph(a, one)) for one in old], [form(_graph(b, one)) for one in new]
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
    return session.text(found[-1]) if found else ""


def _across(a: Session, b: Session) -> bool:
    """Return whether the runs are of two compilers, or of two versions of torch."""
    return _compiler(a) != _compiler(b)


def _compiler(session: Session) -> tuple[str, ...]:
    version = session.environment.get("pytorch_version", "")
    return session.producer, *version.split(".")[:2]


def _compile(
    a: Session, b: Session, old: Compile | None, new: Compile | None, ring: KeyRing
) -> CompileDiff:
    if old is None or new is None:
        return CompileDiff(old, new)
    if _across(a, b):
        return CompileDiff(old, new, tuple(_shared_stages(a, b, old, new)))
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


def _shared_stages(a: Session, b: Session, old: Compile, new: Compile) -> Iterator[StageDiff]:
    """Compare what compilers, or versions of one, have in common."""
    before, after = _graph(a, old), _graph(b, new)
    if before and after:
        yield replace(_stage("captured graph", graph_text(before), graph_text(after)), line=0)
    lines = kernel_text(a, old), kernel_text(b, new)
    if None not in lines:
        yield replace(_stage("kernels by line", *lines), line=0)


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
        if nearest is not None and not _missed_in_both(ring, entry):
            found.append(explain(ring, b, entry, a, nearest))
    return found


def _missed_in_both(ring: KeyRing, entry: Entry) -> bool:
    """Return whether A looked for the very entry and missed it as well: nothing differs then."""
    return any(
        one.cache == entry.cache and one.bits == entry.bits and not one.hit for one in ring.entries
    )
