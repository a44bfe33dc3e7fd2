"""Fusion: loop nests over the same iteration space become one kernel.

In: the nodes of a `LoopGraph` in order. Out: groups (loop nests over common variables) and ATen
calls in an order that respects dependencies, and a `Decision` for each fusion tried.

A group has outer variables (rows) and inner ones (the elements of a row, if it has reductions). A
member is a node rewritten over those variables, at level `row` or `inner`. A member may read the
result of another only at the same position, which is checked by comparing flat indices.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from tc.compiler.core.artifacts import Decision
from tc.compiler.core.gate import Gate
from tc.compiler.loops import index as ix
from tc.compiler.loops.expr import Expr, is_affine, substitute, walk
from tc.compiler.loops.index import Atom, Index
from tc.compiler.loops.ir import (
    Extern,
    LoopGraph,
    Nest,
    Node,
    Pointwise,
    Reduction,
    ScalarNode,
    Scan,
    Scatter,
    inner_loops,
    reads,
    writes,
)

Variables = tuple[Index, ...]
MAX_MEMBERS = 48
MAX_BUFFERS = 40
FEW_ROWS = 8
LONG_ROW = 1 << 15


@dataclass(frozen=True)
class Member:
    """A node over its group's variables."""

    node: Nest
    level: Literal["row", "inner"]
    index: Index
    body: Expr

    @property
    def name(self) -> str:
        """The buffer it computes."""
        return self.node.buffer.name


@dataclass
class Group:
    """Members over common loop variables."""

    outer: Variables
    inner: Variables
    members: list[Member] = field(default_factory=list)

    def writes(self) -> set[str]:
        """Buffers computed here."""
        return {member.name for member in self.members}

    def reads(self) -> set[str]:
        """Buffers read here."""
        return {name for member in self.members for name in reads(member.node)}


Slot = Group | Node


def made(slot: Slot) -> set[str]:
    """Return the buffers that a group or call makes."""
    return slot.writes() if isinstance(slot, Group) else {b.name for b in writes(slot)}


def fuse(
    graph: LoopGraph, gate: Gate, transposes: Callable[[Nest], bool] | None = None
) -> tuple[list[Slot], list[Decision]]:
    """Group the loop nests of a graph.

    Args:
        transposes: whether a node alone would be a transpose, which reads along one loop and writes
            along another, tile by tile; kernels with rows cannot, so it is kept out of these.
    """
    with gate.counting("schedule.fuse", len(graph.nodes)) as after:
        fusion = _Fusion(gate, _symbols_of_inputs(graph), transposes)
        for node in graph.nodes:
            if not isinstance(node, Nest):
                fusion.append(node)
            elif not fusion.join(node):
                fusion.append(alone(node))
        slots = [slot for slot in fusion.slots if slot is not None]
        after.append(len(slots))
    return slots, fusion.decisions


