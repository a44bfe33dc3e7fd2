"""What a stage does to a graph, written down while it does: a record for the trace, none without.

In: steps from the gate, graphs before and after a pass, firings of rules. Out: `trace.StageRan`.
Text is made of the lines that changed alone; a pass that changes nothing costs a look at each node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import attrgetter, is_
from typing import Any

from torch import fx

from tc import trace
from tc.compiler.core.nodetext import node_line

#: lines that one pass may record as changed; further edits are counted
MOST_LINES = 1000
#: firings of rules that are recorded one by one; further ones are counted
MOST_FIRINGS = 100
#: what steps of one name were about, each listed once
MOST_PLACES = 50
#: of each node, after each pass: the properties `args` and `kwargs` would each call a function
_ARGS: Callable[[fx.Node], Any] = attrgetter("_args")
_KWARGS: Callable[[fx.Node], Any] = attrgetter("_kwargs")


@dataclass(frozen=True, eq=False)
class _State:
    """A graph as it was: arguments of nodes are replaced, never changed."""

    nodes: list[fx.Node]
    args: list[Any]
    kwargs: list[Any]

    @classmethod
    def of(cls, graph: fx.Graph) -> _State:
        nodes = list(graph.nodes)
        return cls(nodes, list(map(_ARGS, nodes)), list(map(_KWARGS, nodes)))

    def kept(self, earlier: _State) -> list[int]:
        """Return for each node its place in an earlier state, -1 if it or its arguments are new."""
        places = dict(zip(earlier.nodes, range(len(earlier.nodes)), strict=True))
        found = [places.get(node, -1) for node in self.nodes]
        for j, i in enumerate(found):
            if i >= 0 and (
                self.args[j] is not earlier.args[i] or self.kwargs[j] is not earlier.kwargs[i]
            ):
                found[j] = -1
        return found

    def now(self, graph: fx.Graph) -> _State:
        """Return how the graph is now: itself if nothing changed.

        Objects are compared, as ``==`` of sizes would guard.
        """
        nodes = list(graph.nodes)
        same = len(nodes) == len(self.nodes) and (
            all(map(is_, nodes, self.nodes))
            and all(map(is_, map(_ARGS, nodes), self.args))
            and all(map(is_, map(_KWARGS, nodes), self.kwargs))
        )
        return self if same else _State.of(graph)

    def lines(self, places: Sequence[int]) -> tuple[str, ...]:
        """Return the text of some nodes, as they were."""
        return tuple(node_line(self.nodes[i], self.args[i], self.kwargs[i]) for i in places)


@dataclass
class _Kind:
    """Steps of one name so far."""

    count: int = 0
    refused: int = 0
    first: int = 0
    last: int = 0
    at: dict[str, None] = field(default_factory=dict)


@dataclass
class Notes:
    """What is written down of one stage; see `StageRan` for the meaning.

    Attributes:
        total: number of the last step.
        since: number of the first step of the pass that runs.
        place: the buffer and user line that rules are applied to now.
    """

    passes: list[tuple[str, trace.PassRan]] = field(default_factory=list)
    kinds: dict[str, _Kind] = field(default_factory=dict)
    firings: list[trace.Fired] = field(default_factory=list)
    fired: int = 0
    first: int = 0
    total: int = 0
    since: int = 0
    place: tuple[str, str] = ("", "")
    _last: tuple[fx.Graph | None, _State | None] = (None, None)

    def step(self, number: int, kind: str, allowed: bool, at: str | Callable[[], str]) -> None:
        """Write down that the gate was asked."""
        row = self.kinds.get(kind)
        if row is None:
            row = self.kinds[kind] = _Kind(first=number)
        self.first = self.first or number
        self.since = self.since or number
        self.total = row.last = number
        row.count += 1
        row.refused += not allowed
        if len(row.at) < MOST_PLACES:
            place = at if isinstance(at, str) else _place(at)
            if place:
                row.at[place] = None

    @trace.reports(trace.nothing)
    def firing(self, rule: str, before: str, after: str) -> None:
        """Write down that a rule fired; its step was the last."""
        self.fired += 1
        if len(self.firings) < MOST_FIRINGS:
            self.firings.append(trace.Fired(self.total, rule, before, after, *self.place))

    @contextmanager
    def graph_pass(self, name: str, graph: fx.Graph, kind: str = "") -> Iterator[None]:
        """Write down what a pass changes in a graph of ATen operations.

        Args:
            kind: of the graph, where the stage's record is about several.
        """
        own = self.kinds.get(name)
        self.since = own.last if own is not None else 0
        seen, known = self._last
        # What happens between two passes over a graph is recorded with the second.
        before = known if seen is graph and known is not None else _State.of(graph)
        yield
        self._note_pass(name, graph, kind, before)

    @trace.reports(trace.nothing)
    def _note_pass(self, name: str, graph: fx.Graph, kind: str, before: _State) -> None:
        after = before.now(graph)
        self._last = graph, after
        edits, left_out = _edits(before, after)
        first, last = self._numbers()
        changed = bool(edits or left_out)
        sizes = len(before.nodes), len(after.nodes)
        ran = trace.PassRan(name, first, last, False, changed, *sizes, tuple(edits), left_out)
        self.passes.append((kind, ran))

    @trace.reports(trace.nothing)
    def refused_pass(self, name: str, kind: str = "") -> None:
        """Write down a pass that the gate did not let run."""
        self.passes.append((kind, trace.PassRan(name, self.total, self.total, refused=True)))

    @contextmanager
    def other_pass(self, name: str, before: int) -> Iterator[list[int]]:
        """Write down a pass over something else than a graph of operations.

        Args:
            before: how many parts there are.

        Yields:
            A list for the number of parts there are after it.
        """
        self.since, after = 0, [before]
        yield after
        self._note_other_pass(name, before, after[-1])

    @trace.reports(trace.nothing)
    def _note_other_pass(self, name: str, before: int, after: int) -> None:
        first, last = self._numbers()
        changed = after != before or last > 0
        ran = trace.PassRan(name, first, last, changed=changed, before=before, after=after)
        self.passes.append(("", ran))

    def _numbers(self) -> tuple[int, int]:
        """Return the numbers of the first and the last step since a pass began."""
        return (self.since, self.total) if self.since else (0, 0)

    def to_events(self, stage: str, graph: str) -> list[trace.Event]:
        """Return the records of the stage, one a graph; the first holds the steps.

        Args:
            graph: kind of the graph that passes which name none are about.
        """
        passes: dict[str, list[trace.PassRan]] = {}
        for kind, ran in self.passes:
            passes.setdefault(kind or graph, []).append(ran)
        (first, own), *others = passes.items() or [(graph, [])]
        steps = tuple(
            trace.Steps(name, row.count, row.refused, row.first, row.last, tuple(row.at))
            for name, row in self.kinds.items()
            if row.at or all(name != ran.name for _, ran in self.passes)
        )
        left_out = self.fired - len(self.firings)
        bounds = (self.first, self.total)
        firings = tuple(self.firings)
        found: list[trace.Event] = []
        found.append(trace.StageRan(first, stage, *bounds, tuple(own), steps, firings, left_out))
        for kind, rans in others:
            numbers = [number for ran in rans for number in (ran.first, ran.last) if number]
            bounds = (min(numbers), max(numbers)) if numbers else (0, 0)
            found.append(trace.StageRan(kind, stage, *bounds, tuple(rans)))
        return found


@trace.reports(str)
def _place(of_step: Callable[[], str]) -> str:
    """Return what a step is about; making a text of a program's objects may fail."""
    return of_step()


