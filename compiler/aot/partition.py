"""Partitions a joint graph into forward and backward; `cut` chooses the saved values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import fx

from tc.compiler.aot.artifact import is_view
from tc.compiler.aot.cut import MinCutPartition, size_in_bytes
from tc.compiler.aot.passes import has_effect
from tc.compiler.aot.recompute import drop_formulas
from tc.compiler.aot.regions import REGION
from tc.compiler.aot.symbols import SizeNodes
from tc.compiler.core.artifacts import Artifact
from tc.compiler.core.gate import Gate
from tc.compiler.core.nodetext import describe, short
from tc.compiler.core.origins import line_of
from tc.compiler.core.symbolic import SYMBOLIC

aten = torch.ops.aten
Takes = Callable[[fx.Node], Sequence[fx.Node]]


@dataclass(frozen=True)
class Saved:
    """A value that forward saves for backward.

    Attributes:
        name: the name of its node.
        kind: ``input``, ``output`` (returned to the user too), ``extra`` or ``size``.
        bytes: the bytes that saving it costs; 0 for values that are alive anyway.
        reason: why it is saved.
        line: the user's line that made it, ``file:line``; empty for inputs.
    """

    name: str
    kind: str
    type: str
    bytes: int
    reason: str
    line: str = ""

    def __str__(self) -> str:
        what = f"keep {self.name}: {self.type} ({self.kind}, {self.bytes} bytes), {self.reason}"
        return what + (f"  # {self.line}" if self.line else "")


@dataclass(frozen=True)
class Recomputed:
    """A value that backward recomputes.

    Attributes:
        bytes: the bytes that saving it would have cost.
        reason: why it is not saved.
        line: the user's line that it is computed for.
    """

    name: str
    op: str
    type: str
    bytes: int
    reason: str
    line: str = ""

    def __str__(self) -> str:
        what = f"again {self.name}: {self.type} = {self.op} ({self.bytes} bytes), {self.reason}"
        return what + (f"  # {self.line}" if self.line else "")


@dataclass(frozen=True)
class Partition(Artifact):
    """A joint graph divided into forward and backward.

    Attributes:
        forward: from inputs to the user's outputs, then the saved values.
        backward: from the saved values and the gradients of outputs to the gradients of inputs.
        saved: the saved values, in the order of backward's inputs: tensors, then sizes.
        saved_from: where to find each: an input's number, or an output of forward.
        recomputed: the values that backward recomputes.
        inputs: names of the joint graph's inputs.
    """

    forward: fx.Graph
    backward: fx.Graph
    saved: tuple[Saved, ...]
    saved_from: tuple[tuple[str, int], ...]
    saved_tensors: int
    recomputed: tuple[Recomputed, ...]
    inputs: tuple[str, ...]

    def facts(self) -> dict[str, Any]:
        """Return the choice as plain values: ``bytes``, ``inputs``, ``kept`` and ``again``."""
        return {
            "bytes": sum(saved.bytes for saved in self.saved),
            "inputs": [saved.name for saved in self.saved if saved.kind == "input"],
            "kept": [asdict(saved) for saved in self.saved if saved.kind != "input"],
            "again": [asdict(value) for value in self.recomputed],
        }

    def __str__(self) -> str:
        total = sum(saved.bytes for saved in self.saved)
        lines = [f"partition: {len(self.saved)} values kept ({total} bytes)"]
        lines += [f"  {value}" for value in (*self.saved, *self.recomputed)]
        return "\n".join(lines)


def partition(
    joint: fx.Graph, inputs: int, returned: int, mutated: Sequence[int], gate: Gate
) -> Partition:
    """Partition a joint graph.

    Args:
        joint: placeholders are the inputs and then gradients of outputs; it returns the user's
            outputs and then the gradients of inputs.
        inputs: the number of inputs.
        returned: the number of outputs that are the user's.
        mutated: inputs that forward writes to, so that they cannot be saved as they are.
        gate: asked before a value is recomputed (``aot.recompute.<op>``).
    """
    placeholders = joint.find_nodes(op="placeholder")
    # The cut adds formulas to the graph and merges equal nodes, copies among the results included.
    cut = MinCutPartition(joint, placeholders[:inputs], placeholders[inputs:], set(mutated), gate)
    results = list(joint.output_node().args[0])  # type: ignore[arg-type]
    gradients = [out for out in results[returned:] if isinstance(out, fx.Node)]
    kept, reasons = cut.choose(gradients)
    kept = [*kept, *_lacking(joint, [*kept, *placeholders[inputs:]], gradients, cut)]
    tensors = [node for node in kept if not isinstance(node.meta["val"], SYMBOLIC)]
    sizes = [node for node in kept if isinstance(node.meta["val"], SYMBOLIC)]
    kept = tensors + sizes
    forward, saved_from = _forward(
        joint, placeholders[:inputs], results[:returned], kept, set(mutated), cut
    )
    backward, recomputed = _backward(kept, placeholders[inputs:], results[returned:], cut)
    drop_formulas(joint, cut.instead)
    saved = tuple(
        _describe(node, where, returned, reasons.get(node, ""))
        for node, where in zip(kept, saved_from, strict=True)
    )
    names = tuple(node.name for node in placeholders[:inputs])
    return Partition(forward, backward, saved, tuple(saved_from), len(tensors), recomputed, names)


def _lacking(
    joint: fx.Graph, given: Sequence[fx.Node], gradients: Sequence[fx.Node], cut: MinCutPartition
) -> list[fx.Node]:
    """Return nodes of the symbols in backward's sizes that none of its inputs has as a size.

    From ``s0 // 2 + 1`` alone backward could not compute ``s0``.
    """
    found: set[Any] = set()
    for node in given:
        value = node.meta["val"]
        sizes = value.shape if isinstance(value, torch.Tensor) else (value,)
        found.update(size.node.expr for size in sizes if isinstance(size, SYMBOLIC))
    nodes = [*given, *_ancestors(gradients, cut.takes, stop=set(given))]
    missing = {
        symbol
        for node in nodes
        for size in getattr(node.meta.get("val"), "shape", ())
        if isinstance(size, SYMBOLIC)
        for symbol in size.node.expr.free_symbols
    } - found
    if not missing:
        return []
    homes, placeholders = SizeNodes(joint), joint.find_nodes(op="placeholder")
    for node in joint.nodes:
        value = node.meta.get("val")
        own = node not in cut.backward and node not in given
        if own and (node.op == "placeholder" or isinstance(value, SYMBOLIC)):
            homes.add_input(node, value)
    known = sorted(missing & {*homes.nodes, *homes.homes}, key=str)
    with joint.inserting_after(placeholders[-1]):
        return [homes.nodes.get(symbol) or homes.symbol(symbol) for symbol in known]


def _forward(
    joint: fx.Graph,
    inputs: Sequence[fx.Node],
    returned: Sequence[Any],
    kept: Sequence[fx.Node],
    mutated: set[int],
    cut: MinCutPartition,
) -> tuple[fx.Graph, list[tuple[str, int]]]:
    """Return forward's graph, and where each saved value is found after the run."""
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    effects = [n for n in joint.nodes if n.op == "call_function" and has_effect(n)
               and n not in cut.backward]  # fmt: skip
    outputs = [*returned, *kept]
    wanted = _ancestors([n for n in [*outputs, *effects] if isinstance(n, fx.Node)])
    number = {node: i for i, node in enumerate(inputs)}
    for node in joint.nodes:
        if node in number or (node in wanted and node.op != "placeholder"):
            copies[node] = graph.node_copy(node, copies.__getitem__)
    results = [copies[out] if isinstance(out, fx.Node) else out for out in returned]
    found: dict[fx.Node, int] = {}
    for i, result in enumerate(results):
        if isinstance(result, fx.Node):
            found.setdefault(result, i)
    places: list[tuple[str, int]] = []
    for node in kept:
        if node in number and number[node] not in mutated:
            places.append(("input", number[node]))
            continue
        value = copies[node]
        if node in number:  # its value before forward writes to it
            first = next(n for n in graph.nodes if n.op != "placeholder")
            with graph.inserting_before(first):
                value = graph.call_function(aten.clone.default, (value,))
            value.meta.update(node.meta)
        if value not in found:
            found[value] = len(results)
            results.append(value)
        places.append(("output", found[value]))
    graph.output(results)
    return graph, places