class _Fusion:
    """Groups and calls in order, for the part of the graph read so far.

    Attributes:
        slots: groups and calls; None in the old slot of a group that moved.
        given: symbols that the graph's inputs define.
        transposing: buffer -> the result of ``transposes`` for the node that makes it.
        made_at: buffer -> the slot that makes it.
        number_at: number or symbol that is not given -> the first slot that defines it.
        read_at: buffer -> the last slot that reads it.
        touched_at: buffer -> the slots that made or read it when they were last changed.
        wall: the last slot that is no group; groups before it do not move.
        check: the last slot that only raises an error if a condition is false: nodes after it may
            depend on the condition, and join no group before it.
    """

    def __init__(
        self, gate: Gate, given: set[str], transposes: Callable[[Nest], bool] | None
    ) -> None:
        self.gate = gate
        self.given = given
        self.transposes = transposes
        self.transposing: dict[str, bool] = {}
        self.slots: list[Slot | None] = []
        self.made_at: dict[str, int] = {}
        self.number_at: dict[str, int] = {}
        self.read_at: dict[str, int] = {}
        self.touched_at: defaultdict[str, set[int]] = defaultdict(set)
        self.wall = self.check = -1
        self.decisions: list[Decision] = []

    def append(self, slot: Slot) -> None:
        """Append a group or call."""
        self.slots.append(None)
        self._put(len(self.slots) - 1, slot)

    def _put(self, place: int, slot: Slot) -> None:
        self.slots[place] = slot
        results, read = made(slot), slot.reads() if isinstance(slot, Group) else set(reads(slot))
        if not isinstance(slot, Group):
            self.wall = place
            if isinstance(slot, Extern) and not results:
                self.check = place
            numbers = _symbols(s for b in writes(slot) for s in b.sizes) - self.given
            if isinstance(slot, ScalarNode):
                numbers = {slot.name}
            for name in numbers:
                self.number_at.setdefault(name, place)
        self.made_at.update(dict.fromkeys(results, place))
        for name in read:
            self.read_at[name] = max(place, self.read_at.get(name, place))
        for name in results | read:
            self.touched_at[name].add(place)

    def join(self, node: Nest) -> bool:
        """Add a node to the last group that it can join, if there is one."""
        wanted = set(reads(node))
        places = [self.made_at.get(name, -1) for name in wanted]
        if self.number_at:
            places += [self.number_at.get(name, -1) for name in _numbers(node)]
        earliest = max((self.check, *places))
        common = {place for name in wanted for place in self.touched_at[name]}
        for place in sorted((p for p in common if p >= earliest), reverse=True):
            group = self.slots[place]
            if not isinstance(group, Group):
                continue
            fused = self._fused(group, node)
            if fused is not None:
                self._put(place, fused)
                return True
        return self._join_moved(node, wanted, earliest)

    def _join_moved(self, node: Nest, wanted: set[str], earliest: int) -> bool:
        """Add a node to a group that makes one of its operands, and move that group to the end."""
        places = {self.made_at.get(name, -1) for name in wanted}
        for place in sorted((p for p in places if self.wall < p < earliest), reverse=True):
            group = self.slots[place]
            assert isinstance(group, Group)
            if any(self.read_at.get(name, place) > place for name in group.writes()):
                continue
            fused = self._fused(group, node)
            if fused is not None:
                self.slots[place] = None
                self.append(fused)
                return True
        return False

    def _transposes(self, member: Member) -> bool:
        """Return whether a transposing member is better as a kernel of its own."""
        if self.transposes is None or member.level != "inner" or type(member.node) is not Pointwise:
            return False
        if member.name not in self.transposing:
            self.transposing[member.name] = self.transposes(member.node)
        return self.transposing[member.name]

    def _divides(self, group: Group, fused: Group) -> bool:
        """Return whether a member would find its elements in a row by divisions.

        Members of the group before were asked when they joined, unless their loops are new.
        """
        if self.transposes is None:
            return False
        asked = set(map(id, group.members))
        return any(
            type(member.node) is Pointwise and not is_affine(member.body, fused.inner)
            for member in fused.members
            if member.level == "inner" and id(member) not in asked
        )

    def _fused(self, group: Group, node: Nest) -> Group | None:
        fused, reason = combined(group, node)
        if fused is not None and fused.inner and any(map(self._transposes, fused.members)):
            fused, reason = (
                None,
                "one of them reads transposed memory: as a separate kernel it does so in tiles",
            )
        if fused is not None and self._divides(group, fused):
            fused, reason = (
                None,
                "one of them would find its elements by divisions: a separate kernel need not",
            )

        def lines() -> list[str]:
            nodes = [node, *(member.node for member in group.members)]
            return [origin.place for one in nodes for origin in one.origins]

        if fused is not None and not self.gate.allow("schedule.fuse", node.buffer.name, lines):
            fused, reason = None, "refused by the gate"
        names = (*(m.name for m in group.members), node.buffer.name)
        self.decisions.append(Decision("fuse", names, fused is not None, reason))
        return fused


def _symbols(indices: Iterable[Index]) -> set[str]:
    """Return names of the sizes in indices."""
    return {atom.name for i in indices for atom in i.atoms() if atom.kind in ix.SYMBOLS}


def _symbols_of_inputs(graph: LoopGraph) -> set[str]:
    buffers = [item.buffer for item in graph.inputs if item.buffer is not None]
    numbers = {item.symbol for item in graph.inputs if item.symbol is not None}
    return numbers | _symbols(s for b in buffers for s in (*b.sizes, *b.strides))


def _numbers(node: Nest) -> set[str]:
    """Return names of the Python values and sizes that a node takes."""
    found: set[str] = set()
    used = [node.index, *extents((*node.vars, *inner_loops(node)))]
    for use in walk(node.body):
        if use.op == "scalar":
            found.add(use.data[0])
        for item in use.data:
            used += [i for i in (item if type(item) is tuple else (item,)) if isinstance(i, Index)]
    return found | _symbols(used)


def alone(node: Nest) -> Group:
    """Return a group of one node, over fresh variables."""
    outer, inner = domain(node)
    member = next(iter(placements(node, outer, inner, [])))
    return Group(outer, inner, [member])


def domain(node: Nest) -> tuple[Variables, Variables]:
    """Group variables shaped like a node's."""
    return fresh(node.vars, "p"), fresh(inner_loops(node), "r")


def fresh(variables: Variables, prefix: str) -> Variables:
    """Variables of the same extents under the group's names."""
    return tuple(ix.var(f"{prefix}{k}", ix.extent(v)) for k, v in enumerate(variables))


