"""The schedule for GPUs: the same fusion, order and memory, but other kernels than a CPU's.

In: `LoopGraph`. Out: `Plan`. A block of threads holds its rows in registers, so there is no scratch
memory: a value that a later pass needs is computed again there, and the printer shares it if both
passes use the same registers. Long reductions to few results are done in two steps, so that all of
the GPU works on them. Loops are not split by position, since each thread would run all pieces.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import torch

from tc.compiler.core.artifacts import Decision
from tc.compiler.core.gate import Gate
from tc.compiler.loops import index as ix
from tc.compiler.loops.expr import Expr, index_value, load, neutral, substitute, transform, walk
from tc.compiler.loops.index import Atom, Index
from tc.compiler.loops.ir import (
    Buffer,
    LoopGraph,
    Node,
    Origin,
    Reduction,
    Scan,
    Scatter,
    contiguous,
    reads,
    writes,
)
from tc.compiler.loops.ops import compute_dtype
from tc.compiler.schedule.fuse import Group, Member, Slot, alone, combined, fuse, made
from tc.compiler.schedule.in_place import in_place
from tc.compiler.schedule.launches import recomputed, side_by_side
from tc.compiler.schedule.memory import Work, with_memory
from tc.compiler.schedule.order import Order, ordered
from tc.compiler.schedule.plan import (
    Accumulate,
    Atomic,
    Kernel,
    Let,
    Plan,
    Running,
    Section,
    Statement,
    Store,
)
from tc.compiler.schedule.products import Choose, with_products
from tc.compiler.schedule.stage import kernel_title, outside_readers, slot_reads

BLOCKS = 512  # fewer blocks of threads than this leave part of a GPU idle
PART = 4096  # elements that one block reduces if a row is contiguous
COLUMNS, COLUMN_PART = 64, 256  # rows of a block and its elements of each if it is not


def plan(graph: LoopGraph, gate: Gate, choose: Choose | None = None) -> Plan:
    """Split long reductions, fuse, order, build kernels, plan memory.

    Args:
        choose: decides which matrix products become kernels; None: none do.
    """
    graph, cuts = with_parts(graph, gate)
    graph, again = recomputed(graph, gate)
    slots, decisions = fuse(graph, gate)
    slots, parted = untwisted(slots)
    slots, beside = side_by_side(slots, gate)
    readers = outside_readers(slots, graph.outputs)
    work: list[Work] = []
    for slot in slots:
        if isinstance(slot, Group):
            needed = {name for name in slot.writes() if slot_reads(name, slot, readers)}
            name = f"k{sum(isinstance(w, Kernel) for w in work)}_{kernel_title(slot)}"
            work.append(build(ordered(slot, needed), needed, name))
        else:
            work.append(slot)  # type: ignore[arg-type]
    buffers = {buffer.name: buffer for node in graph.nodes for buffer in writes(node)}
    if choose is not None:
        known = {**buffers, **{i.buffer.name: i.buffer for i in graph.inputs if i.buffer}}
        work, chosen = with_products(work, graph.outputs, known, choose, gate)
        decisions = [*decisions, *chosen]
    work, over, written = in_place(work, graph.inputs, graph.outputs, buffers, gate)
    steps, reuses = with_memory(work, graph.inputs, graph.outputs, buffers, gate, over)
    return Plan(
        graph.inputs,
        tuple(steps),
        graph.outputs,
        graph.constants,
        tuple(buffers.values()),
        (*graph.decisions, *cuts, *again, *decisions, *parted, *beside, *written, *reuses),
    )


# ---------------------------------------------------------------- reductions in two steps


def with_parts(graph: LoopGraph, gate: Gate) -> tuple[LoopGraph, list[Decision]]:
    """Replace long reductions to few results by two: over parts, then over the parts' results."""
    nodes: list[Node] = []
    decisions: list[Decision] = []
    for node in graph.nodes:
        if isinstance(node, Reduction) and node.kind == "dot":  # a blocked sum for CPUs
            node = replace(node, kind="sum")
        size = _part(node) if isinstance(node, Reduction) else 0
        if isinstance(node, Reduction) and size and gate.allow("schedule.cut", node.buffer.name):
            nodes += cut(node, size)
            reason = f"few results, each of {ix.product(_extents(node.reduced))} elements"
            decisions.append(Decision("cut", (node.buffer.name,), True, reason))
        else:
            nodes.append(node)
    return replace(graph, nodes=tuple(nodes)), decisions


