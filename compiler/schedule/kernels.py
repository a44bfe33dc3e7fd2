"""Kernels: a fused group becomes sections of statements, in one or more passes over a row.

In: an ordered group and the buffers read outside it. Out: a `Kernel`. A value stays in a register
if its readers are in the same pass. If they are in a later pass, it is recomputed, or written to a
row of scratch memory. It is written to its buffer if a step outside of the group reads it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tc.compiler.core.machine import caches
from tc.compiler.loops import index as ix
from tc.compiler.loops.expr import Expr, is_affine, load, transform
from tc.compiler.loops.index import Index
from tc.compiler.loops.ir import Origin, Reduction, Scan, Scatter, reads, row_major
from tc.compiler.loops.ops import CHEAP
from tc.compiler.schedule.fuse import Group, Member, extents
from tc.compiler.schedule.order import Order
from tc.compiler.schedule.plan import (
    Accumulate,
    Atomic,
    Kernel,
    Let,
    Running,
    Scratch,
    Section,
    Statement,
    Store,
)

# Up to this cost a value is recomputed rather than stored in a row of scratch memory.
AGAIN = 2


@dataclass
class _Passes:
    """The pass in which each member runs, and how its value reaches its readers."""

    number: dict[str, int] = field(default_factory=dict)
    ready: dict[str, int] = field(default_factory=dict)


def build(order: Order, needed: set[str], name: str) -> Kernel:
    """Make a kernel of an ordered group; ``needed`` are the buffers read outside it."""
    group, lane = order.group, order.lane
    passes = _passes(group)
    writer = _Writer(group, lane, needed, passes)
    sections: list[Section] = []
    for number in range(max(passes.ready.values(), default=0) + 1):
        row = writer.statements(number, "row")
        if row:
            sections.append(Section("row", row))
        inner = writer.statements(number, "inner")
        if inner:
            sections.append(Section("inner", inner))
    origins: dict[Origin, None] = {}
    for member in group.members:
        origins.update(dict.fromkeys(member.node.origins))
    return Kernel(
        name,
        group.outer,
        group.inner,
        tuple(sections),
        lane,
        tuple(writer.scratch.values()),
        tuple(m.name for m in group.members),
        tuple(origins),
        order.tile,
    )


def _passes(group: Group) -> _Passes:
    """Return the pass of each member; a reduction's result is available in the next pass."""
    found = _Passes()
    for member in group.members:
        own = [name for name in reads(member.node) if name in found.ready]
        number = max((found.ready[name] for name in own), default=0)
        found.number[member.name] = number
        done = (
            number + 1 if isinstance(member.node, Reduction) and member.level == "inner" else number
        )
        found.ready[member.name] = done
    return found


class _Writer:
    """Statements of a kernel, pass by pass."""

    def __init__(self, group: Group, lane: Index | None, needed: set[str], passes: _Passes) -> None:
        self.group, self.lane, self.needed, self.passes = group, lane, needed, passes
        self.members = {member.name: member for member in group.members}
        self.scratch: dict[str, Scratch] = {}
        self.placed: dict[str, str] = {}
        used: dict[str, set[int]] = {member.name: set() for member in group.members}
        for member in reversed(group.members):  # what reads a value comes before it
            name, number = member.name, passes.number[member.name]
            placed = self.placed[name] = self._placement(member, max(used[name], default=number))
            for other in used.keys() & reads(member.node):
                used[other] |= {number} | (used[name] if placed == "again" else set())

    def _placement(self, member: Member, last: int) -> str:
        """Return how later passes get a value: ``local``, ``again``, ``scratch`` or ``memory``.

        Args:
            last: the last pass that needs the value.
        """
        if member.level == "row" or isinstance(member.node, Reduction):
            return "local"
        later = last > self.passes.number[member.name]
        if not later or member.name in self.needed:
            return "memory" if later else "local"
        # Elements of a scan cannot be recomputed one by one, and others would be found again.
        once = isinstance(member.node, Scan) or not is_affine(member.body, self.group.inner)
        if member.body.cost() <= AGAIN and not once:
            return "again"
        extent = ix.product(extents(self.group.inner))
        dtype = member.node.buffer.dtype
        count = extent.constant
        if self.lane is None and count is not None and count * dtype.itemsize <= caches().first:
            name = f"row_{member.name}"
            self.scratch[member.name] = Scratch(name, dtype, extent)
            return "scratch"
        if member.body.cost() <= CHEAP and not once:
            return "again"
        self.needed.add(member.name)
        return "memory"

    def statements(self, number: int, level: str) -> tuple[Statement, ...]:
        """What runs at a level in a pass."""
        found: list[Statement] = []
        for member in self.group.members:
            if self.passes.number[member.name] == number and member.level == level:
                found += self._member(member, number)
        if level == "row":
            for member in self.group.members:
                node = member.node
                done = self.passes.ready[member.name] == number
                reduced = isinstance(node, Reduction) and member.level == "inner"
                if reduced and done and member.name in self.needed:
                    value = Expr("local", (), node.buffer.dtype, (_local(member.name),))
                    found.insert(0, Store(member.name, member.index, value))
        return tuple(found)

    def _member(self, member: Member, number: int) -> list[Statement]:
        name, node = member.name, member.node
        body = self._body(member, number)
        if isinstance(node, Reduction) and member.level == "inner":
            return [Accumulate(_local(name), node.kind, body, node.buffer.dtype)]
        if isinstance(node, Scatter):
            return [Atomic(name, member.index, body, node.base, node.kind)]
        made: Let | Running = Let(_local(name), body)
        if isinstance(node, Scan):
            made = Running(_local(name), node.kind, body, node.buffer.dtype)
        found: list[Statement] = [made]
        value = Expr("local", (), node.buffer.dtype, (_local(name),))
        if name in self.needed:
            found.append(Store(name, member.index, value))
        if name in self.scratch:
            found.append(Store(self.scratch[name].name, row_major(self.group.inner), value))
        return found

    def _body(self, member: Member, number: int) -> Expr:
        """Return the member's value, with reads of other members replaced by their storage."""

        def change(node: Expr) -> Expr:
            if node.op != "load" or node.data[0] not in self.members:
                return node
            other = self.members[node.data[0]]
            placed = self.placed[other.name]
            if placed == "local" or self.passes.number[other.name] == number:
                return Expr("local", (), node.dtype, (_local(other.name),))
            if placed == "again":
                return self._body(other, number)
            if placed == "scratch":
                return load(self.scratch[other.name].name, row_major(self.group.inner), node.dtype)
            return node

        return transform(member.body, change)


def _local(buffer: str) -> str:
    return f"v_{buffer}"