def extents(variables: Variables) -> Variables:
    """Return how far each variable runs."""
    return tuple(ix.extent(v) for v in variables)


def combined(group: Group, node: Nest) -> tuple[Group | None, str]:
    """Return the group with the node in it, or the reason why it cannot join."""
    if len(group.members) >= MAX_MEMBERS or len(group.reads() | group.writes()) >= MAX_BUFFERS:
        return None, "the kernel would be too large"
    if _is_dot(node) or any(_is_dot(m.node) for m in group.members):
        return _after_dot(group, node)
    choices = [(group.outer, group.inner)]
    own = domain(node)
    if not group.inner and own != choices[0]:
        choices.append(own)
    best: Group | None = None
    reason = "they run over different spaces"
    for outer, inner in choices:
        found, why = _over(group, node, outer, inner)
        if found is None:
            reason = why if best is None else reason
        elif best is None or _quotients(found) < _quotients(best):
            best = found
    if best is None:
        return None, reason
    if _starves(best):
        return None, "too few rows to share among threads"
    return best, "same space" if len(best.inner) == 0 else "same rows"


def _is_dot(node: Nest) -> bool:
    return isinstance(node, Reduction) and node.kind == "dot"


def _after_dot(group: Group, node: Nest) -> tuple[Group | None, str]:
    """Return the group with a node computed elementwise from its matrix product, or why not.

    The order of the loops stays.

    None for other nodes.
    """
    found, why = _over(group, node, group.outer, group.inner)
    if found is None or _is_dot(node) or found.members[-1].level != "row":
        return None, why or "a product is computed in registers"
    return found, "computed from results of a product"


def _over(group: Group, node: Nest, outer: Variables, inner: Variables) -> tuple[Group | None, str]:
    """Return all members and the node over given variables."""
    unchanged = (outer, inner) == (group.outer, group.inner)
    members: list[Member] = list(group.members) if unchanged else []
    todo = [node] if unchanged else [*(m.node for m in group.members), node]
    # Reductions and scans constrain a node's placement: they go first in a new placement.
    waiting = todo if unchanged else sorted(todo, key=lambda n: isinstance(n, Pointwise))
    placed: dict[str, Member] = {m.name: m for m in members}
    while waiting:
        item = _next(waiting, placed)
        waiting.remove(item)
        member = _placed(item, outer, inner, list(placed.values()))
        if member is None:
            space = any(True for _ in placements(item, outer, inner, []))
            return (
                None,
                "they read other positions than were written"
                if space
                else "they run over different spaces",
            )
        placed[item.buffer.name] = member
    ordered = [placed[n.buffer.name] for n in (*(m.node for m in group.members), node)]
    return Group(outer, inner, ordered), ""


def _next(waiting: list[Nest], placed: Mapping[str, Member]) -> Any:
    """Return the node to place next: one that shares accesses with the placed ones."""
    if len(waiting) == 1 or not placed or not isinstance(waiting[0], Pointwise):
        return waiting[0]
    known = {name for m in placed.values() for name in (m.name, *reads(m.node))}
    hinted = (n for n in waiting if not known.isdisjoint((n.buffer.name, *reads(n))))
    return next(hinted, waiting[0])


def _placed(node: Nest, outer: Variables, inner: Variables, others: list[Member]) -> Member | None:
    """Place a node so that it agrees with the others and shares most accesses with them."""
    theirs = {access for other in others for access in _accesses(other)}
    names = {name for name, _ in theirs}
    best: Member | None = None
    most = -1
    for member in placements(node, outer, inner, others):
        mine = [access for access in _accesses(member) if access[0] in names]
        same = sum(access in theirs for access in mine)
        if same > most and _agrees(member, others):
            best, most = member, same
            if same == len(mine):
                break
    return best


def _accesses(member: Member) -> set[tuple[str, Index]]:
    """Return the buffers that a member accesses, with the indices."""
    loads = {(use.data[0], use.data[1]) for use in member.body.loads()}
    return {(member.name, member.index), *loads}


def placements(
    node: Nest, outer: Variables, inner: Variables, others: list[Member]
) -> Iterator[Member]:
    """Yield the rewritings of a node over a group's variables, best first."""
    if isinstance(node, Reduction):
        same = ix.product(extents(node.vars)) is ix.product(extents(outer))
        if same and inner and ix.product(extents(node.reduced)) is ix.product(extents(inner)):
            values = _regroup(node.vars, outer) | _regroup(node.reduced, inner)
            yield _member(node, "inner", values)
        elif same and not node.reduced:
            yield _member(node, "row", _regroup(node.vars, outer))
        return
    if isinstance(node, Scan):
        one = len(inner) == 1 and ix.extent(inner[0]) is ix.extent(node.scanned)
        if one and ix.product(extents(node.vars)) is ix.product(extents(outer)):
            values = _regroup(node.vars, outer) | _regroup((node.scanned,), inner)
            yield _member(node, "inner", values)
        return
    count = ix.product(extents(node.vars))
    if count is ix.product(extents(outer)):
        yield _member(node, "row", _regroup(node.vars, outer))
        for values in _by_access(node, outer, others):
            yield _member(node, "row", values)
    if inner and count is ix.product(extents((*outer, *inner))):
        yield _member(node, "inner", _regroup(node.vars, (*outer, *inner)))
        for values in _by_access(node, (*outer, *inner), others):
            yield _member(node, "inner", values)


