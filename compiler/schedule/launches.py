"""Fewer launches: small loop nests join others, as a GPU takes longer to start than to run them.

In: a `LoopGraph`, or the groups that fusion made of it. Out: the same with fewer of them. A launch
takes a few microseconds of the CPU; in that time a GPU reads megabytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeGuard

from tc.compiler.core.artifacts import Decision
from tc.compiler.core.gate import Gate
from tc.compiler.loops import index as ix
from tc.compiler.loops.expr import Expr, can_fail, substitute, transform, walk
from tc.compiler.loops.ir import (
    Buffer,
    Extern,
    LoopGraph,
    Nest,
    Node,
    Pointwise,
    Scatter,
    inner_loops,
    reads,
    views_in,
    writes,
)
from tc.compiler.schedule.fuse import Group, Slot, combined, extents, made
from tc.compiler.schedule.products import quotients, running

SMALL = 1 << 14  # elements; a kernel over so few takes no longer than its launch
ADDITIONS = 32  # a GPU computes about 80 in the time in which it reads a float32 from memory
LOADS = 8


# ---------------------------------------------------------------- small values computed by readers


def recomputed(graph: LoopGraph, gate: Gate) -> tuple[LoopGraph, list[Decision]]:
    """Let loop nests that spread a small value over more elements compute it themselves.

    Such a value is, for instance, a batch norm's factor for each channel.
    """
    kept = {view.buffer for view in views_in(tuple(graph.outputs))}
    taken_over = {name for node in graph.nodes for name in _taken_over(node)}
    busy = {b.name for node in graph.nodes if not _is_small(node) for b in _computed(node)}
    nodes: list[Node] = list(graph.nodes)
    decisions: list[Decision] = []
    for node in reversed(graph.nodes):
        if not _is_small(node) or node.buffer.name in kept or taken_over & {*reads(node)}:
            continue
        if busy & {*reads(node)}:  # it will share the kernel that makes its operand
            continue
        name = node.buffer.name
        places = [k for k, other in enumerate(nodes) if name in reads(other)]
        readers = [_with(nodes[k], node) for k in places]
        if not readers or None in readers or not gate.allow("schedule.recompute", name):
            continue
        for k, reader in zip(places, readers, strict=True):
            assert reader is not None
            nodes[k] = reader
            reason = "a launch for so few elements takes longer than to compute them again"
            decisions.append(Decision("recompute", (name, reader.buffer.name), True, reason))
        nodes.remove(node)
    return replace(graph, nodes=tuple(nodes)), decisions


def _taken_over(node: Node) -> tuple[str, ...]:
    """Return the buffers whose memory a node's results take over."""
    if isinstance(node, Scatter):
        return (node.base,)
    return tuple(node.takes_over) if isinstance(node, Extern) else ()


def _computed(node: Node) -> list[Buffer]:
    """Return the buffers that a kernel writes for a node; none for a call."""
    return writes(node) if isinstance(node, Nest) else []


def _is_small(node: Node) -> TypeGuard[Pointwise]:
    """Return whether a node computes a few elements cheaply, and cannot fail."""
    if (
        not isinstance(node, Pointwise)
        or isinstance(node, Scatter)
        or running(node.index, node.vars) is None
    ):
        return False
    few = 0 < (node.buffer.numel.constant or 0) <= SMALL
    cheap = len(node.body.loads()) <= LOADS and not node.body.exceeds(ADDITIONS)
    return few and cheap and not any(n.op == "at" or can_fail(n) for n in walk(node.body))


def _spreads(reader: Nest, small: Pointwise) -> bool:
    """Return whether a nest runs over more elements than a value has."""
    count = ix.product([ix.extent(v) for v in (*reader.vars, *inner_loops(reader))]).constant
    return count is None or count > (small.buffer.numel.constant or 0)


def _with(reader: Node, small: Pointwise) -> Nest | None:
    """Return a nest over more elements that computes the value itself; None if it cannot."""
    if not isinstance(reader, Nest) or not _spreads(reader, small):
        return None
    order = running(small.index, small.vars)
    assert order is not None
    extents = tuple(map(ix.extent, order))
    atoms = [atom for atom in map(ix.atom_of, order) if atom is not None]

    def change(node: Expr) -> Expr:
        if node.op != "load" or node.data[0] != small.buffer.name:
            return node
        places = ix.regrouped(extents, (ix.product(extents),), (node.data[1],))
        return substitute(small.body, dict(zip(atoms, places, strict=True)))

    body = transform(reader.body, change)
    origins = (*small.origins, *(o for o in reader.origins if o not in small.origins))
    changed = replace(reader, body=body, origins=origins)
    if small.buffer.name in reads(changed):  # at a computed position, or as a scatter's base
        return None
    expensive = body.exceeds(2 * ADDITIONS) or quotients(body) > quotients(reader.body)
    return None if expensive else changed


# ---------------------------------------------------------------- small kernels in one launch


def side_by_side(slots: Sequence[Slot], gate: Gate) -> tuple[list[Slot], list[Decision]]:
    """Join small groups of one space that need nothing from each other.

    Such are, for instance, the counters of all batch norms of a model.
    """
    found: list[Slot] = []
    open_groups: dict[tuple[ix.Index, ...], int] = {}  # sizes -> the place of their last group
    decisions: list[Decision] = []
    for slot in slots:
        sizes = _few(slot)
        place = open_groups.get(sizes) if sizes is not None else None
        if sizes is not None and place is not None and isinstance(slot, Group):
            earlier = found[place]
            assert isinstance(earlier, Group)
            between = {name for other in found[place:] for name in made(other)}
            joined = None if between & slot.reads() else _joined(earlier, slot)
            name = slot.members[0].name
            if joined is not None and gate.allow("schedule.side_by_side", name):
                found[place] = joined
                names = tuple(m.name for m in joined.members)
                decisions.append(Decision("fuse", names, True, "one launch for few elements each"))
                continue
        if sizes is not None:
            open_groups[sizes] = len(found)
        elif _decides(slot):
            open_groups.clear()
        found.append(slot)
    return found, decisions


def _decides(slot: Slot) -> bool:
    """Return whether a call defines a number, or raises: what comes later may depend on that."""
    if isinstance(slot, Group):
        return False
    sizes = [size for buffer in writes(slot) for size in buffer.sizes]
    return not sizes or any(size.constant is None for size in sizes)


def _few(slot: Slot) -> tuple[ix.Index, ...] | None:
    """Return the sizes of a pointwise group over few elements; None for all others."""
    if not isinstance(slot, Group) or slot.inner:
        return None
    if any(type(m.node) is not Pointwise or any(map(can_fail, walk(m.body))) for m in slot.members):
        return None
    sizes = extents(slot.outer)
    return sizes if (ix.product(sizes).constant or SMALL + 1) <= SMALL else None


def _joined(group: Group, other: Group) -> Group | None:
    """Return a group with the members of both, if they fit."""
    joined: Group | None = group
    for member in other.members:
        joined = combined(joined, member.node)[0] if joined is not None else None
    return joined