def _backward(
    kept: Sequence[fx.Node],
    tangents: Sequence[fx.Node],
    gradients: Sequence[Any],
    cut: MinCutPartition,
) -> tuple[fx.Graph, tuple[Recomputed, ...]]:
    """Return backward's graph, and the recomputed values: each comes just before its use."""
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for node in (*kept, *tangents):
        copies[node] = graph.placeholder(node.name)
        copies[node].meta.update(node.meta)
    results = [out for out in gradients if isinstance(out, fx.Node)]
    wanted = _ancestors(results, cut.takes, stop=set(copies))
    again: list[fx.Node] = []
    for root in (*(n for n in cut.joint.nodes if n in wanted and n in cut.backward), *results):
        for node in _missing(root, copies, cut.takes):
            if node in cut.instead:
                copies[node] = copies[cut.instead[node]]
                continue
            copies[node] = graph.node_copy(node, copies.__getitem__)
            if node not in cut.backward and node.op != "get_attr" and not is_view(node):
                again.append(node)
    graph.output([copies[out] if isinstance(out, fx.Node) else out for out in gradients])
    return graph, tuple(map(_describe_again, again))


def _missing(root: fx.Node, copies: dict[fx.Node, fx.Node], takes: Takes) -> Iterable[fx.Node]:
    """Yield a node and its dependencies that have no copy yet, dependencies first.

    The caller must copy each before it requests the next.
    """
    stack = [root]
    while stack:
        node = stack[-1]
        # A gradient may be a saved value itself; backward has no use for what that is made of.
        missing = [] if node in copies else [a for a in takes(node) if a not in copies]
        stack += reversed(missing)
        if not missing:
            stack.pop()
            if node not in copies:
                yield node


def _inputs(node: fx.Node) -> Sequence[fx.Node]:
    return node.all_input_nodes


def _ancestors(
    nodes: Iterable[fx.Node], takes: Takes = _inputs, stop: set[fx.Node] | None = None
) -> set[fx.Node]:
    """Return nodes and all their dependencies, up to those in ``stop``."""
    found: set[fx.Node] = set()
    stack = list(nodes)
    while stack:
        node = stack.pop()
        if node not in found:
            found.add(node)
            if stop is None or node not in stop:
                stack += takes(node)
    return found


def _describe(node: fx.Node, where: tuple[str, int], returned: int, reason: str) -> Saved:
    value = node.meta["val"]
    line = line_of(node)
    if isinstance(value, SYMBOLIC):
        return Saved(node.name, "size", describe(value), 0, "a size that backward uses", line)
    kind = where[0]
    if kind == "output" and where[1] >= returned:
        kind = "extra"
    cost = size_in_bytes(value) if kind == "extra" else 0
    return Saved(node.name, kind, describe(value), cost, reason, line)


def _describe_again(node: fx.Node) -> Recomputed:
    value = node.meta["val"]
    region = node.meta.get(REGION)
    reason = "cheap" if region is None else f"in {region.name}"
    cost = size_in_bytes(value) if isinstance(value, torch.Tensor) else 0
    return Recomputed(node.name, short(node.target), describe(value), cost, reason, line_of(node))