def _member(node: Nest, level: Literal["row", "inner"], values: dict[Atom, Index]) -> Member:
    return Member(node, level, ix.substitute(node.index, values), substitute(node.body, values))


def _regroup(variables: Variables, onto: Variables) -> dict[Atom, Index]:
    indices = ix.regrouped(extents(variables), extents(onto), onto)
    return {_atom(v): value for v, value in zip(variables, indices, strict=True)}


def _atom(variable: Index) -> Atom:
    atom = ix.atom_of(variable)
    assert atom is not None
    return atom


def _by_access(
    node: Pointwise, onto: Variables, others: list[Member]
) -> Iterator[dict[Atom, Index]]:
    """Yield each mapping of a node's variables that strides of shared accesses suggest, once."""
    suggested: set[frozenset[tuple[Atom, Index]]] = set()
    mine = [(node.buffer.name, node.index)]
    mine += [(use.data[0], use.data[1]) for use in node.body.loads()]
    for other in others:
        theirs = [(other.name, other.index)]
        theirs += [(use.data[0], use.data[1]) for use in other.body.loads()]
        for name, index in mine:
            for their_name, their_index in theirs:
                if name == their_name:
                    found = _by_strides(node.vars, index, onto, their_index)
                    # Many accesses suggest the same, and a body takes long to rewrite.
                    if found is not None and (same := frozenset(found.items())) not in suggested:
                        suggested.add(same)
                        yield found


def _by_strides(
    variables: Variables, index: Index, onto: Variables, target: Index
) -> dict[Atom, Index] | None:
    free = list(onto)
    found: dict[Atom, Index] = {}
    rest: list[Index] = []
    for variable in variables:
        step = ix.coefficient(index, variable)
        twin = None
        if step is not ix.ZERO:
            twin = next(
                (
                    g
                    for g in free
                    if ix.coefficient(target, g) is step and ix.extent(g) is ix.extent(variable)
                ),
                None,
            )
        if twin is None:
            rest.append(variable)
        else:
            found[_atom(variable)] = twin
            free.remove(twin)
    for variable in rest:
        twin = next((g for g in free if ix.extent(g) is ix.extent(variable)), None)
        if twin is None:
            return None
        found[_atom(variable)] = twin
        free.remove(twin)
    return found


def _agrees(member: Member, others: list[Member]) -> bool:
    """Return whether members read each other's results only at the written positions."""
    return all(_reads_same(member, other) and _reads_same(other, member) for other in others)


def _reads_same(reader: Member, writer: Member) -> bool:
    # The result of a scatter is complete only after the whole kernel.
    if isinstance(reader.node, Scatter) and reader.node.base == writer.name:
        return False
    if isinstance(writer.node, Scatter) and writer.name in reads(reader.node):
        return False
    row_value = writer.level == "row" or isinstance(writer.node, Reduction)
    if isinstance(reader.node, Pointwise) and reader.level == "row" and not row_value:
        return writer.name not in reads(reader.node)
    for use in reader.body.loads():
        if use.data[0] == writer.name and (use.op != "load" or use.data[1] is not writer.index):
            return False
    return True


def _quotients(group: Group) -> int:
    """Return the number of divisions in its indices."""
    count = 0
    for member in group.members:
        for text in [str(member.index), *(str(use.data[1]) for use in member.body.loads())]:
            count += text.count("//") + text.count("%")
    return count


def _starves(group: Group) -> bool:
    """Return whether few long rows that need several passes would leave threads idle.

    One pass is shared among threads: its reductions are split, whatever else it computes.
    """
    if not group.inner or not (_scans(group) or _chained(group)):
        return False
    rows = ix.product(extents(group.outer)).constant
    length = ix.product(extents(group.inner)).constant
    return rows is not None and rows < FEW_ROWS and (length is None or length > LONG_ROW)


def _scans(group: Group) -> bool:
    return any(isinstance(m.node, Scan) for m in group.members)


def _chained(group: Group) -> bool:
    """Return whether a pass along the rows needs the result of one before."""
    results = {m.name for m in group.members if isinstance(m.node, Reduction)}
    return any(results & set(reads(m.node)) for m in group.members if m.level == "inner")
