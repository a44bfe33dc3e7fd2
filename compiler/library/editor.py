"""Edits of ATen graphs: new calls get their fake value, origin and place from what is known."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from tc.compiler.core.artifacts import Decision
from tc.compiler.core.gate import Gate
from tc.compiler.core.origins import STANDS_FOR
from tc.compiler.core.tune import Tuner

aten = torch.ops.aten


@dataclass
class Editor:
    """A graph under change, and what was decided so far.

    Attributes:
        gate: asked before each step, by the name of the pass.
        tuner: measures what is fastest on this machine; None: nothing is timed.
        on_gpu: the same on the graph's GPU, if it has one.
    """

    graph: fx.Graph
    gate: Gate
    tuner: Tuner | None = None
    on_gpu: Tuner | None = None
    decisions: list[Decision] = field(default_factory=list)

    def call(self, like: fx.Node, op: Any, *args: Any, **kwargs: Any) -> fx.Node:
        """Add a call before the node ``like``, whose origin it shares."""
        with self.graph.inserting_before(like):
            made = self.graph.call_function(op, args, kwargs)
        made.meta.update({key: held for key, held in like.meta.items() if key != "val"})
        made.meta["val"] = value_of(made)
        made.meta.setdefault(STANDS_FOR, like.name)
        return made

    def decide(self, kind: str, nodes: list[fx.Node], taken: bool, reason: str) -> bool:
        """Record a choice; the gate may refuse one that would be taken."""
        names = tuple(node.name for node in nodes)
        if taken and not self.gate.allow(f"library.{kind}", ", ".join(names)):
            taken, reason = False, "refused by the gate"
        self.decisions.append(Decision(kind, names, taken, reason))
        return taken


def value_of(node: fx.Node) -> Any:
    """Return what a call gives for the fake values of its arguments."""
    args, kwargs = fx.map_arg((node.args, node.kwargs), lambda used: used.meta["val"])
    with torch.no_grad():
        return node.target(*args, **kwargs)  # type: ignore[operator]


def fake(node: Any) -> torch.Tensor | None:
    """Return a node's fake tensor, or None if it is none."""
    held = node.meta.get("val") if isinstance(node, fx.Node) else None
    return held if isinstance(held, torch.Tensor) else None


def static_shape(node: Any) -> tuple[int, ...] | None:
    """Return the shape of a strided CPU tensor if all of it is known at compile time."""
    held = fake(node)
    return None if held is None or held.device.type != "cpu" else known_shape(node)


def known_shape(node: Any) -> tuple[int, ...] | None:
    """Return the shape of a strided tensor, on any device, if it is known at compile time."""
    held = fake(node)
    if held is None or held.layout is not torch.strided:
        return None
    sizes = (*held.shape, *held.stride())
    return tuple(held.shape) if all(type(size) is int for size in sizes) else None
