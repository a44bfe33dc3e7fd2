"""The schedule stage: a loop graph becomes a plan of kernels, ATen calls and memory.

In: `LoopGraph`. Out: `Plan`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tc.compiler.core.gate import Gate
from tc.compiler.loops.ir import LoopGraph, Origin, Reduction, Scatter, reads, views_in, writes
from tc.compiler.schedule.fuse import Group, Slot, alone, fuse
from tc.compiler.schedule.in_place import in_place, over_dead
from tc.compiler.schedule.kernels import build
from tc.compiler.schedule.memory import Work, with_memory
from tc.compiler.schedule.order import ordered
from tc.compiler.schedule.plan import Plan
from tc.compiler.schedule.split import split
from tc.compiler.schedule.versions import with_version

NAME_LENGTH = 40


def plan(graph: LoopGraph, gate: Gate, hints: Mapping[str, int] | None = None) -> Plan:
    """Fuse, order, build kernels, plan memory.

    Args:
        hints: symbolic size -> its value at capture.
    """
    slots, decisions = fuse(
        graph, gate, transposes=lambda node: ordered(alone(node)).tile is not None
    )
    slots = with_scatters_alone(slots)
    readers = outside_readers(slots, graph.outputs)
    work: list[Work] = []
    kernels = 0
    for slot in slots:
        if isinstance(slot, Group):
            needed = {name for name in slot.writes() if slot_reads(name, slot, readers)}
            name = f"k{kernels}_{kernel_title(slot)}"
            kernels += 1
            kernel = split(build(ordered(slot, needed), needed, name))
            work.append(with_version(kernel, hints or {}, gate))
        else:
            assert not isinstance(slot, Reduction)
            work.append(slot)  # type: ignore[arg-type]
    buffers = {buffer.name: buffer for node in graph.nodes for buffer in writes(node)}
    work, over, written = in_place(work, graph.inputs, graph.outputs, buffers, gate)
    work, dead, written_over = over_dead(work, graph.outputs, buffers, over, gate)
    steps, reuses = with_memory(work, graph.inputs, graph.outputs, buffers, gate, over, dead)
    return Plan(
        graph.inputs,
        tuple(steps),
        graph.outputs,
        graph.constants,
        tuple(buffers.values()),
        (*graph.decisions, *decisions, *written, *written_over, *reuses),
    )


def with_scatters_alone(slots: Sequence[Slot]) -> list[Slot]:
    """Move scatters out of groups, because their loops are parallelised differently."""
    found: list[Slot] = []
    for slot in slots:
        found.append(slot)
        if isinstance(slot, Group) and len(slot.members) > 1:
            out = [m for m in slot.members if isinstance(m.node, Scatter)]
            found += [alone(member.node) for member in out]
            slot.members[:] = [m for m in slot.members if m not in out]
            if not slot.members:
                found.remove(slot)
    return found


def slot_reads(name: str, slot: Slot, readers: dict[str, list[Slot | None]]) -> bool:
    """Return whether another slot reads the buffer."""
    return any(reader is not slot for reader in readers.get(name, ()))


def outside_readers(slots: Sequence[Slot], outputs: Any) -> dict[str, list[Slot | None]]:
    """Return the readers of each buffer; None means the graph's outputs."""
    readers: dict[str, list[Slot | None]] = {}
    for slot in slots:
        for name in slot.reads() if isinstance(slot, Group) else reads(slot):
            readers.setdefault(name, []).append(slot)
    for view in views_in(tuple(outputs)):
        readers.setdefault(view.buffer, []).append(None)
    return readers


def kernel_title(group: Group) -> str:
    """Return a short name from the ops it computes."""
    origins: list[Origin] = [o for m in group.members for o in m.node.origins]
    names = [o.op.removeprefix("aten.").split(".")[0].lstrip("_") for o in origins]
    text = "_".join(name for name in dict.fromkeys(names) if name.isidentifier())
    return text[:NAME_LENGTH].rstrip("_") or "kernel"
