"""Cuts a joint graph into forward and backward, and chooses what is kept between the two.

What backward needs of forward's values is either kept or computed again from what is kept. The
choice is a minimum cut: keeping a value costs its bytes, computing again is free for ops that
will be fused, and forbidden for the rest (products, reductions, random draws, library calls).
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from tc.compiler.aot.artifact import describe, is_mutable
from tc.compiler.aot.mincut import INFINITE, FlowNetwork
from tc.compiler.aot.passes import has_effect
from tc.compiler.aot.symbols import SYMBOLIC
from tc.compiler.core.artifacts import Artifact
from tc.compiler.core.gate import Gate

aten = torch.ops.aten

# Ops without the pointwise tag that fuse into their users all the same.
CHEAP = {
    aten._to_copy.default,
    aten.clone.default,
    aten.full.default,
    aten.full_like.default,
    aten.arange.default,
    aten.arange.start,
    aten.arange.start_step,
    aten.scalar_tensor.default,
    aten.copy.default,
    aten.where.self,
    aten.masked_fill.Scalar,
    aten.constant_pad_nd.default,
    operator.getitem,
}


@dataclass(frozen=True)
class Saved:
    """A value kept for backward.

    Attributes:
        name: of its node.
        kind: ``input``, ``output`` (returned to the user too), ``extra`` or ``size``.
        bytes: what keeping it costs; 0 for what is alive anyway.
        reason: why it is kept.
    """

    name: str
    kind: str
    type: str
    bytes: int
    reason: str

    def __str__(self) -> str:
        return f"keep {self.name}: {self.type} ({self.kind}, {self.bytes} bytes), {self.reason}"


@dataclass(frozen=True)
class Partition(Artifact):
    """A joint graph in two.

    Attributes:
        forward: from inputs to what the user gets, then what is kept.
        backward: from what is kept and the gradients of outputs to the gradients of inputs.
        saved: what is kept, in the order in which backward takes it: tensors, then sizes.
        saved_from: where to find each: an input's number, or an output of forward.
        recomputed: names of values that backward computes again.
    """

    forward: fx.Graph
    backward: fx.Graph
    saved: tuple[Saved, ...]
    saved_from: tuple[tuple[str, int], ...]
    saved_tensors: int
    recomputed: tuple[str, ...]

    def __str__(self) -> str:
        total = sum(saved.bytes for saved in self.saved)
        lines = [f"partition: {len(self.saved)} values kept ({total} bytes)"]
        lines += [f"  {saved}" for saved in self.saved]
        if self.recomputed:
            lines.append(f"  computed again in backward: {', '.join(self.recomputed)}")
        return "\n".join(lines)


def partition(
    joint: fx.Graph, inputs: int, returned: int, mutated: Sequence[int], gate: Gate
) -> Partition:
    """Cut a joint graph.

    Args:
        joint: placeholders are the inputs and then gradients of outputs; it returns what the
            user gets and then the gradients of inputs.
        inputs: how many inputs there are.
        returned: how many of the outputs are the user's.
        mutated: inputs that forward writes to, so that they cannot be kept as they are.
        gate: asked before a value is computed again (``aot.recompute.<op>``).
    """
    placeholders = joint.find_nodes(op="placeholder")
    results = list(joint.output_node().args[0])  # type: ignore[arg-type]
    cut = Cut(joint, placeholders[:inputs], placeholders[inputs:], set(mutated), gate)
    kept, reasons = cut.choose([out for out in results[returned:] if isinstance(out, fx.Node)])
    tensors = [node for node in kept if not isinstance(node.meta["val"], SYMBOLIC)]
    sizes = [node for node in kept if isinstance(node.meta["val"], SYMBOLIC)]
    kept = tensors + sizes
    forward, saved_from = _forward(
        joint, placeholders[:inputs], results[:returned], kept, set(mutated), cut
    )
    backward, recomputed = _backward(kept, placeholders[inputs:], results[returned:])
    saved = tuple(
        _describe(node, where, returned, reasons.get(node, ""))
        for node, where in zip(kept, saved_from, strict=True)
    )
    return Partition(forward, backward, saved, tuple(saved_from), len(tensors), recomputed)


class Cut:
    """The choice of what to keep."""

    def __init__(
        self,
        joint: fx.Graph,
        inputs: Sequence[fx.Node],
        tangents: Sequence[fx.Node],
        mutated: set[int],
        gate: Gate,
    ) -> None:
        self.joint = joint
        self.inputs = {node: i for i, node in enumerate(inputs)}
        self.mutated = mutated
        self.gate = gate
        self.backward = set(tangents)
        for node in joint.nodes:
            if node.op == "call_function" and any(a in self.backward for a in node.all_input_nodes):
                self.backward.add(node)
        self._again: dict[fx.Node, bool] = {}

    def choose(self, gradients: Iterable[fx.Node]) -> tuple[list[fx.Node], dict[fx.Node, str]]:
        """Return the values to keep, in graph order, and why each."""
        needed, frontier = self._needed(gradients)
        if not frontier:
            return [], {}
        distance = self._distance(needed)
        network, source, sink = FlowNetwork(), 0, 1
        network.vertex(), network.vertex()
        ends: dict[fx.Node, tuple[int, int]] = {}
        for node in self.joint.nodes:
            if node in needed and node not in self.backward and node.op != "get_attr":
                ends[node] = network.vertex(), network.vertex()
                network.edge(*ends[node], self.cost(node, distance.get(node, 0)))
        for node, (enter, leave) in ends.items():
            if not self.computable_again(node):
                network.edge(source, enter, INFINITE)
            for user in node.users:
                if user in ends and self.computable_again(user):
                    network.edge(leave, ends[user][0], INFINITE)
            if node in frontier:
                network.edge(leave, sink, INFINITE)
        flow, near = network.source_side(source, sink)
        if flow >= INFINITE:  # a view of something that cannot be kept: keep what is asked for
            return [n for n in ends if n in frontier], dict.fromkeys(frontier, "no cut found")
        kept = [n for n, (enter, leave) in ends.items() if enter in near and leave not in near]
        return kept, {node: self._why(node, frontier) for node in kept}

    def _needed(self, gradients: Iterable[fx.Node]) -> tuple[set[fx.Node], set[fx.Node]]:
        """Return all nodes the gradients depend on, and forward's among them used in backward."""
        needed: set[fx.Node] = set()
        frontier = {node for node in gradients if node not in self.backward}
        stack = list(gradients)
        while stack:
            node = stack.pop()
            if node in needed:
                continue
            needed.add(node)
            stack += node.all_input_nodes
            if node in self.backward:
                frontier |= {a for a in node.all_input_nodes if a not in self.backward}
        return needed, {node for node in frontier if node.op != "get_attr"}

    def _distance(self, needed: set[fx.Node]) -> dict[fx.Node, int]:
        """Return how many steps each forward node is away from its next use in backward."""
        distance: dict[fx.Node, int] = {}
        for node in reversed(self.joint.nodes):
            if node not in needed or node in self.backward:
                continue
            uses = [0 for user in node.users if user in self.backward]
            uses += [distance[user] + 1 for user in node.users if user in distance]
            distance[node] = min(uses, default=0)
        return distance

    def cost(self, node: fx.Node, distance: int) -> int:
        """Return what keeping a node's value costs; slightly more the farther from its use."""
        value = node.meta["val"]
        if isinstance(value, SYMBOLIC):
            return 1
        if not isinstance(value, torch.Tensor) or is_view(node):
            return INFINITE
        if node in self.inputs and self.inputs[node] not in self.mutated:
            return 1 + (0 if value.requires_grad else size_in_bytes(value) // 2)
        return 1 + int(size_in_bytes(value) * 1.1 ** min(distance, 50))

    def computable_again(self, node: fx.Node) -> bool:
        """Whether backward may compute this value once more."""
        if node not in self._again:
            self._again[node] = self._computable_again(node)
        return self._again[node]

    def _computable_again(self, node: fx.Node) -> bool:
        if node.op != "call_function" or isinstance(node.meta["val"], SYMBOLIC):
            return False
        if is_view(node):
            return True
        target: Any = node.target
        if has_effect(node):
            return False
        pointwise = isinstance(target, torch._ops.OpOverload) and torch.Tag.pointwise in target.tags
        cheap = target in CHEAP or pointwise
        return cheap and (target is operator.getitem or self.gate.allow(f"aot.recompute.{target}"))

    def _why(self, node: fx.Node, frontier: set[fx.Node]) -> str:
        if node in self.inputs:
            return "an input, alive anyway"
        if not self.computable_again(node):
            return f"{node.target} is not done twice"
        if node in frontier:
            return "backward uses it"
        return "cheapest to keep on the way to what backward uses"


def is_view(node: fx.Node) -> bool:
    """Whether a node's value is its argument's memory seen otherwise."""
    target = node.target
    if target is operator.getitem:
        source = node.args[0]
        return isinstance(source, fx.Node) and is_view(source)
    if not isinstance(target, torch._ops.OpOverload) or is_mutable(target):
        return False
    if target is aten._unsafe_view.default:
        return True
    returns = target._schema.returns
    return any(r.alias_info is not None and not r.alias_info.is_write for r in returns)


def size_in_bytes(value: torch.Tensor) -> int:
    """Return a tensor's size, taking symbolic sizes at their hints."""
    count = value.dtype.itemsize
    for size in value.shape:
        count *= int(size.node.hint or 1) if isinstance(size, torch.SymInt) else int(size)
    return count


def _forward(
    joint: fx.Graph,
    inputs: Sequence[fx.Node],
    returned: Sequence[Any],
    kept: Sequence[fx.Node],
    mutated: set[int],
    cut: Cut,
) -> tuple[fx.Graph, list[tuple[str, int]]]:
    """Return forward's graph, and where each kept value is found after it ran."""
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    effects = [n for n in joint.nodes if n.op == "call_function" and has_effect(n)
               and n not in cut.backward]  # fmt: skip
    outputs = [*returned, *kept]
    wanted = _ancestors([n for n in [*outputs, *effects] if isinstance(n, fx.Node)])
    for node in joint.nodes:
        if node in inputs or (node in wanted and node.op != "placeholder"):
            copies[node] = graph.node_copy(node, copies.__getitem__)
    results = [copies[out] if isinstance(out, fx.Node) else out for out in returned]
    places: list[tuple[str, int]] = []
    for node in kept:
        if node in inputs and inputs.index(node) not in mutated:
            places.append(("input", inputs.index(node)))
            continue
        value = copies[node]
        if node in inputs:  # its value before forward writes to it
            first = next(n for n in graph.nodes if n.op != "placeholder")
            with graph.inserting_before(first):
                value = graph.call_function(aten.clone.default, (value,))
            value.meta.update(node.meta)
        if value in results:
            places.append(("output", results.index(value)))
        else:
            places.append(("output", len(results)))
            results.append(value)
    graph.output(results)
    return graph, places


def _backward(
    kept: Sequence[fx.Node], tangents: Sequence[fx.Node], gradients: Sequence[Any]
) -> tuple[fx.Graph, tuple[str, ...]]:
    """Return backward's graph, and the names of what it computes again."""
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for node in (*kept, *tangents):
        copies[node] = graph.placeholder(node.name)
        copies[node].meta.update(node.meta)
    wanted = _ancestors([n for n in gradients if isinstance(n, fx.Node)], stop=set(copies))
    forward = _forward_nodes(wanted, tangents)
    joint = tangents[0].graph if tangents else kept[0].graph
    for node in joint.nodes:
        if node in wanted and node not in copies:
            copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output([copies[out] if isinstance(out, fx.Node) else out for out in gradients])
    again = [n.name for n in joint.nodes if n in forward and n not in kept and not is_view(n)]
    return graph, tuple(again)


def _forward_nodes(wanted: set[fx.Node], tangents: Sequence[fx.Node]) -> set[fx.Node]:
    """Return those of the wanted computed nodes that depend on no gradient of an output."""
    depends = set(tangents)
    nodes = tangents[0].graph.nodes if tangents else ()
    for node in nodes:
        if any(a in depends for a in node.all_input_nodes):
            depends.add(node)
    return {n for n in wanted if n.op == "call_function" and n not in depends}


def _ancestors(nodes: Iterable[fx.Node], stop: set[fx.Node] | None = None) -> set[fx.Node]:
    """Return nodes and all they depend on, not going beyond those in ``stop``."""
    found: set[fx.Node] = set()
    stack = list(nodes)
    while stack:
        node = stack.pop()
        if node not in found:
            found.add(node)
            if stop is None or node not in stop:
                stack += node.all_input_nodes
    return found


def _describe(node: fx.Node, where: tuple[str, int], returned: int, reason: str) -> Saved:
    value = node.meta["val"]
    if isinstance(value, SYMBOLIC):
        return Saved(node.name, "size", describe(value), 0, "a size that backward uses")
    kind = where[0]
    if kind == "output" and where[1] >= returned:
        kind = "extra"
    cost = size_in_bytes(value) if kind == "extra" else 0
    return Saved(node.name, kind, describe(value), cost, reason)