def _part(node: Reduction) -> int:
    """Return the number of elements of each part; 0 if splitting does not pay."""
    length = ix.product(_extents(node.reduced)).constant
    results = ix.product(_extents(node.vars)).constant
    if length is None or results is None or node.kind.startswith("arg"):
        return 0
    together, size = (COLUMNS, COLUMN_PART) if _across(node) else (1, PART)
    return size if 0 < results < BLOCKS * together and length >= 4 * size else 0


def _across(node: Reduction) -> bool:
    """Return whether memory runs along the results rather than along the reduced loop."""
    indices = [use.data[1] for use in node.body.loads()]

    def along(variables: Sequence[Index]) -> int:
        return sum(ix.coefficient(i, v) is ix.ONE for i in indices for v in variables)

    return along(node.vars) > along(node.reduced)


def cut(node: Reduction, size: int) -> tuple[Reduction, Reduction]:
    """Return a reduction over parts of ``size`` elements, and the reduction of its results."""
    extents = _extents(node.reduced)
    length = ix.product(extents).constant
    assert length is not None
    count = -(-length // size)
    part, step = ix.var("part", count), ix.var("step", size)
    flat = part * size + step
    position = ix.regrouped(extents, (ix.const(length),), (flat,))
    atoms = (_atom(v) for v in node.reduced)
    body = substitute(node.body, dict(zip(atoms, position, strict=True)))
    if length % size:
        inside = Expr("lt", (index_value(flat), index_value(ix.const(length))), torch.bool)
        body = Expr("select", (inside, body, neutral(node.kind, body.dtype)), body.dtype)
    wide = compute_dtype(node.buffer.dtype)
    sizes = (*_extents(node.vars), ix.const(count))
    steps = contiguous(sizes)
    partial = Buffer(f"{node.buffer.name}_parts", wide, sizes, steps)
    variables = (*node.vars, part)
    place = ix.ZERO
    for variable, stride in zip(variables, steps, strict=True):
        place = place + variable * stride
    parts = Reduction(partial, variables, (step,), place, node.kind, body, node.origins)
    value = load(partial.name, place, wide)
    whole = replace(node, reduced=(part,), body=value)
    return parts, whole


def _extents(variables: Sequence[Index]) -> tuple[Index, ...]:
    return tuple(ix.extent(v) for v in variables)


def _atom(variable: Index) -> Atom:
    atom = ix.atom_of(variable)
    assert atom is not None
    return atom


# ---------------------------------------------------------------- fusions undone


def untwisted(slots: Sequence[Slot]) -> tuple[list[Slot], list[Decision]]:
    """Undo fusions into reductions that need divisions in indices.

    The few blocks of the reduction, in its order, would write elements that a pointwise kernel
    could write contiguously.
    """
    found: list[Slot] = []
    decisions: list[Decision] = []
    for slot in slots:
        found.append(slot)
        if not isinstance(slot, Group) or not slot.inner:
            continue
        out: list[Member] = []
        for member in reversed(slot.members):
            stay = [m for m in slot.members if m is not member and m not in out]
            read = any(member.name in reads(m.node) for m in stay)
            if stay and not read and _twisted(member):
                out.insert(0, member)
                names = (*(m.name for m in stay), member.name)
                reason = "its indices would have to be split into coordinates"
                decisions.append(Decision("fuse", names, False, reason))
        slot.members[:] = [m for m in slot.members if m not in out]
        for member in out:
            _place(member, found)
    return found, decisions


def _place(member: Member, slots: list[Slot]) -> None:
    """Add a node to the last group that fits without divisions, else append it."""
    needed = set(reads(member.node))
    makers = (k for k, slot in enumerate(slots) if needed & made(slot))
    for place in range(len(slots) - 1, max(makers, default=0) - 1, -1):
        group = slots[place]
        if isinstance(group, Group) and needed & (group.reads() | group.writes()):
            joined, _ = combined(group, member.node)
            if joined is not None and not any(map(_twisted, joined.members)):
                slots[place] = joined
                return
    slots.append(alone(member.node))


def _twisted(member: Member) -> bool:
    """Return whether its indices have more quotients than its own loops need."""
    if isinstance(member.node, Reduction | Scan):
        return False
    return _quotients(member) > _quotients(alone(member.node).members[0])


def _quotients(member: Member) -> int:
    indices = [member.index, *(use.data[1] for use in member.body.loads())]
    return sum(str(index).count("//") + str(index).count("%") for index in indices)


# ---------------------------------------------------------------- kernels


def build(order: Order, needed: set[str], name: str) -> Kernel:
    """Make a kernel of an ordered group; ``needed`` are the buffers read outside it."""
    group = order.group
    writer = _Writer(group, needed)
    sections: list[Section] = []
    for number in range(writer.last_pass() + 1):
        for level in ("row", "inner"):
            statements = writer.statements(number, level)
            if statements:
                sections.append(Section(level, statements))
    origins: list[Origin] = []
    for member in group.members:
        origins += [origin for origin in member.node.origins if origin not in origins]
    members = tuple(m.name for m in group.members)
    return Kernel(
        name,
        group.outer,
        group.inner,
        tuple(sections),
        order.lane,
        members=members,
        origins=tuple(origins),
        tile=order.tile,
    )


class _Writer:
    """Statements of a kernel, pass by pass; a reduction's result is available in the next pass."""

    def __init__(self, group: Group, needed: set[str]) -> None:
        self.group, self.needed = group, needed
        self.members = {member.name: member for member in group.members}
        self.number: dict[str, int] = {}
        self.ready: dict[str, int] = {}
        for member in group.members:
            own = [name for name in reads(member.node) if name in self.ready]
            number = max((self.ready[name] for name in own), default=0)
            self.number[member.name] = number
            self.ready[member.name] = number + (1 if _reduces(member) else 0)

    def last_pass(self) -> int:
        """Return the number of the last pass."""
        return max(self.ready.values(), default=0)

    def statements(self, number: int, level: Literal["row", "inner"]) -> tuple[Statement, ...]:
        """What runs at a level in a pass."""
        found: list[Statement] = []
        for member in self.group.members:
            name, dtype = member.name, member.node.buffer.dtype
            here = self.number[name] == number and member.level == level
            result = Expr("local", (), dtype, (_local(name),))
            if _reduces(member):
                done = level == "row" and self.ready[name] == number
                if done and name in self.needed:
                    found.insert(0, Store(name, member.index, result))
                if level == "row" or self.number[name] != number:
                    continue
                assert isinstance(member.node, Reduction)
                body = self._body(member, number)
                found.append(Accumulate(_local(name), member.node.kind, body, dtype))
            elif here and isinstance(member.node, Scatter):
                body, node = self._body(member, number), member.node
                found.append(Atomic(name, member.index, body, node.base, node.kind))
            elif here and not _scans(member):
                found.append(Let(_local(name), self._body(member, number)))
                if name in self.needed:
                    found.append(Store(name, member.index, result))
            elif here and level == "inner" and _scans(member):
                found.append(self._scan(member, number))
                if name in self.needed:
                    found.append(Store(name, member.index, result))
        return (*self._scans_again(found, number), *found)

    def _scan(self, member: Member, number: int) -> Running:
        assert isinstance(member.node, Scan)
        kind, dtype = member.node.kind, member.node.buffer.dtype
        return Running(_local(member.name), kind, self._body(member, number), dtype)

    def _scans_again(self, statements: Sequence[Statement], number: int) -> list[Running]:
        """Return the scans of earlier passes to repeat: blocks do not read what they wrote."""
        needed = {leaf.data[0] for s in statements for leaf in walk(s.value) if leaf.op == "local"}
        again: list[Running] = []
        for member in reversed(self.group.members):
            name = _local(member.name)
            if _scans(member) and self.number[member.name] < number and name in needed:
                again.insert(0, self._scan(member, number))
                inside = walk(again[0].value)
                needed |= {leaf.data[0] for leaf in inside if leaf.op == "local"}
        return again

    def _body(self, member: Member, number: int) -> Expr:
        """Return the member's value, with reads of other members replaced by their values."""

        def change(node: Expr) -> Expr:
            other = self.members.get(node.data[0]) if node.op == "load" else None
            if other is None:
                return node
            lost = other.level == "inner" and not _reduces(other) and not _scans(other)
            if lost and self.number[other.name] != number:
                return self._body(other, number)
            return Expr("local", (), node.dtype, (_local(other.name),))

        return transform(member.body, change)


def _reduces(member: Member) -> bool:
    return isinstance(member.node, Reduction) and member.level == "inner"


def _scans(member: Member) -> bool:
    return isinstance(member.node, Scan)


def _local(buffer: str) -> str:
    return f"v_{buffer}"
