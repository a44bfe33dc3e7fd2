"""Chooses which values forward saves for backward, and which ones backward recomputes.

The choice is a minimum cut of forward's graph. Saving a value costs its bytes. Recomputing it is
free for ops that will be fused, as long as the chain back to a saved value stays short, and
forbidden for the rest (products, reductions, random draws, library calls). A checkpointed region is
recomputed from its inputs, except random draws and the values that its policy saves.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import fx

from tc.compiler.aot.artifact import CALLED, is_view
from tc.compiler.aot.mincut import INFINITE, FlowNetwork
from tc.compiler.aot.passes import has_effect
from tc.compiler.aot.recompute import add_formulas
from tc.compiler.aot.regions import KEEP, REGION
from tc.compiler.core.gate import Gate
from tc.compiler.core.symbolic import SYMBOLIC

aten = torch.ops.aten

# Ops that fuse into their users although they lack the pointwise tag.
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
}
# Pointwise ops that cost about as much as reading a value from memory, by name.
LIGHT = frozenset((
    "abs", "add", "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "ceil", "clamp",
    "clamp_max", "clamp_min", "div", "eq", "floor", "fmod", "ge", "gt", "isinf", "isnan", "le",
    "logical_and", "logical_not", "logical_or", "lt", "masked_fill", "maximum", "minimum", "mul",
    "ne", "neg", "reciprocal", "relu", "remainder", "round", "sign", "sub", "trunc", "where",
    "square",
))  # fmt: skip
# Pointwise ops whose result a CPU reads in a fraction of the time that computing it takes, by name.
EXPENSIVE = frozenset((
    "atan2", "cosh", "digamma", "erfinv", "hypot", "igamma", "igammac", "lgamma", "mvlgamma",
    "nextafter", "polygamma", "sinh", "special_entr", "special_erfcx", "special_i0e", "special_i1",
    "special_i1e", "special_log_ndtr", "special_ndtri", "special_xlog1py", "special_zeta", "tan",
))  # fmt: skip
HEAVY = 8  # the cost of any other pointwise op (an exponential)
SMALL_POWERS = (-2, -1, -0.5, 0, 0.5, 1, 2, 3)  # exponents that take products and a root
LIMIT = 128  # limit of work for each element on the chain from a saved value to a recomputed one
REGION_PENALTY = (
    1 << 12
)  # a value in a checkpointed region is saved only if it cannot be recomputed


class MinCutPartition:
    """The choice of the values to save.

    Attributes:
        backward: nodes that depend on a gradient of an output.
        instead: result -> the node that backward computes in its place.
        once: values of forward that backward must not recompute, and the reason for each.
    """

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
        self.instead = add_formulas(joint, gate)
        self.twins = set(self.instead.values())
        self.backward = set(tangents)
        for node in joint.nodes:
            if node.op == "call_function" and any(a in self.backward for a in node.all_input_nodes):
                self.backward.add(node)
        self.once: dict[fx.Node, str] = {}

    def choose(self, gradients: Iterable[fx.Node]) -> tuple[list[fx.Node], dict[fx.Node, str]]:
        """Return the values to save, in graph order, and the reason for each."""
        needed, frontier = self._needed(gradients)
        if not frontier:
            return [], {}
        forward = [n for n in self.joint.nodes if n in needed and n not in self.backward]
        self._find_done_once(forward, needed)
        distance = self._distance(forward)
        network, source, sink = FlowNetwork(), 0, 1
        network.vertex(), network.vertex()
        ends: dict[fx.Node, tuple[int, int]] = {}
        for node in forward:
            if node.op != "get_attr":
                ends[node] = network.vertex(), network.vertex()
                network.edge(*ends[node], self.cost(node, distance[node]))
        for node, (enter, leave) in ends.items():
            if node in self.once:
                network.edge(source, enter, INFINITE)
            else:
                for source_node in self.takes(node):
                    if source_node in ends:
                        network.edge(ends[source_node][1], enter, INFINITE)
            if node in frontier:
                network.edge(leave, sink, INFINITE)
        flow, near = network.source_side(source, sink)
        if flow >= INFINITE:  # a view of a value that cannot be saved: save the view itself
            return [n for n in ends if n in frontier], dict.fromkeys(frontier, "no cut found")
        kept = [n for n, (enter, leave) in ends.items() if enter in near and leave not in near]
        return kept, {node: self._why(node, frontier) for node in kept}

    def takes(self, node: fx.Node) -> Sequence[fx.Node]:
        """Return the nodes from which backward recomputes a node's value."""
        return [self.instead[node]] if node in self.instead else node.all_input_nodes

    def _needed(self, gradients: Iterable[fx.Node]) -> tuple[set[fx.Node], set[fx.Node]]:
        """Return all nodes that gradients depend on, and those of forward that backward uses."""
        needed: set[fx.Node] = set()
        frontier = {node for node in gradients if node not in self.backward}
        stack = list(gradients)
        while stack:
            node = stack.pop()
            if node in needed:
                continue
            needed.add(node)
            stack += node.all_input_nodes
            stack += self.takes(node)
            if node in self.backward:
                frontier |= {a for a in node.all_input_nodes if a not in self.backward}
        return needed, {node for node in frontier if node.op != "get_attr"}

    def _distance(self, forward: Sequence[fx.Node]) -> dict[fx.Node, int]:
        """Return the number of steps from each forward node to its next use in backward."""
        distance: dict[fx.Node, int] = {}
        for node in reversed(forward):
            uses = [0 for user in node.users if user in self.backward]
            uses += [distance[user] + 1 for user in node.users if user in distance]
            distance[node] = min(uses, default=0)
        return distance

    def _find_done_once(self, forward: Sequence[fx.Node], needed: set[fx.Node]) -> None:
        """Find the values that backward must not recompute."""
        work: dict[fx.Node, int] = {}
        for node in forward:
            before = max((work[a] for a in self.takes(node) if a in work), default=0)
            own = work_of(node)
            why = self._why_once(node, needed)
            if why is None and REGION not in node.meta and before + own > LIMIT:
                why = "recomputing it would take too many steps"
            if why is not None:
                self.once[node] = why
            work[node] = before + own if why is None else 0

    def _why_once(self, node: fx.Node, needed: set[fx.Node]) -> str | None:
        target: Any = node.target
        if node in self.inputs:
            written = self.inputs[node] in self.mutated
            return "an input that is written to" if written else "an input, which is alive anyway"
        if is_size_expression(node):
            return None
        if node.op != "call_function" or isinstance(node.meta["val"], SYMBOLIC):
            return "a size that backward uses"
        if is_view(node):
            return None
        if node.meta.get(KEEP):
            return "the checkpoint's policy keeps it"
        if node in self.instead:
            return None
        if target is operator.getitem:
            return self.once.get(node.args[0])  # type: ignore[arg-type]
        if has_effect(node):
            return f"{target} must not be recomputed"
        if REGION in node.meta and self.gate.allow(f"aot.checkpoint.{target}", node.name):
            return "it leaves a checkpoint" if self._leaves_region(node, needed) else None
        cheap = target in CHEAP or is_pointwise(target)
        if not cheap or CALLED in node.meta:
            return f"{target} must not be recomputed"
        if is_expensive(node):
            return "computing it takes longer than reading it"
        allowed = self.gate.allow(f"aot.recompute.{target}", node.name)
        return None if allowed else "backward uses it"

    def _leaves_region(self, node: fx.Node, needed: set[fx.Node]) -> bool:
        """Return whether a node outside of its checkpointed region needs a node's value."""
        for user in node.users:
            if user.meta.get(REGION) is not node.meta[REGION]:
                if user in needed:
                    return True
            elif is_view(user) and self._leaves_region(user, needed):
                return True
        return False

    def cost(self, node: fx.Node, distance: int) -> int:
        """Return the cost of saving a node's value, slightly more if it is far from its use."""
        value = node.meta["val"]
        if isinstance(value, SYMBOLIC):  # kernels take the symbol itself
            return INFINITE if is_size_expression(node) else 1
        if not isinstance(value, torch.Tensor) or is_view(node) or node in self.twins:
            return INFINITE
        if node in self.inputs and self.inputs[node] not in self.mutated:
            return 1 + (0 if value.requires_grad else size_in_bytes(value) // 2)
        cost = 1 + int(size_in_bytes(value) * 1.1 ** min(distance, 50))
        return cost * REGION_PENALTY if REGION in node.meta and node not in self.once else cost

    def _why(self, node: fx.Node, frontier: set[fx.Node]) -> str:
        if node in self.once:
            return self.once[node]
        if node in frontier:
            return "backward uses it"
        return "the cheapest value to keep of those that backward's inputs are computed from"


def is_size_expression(node: fx.Node) -> bool:
    """Return whether a node computes an integer from sizes."""
    if node.op != "call_function" or not isinstance(node.meta.get("val"), torch.SymInt):
        return False
    return not isinstance(node.target, torch._ops.OpOverload)


def is_pointwise(target: Any) -> bool:
    """Return whether each element of an op's result comes from one of each argument."""
    return isinstance(target, torch._ops.OpOverload) and torch.Tag.pointwise in target.tags


def is_expensive(node: fx.Node) -> bool:
    """Return whether a pointwise op takes a CPU longer than to read its result."""
    if node.meta["val"].device.type != "cpu" or node.target in CHEAP:
        return False
    name = _name(node.target)
    return name in EXPENSIVE or (name == "pow" and node.args[1] not in SMALL_POWERS)


def _name(target: Any) -> str:
    found: str = target._schema.name
    return found.rpartition("::")[2]


def work_of(node: fx.Node) -> int:
    """Return the cost of computing an element of a node's value, in reads from memory."""
    if node.op != "call_function" or is_view(node) or node.target is operator.getitem:
        return 0
    if is_size_expression(node):
        return 0
    if not is_pointwise(node.target):
        return 1
    return 1 if _name(node.target) in LIGHT else HEAVY


def size_in_bytes(value: torch.Tensor) -> int:
    """Return a tensor's size, taking symbolic sizes at their hints."""
    count = value.dtype.itemsize
    for size in value.shape:
        count *= int(size.node.hint or 1) if isinstance(size, torch.SymInt) else int(size)
    return count