def noting() -> Notes | None:
    """Return what to write steps into, None if nobody listens."""
    return Notes() if trace.enabled() else None


@trace.reports(list)
def noted_events(notes: Notes | None, stage: str, graph: str) -> list[trace.Event]:
    """Emit what was recorded of a stage; returns the events."""
    events = [] if notes is None else notes.to_events(stage, graph)
    trace.emit_all(events)
    return events


def _edits(before: _State, after: _State) -> tuple[list[trace.Edit], int]:
    """Return what changed, and how many more edits there are than may be recorded."""
    if after is before:
        return [], 0
    edits: list[trace.Edit] = []
    lines = left_out = 0
    for line, removed, added in _replaced(len(before.nodes), after.kept(before)):
        gone, made = before.lines(removed), after.lines(added)
        if gone == made:
            continue
        lines += len(gone) + len(made)
        if lines > MOST_LINES:
            left_out += 1
        else:
            edits.append(trace.Edit(line, gone, made))
    return edits, left_out


def _replaced(count: int, kept: Sequence[int]) -> Iterator[tuple[int, range, range]]:
    """Compare two sequences without repeats; in one walk, since most stays in order.

    Args:
        count: length of the old one.
        kept: for each element of the new one its place in the old one, -1 if it is not there.

    Yields:
        Where something was replaced, the places of what is gone and of what came.
    """
    stays = [False] * count
    for place in kept:
        if place >= 0:
            stays[place] = True
    i = j = 0
    while i < count or j < len(kept):
        from_i, from_j = i, j
        while True:
            while i < count and not stays[i]:
                i += 1
            while j < len(kept) and (kept[j] < 0 or not stays[kept[j]]):
                j += 1
            if i == count or j == len(kept) or kept[j] == i:
                break
            stays[i] = False  # moved: gone here, and new where it is now
        if i > from_i or j > from_j:
            yield from_i, range(from_i, i), range(from_j, j)
        i, j = i + 1, j + 1
