"""A captured graph cut into parts that are compiled one by one and run in order.

In: a graph, and for each of its operations the number of its part. Out: the parts as graphs of
their own, then one callable that runs them. A cut separates what would be one node of autograd, and
nothing is fused across it: gradients of some parts can be sent while others are computed
(`buckets`), and equal parts be compiled once (`regions`).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.fx._lazy_graph_module import _LazyGraphModule

from tc import trace
from tc.compiler.aot_dispatch import EAGER_MARKS, graph_examples
from tc.compiler.cache.graph_key import Key, key_of
from tc.compiler.capture.hook import never_trace
from tc.compiler.capture.torch_api.fake_calls import writes_first
from tc.compiler.capture.torch_api.transforms import LEVELLED
from tc.compiler.core.graphtext import PLACE
from tc.compiler.core.memory import storage_id
from tc.compiler.core.modes import SETS_MODES, Settings, put_back
from tc.compiler.core.symbolic import hint

Compiled = Callable[..., Any]
#: marks of graphs whose parts would not be what they are together
WHOLE = (*EAGER_MARKS, LEVELLED)


@dataclass(frozen=True)
class Part:
    """A part of a graph.

    Attributes:
        takes, gives: nodes of the whole.
        digest: equal for parts that are compiled once; empty for one that is like no other.
        opaque: it runs as it is.
    """

    module: fx.GraphModule
    takes: tuple[fx.Node, ...]
    gives: tuple[fx.Node, ...]
    digest: str = ""
    opaque: bool = False

    @property
    def examples(self) -> list[Any]:
        """The fake inputs."""
        placeholders = self.module.graph.find_nodes(op="placeholder")
        return [node.meta["example_value"] for node in placeholders]

    @property
    def size(self) -> int:
        """The number of operations."""
        return len(self.module.graph.nodes) - len(self.takes) - 1


def parts_of(
    gm: fx.GraphModule, numbers: Mapping[fx.Node, int], unnamed: Container[int] = ()
) -> tuple[Part, ...]:
    """Return a graph as parts in order; empty if it has to stay whole.

    Args:
        numbers: operation -> number of its part; each takes only what those before it give.
        unnamed: parts whose names follow from their operations and the order of these alone.
    """
    if why_whole(gm) or not _modes_end(numbers):
        return ()
    if needs_gradients(gm.graph) and not _writes_stay_inside(gm.graph, numbers):
        return ()
    groups: dict[int, list[fx.Node]] = {}
    for node in gm.graph.nodes:
        if node in numbers:
            groups.setdefault(numbers[node], []).append(node)
    parts = [_part(gm, groups[number], number not in unnamed) for number in sorted(groups)]
    crossing = [node for part in parts for node in part.gives]
    if len(parts) < 2 or not all(map(_may_cross, crossing)):
        return ()
    return tuple(parts)


def key_of_part(part: Part) -> Key:
    """Return a key that is equal for parts that compile to one graph.

    Raises:
        Uncached, NotPlain: it is like no other.
    """
    settings: dict[str, Any] = {}  # one graph has one set of them
    return key_of(part.module, graph_examples(part.module, ()), settings)


def report_cut(text: str) -> None:
    """Report where a graph was cut, or why it was not."""
    trace.emit(trace.Artifact("tc_compile_regions", text))


def why_whole(gm: fx.GraphModule) -> str:
    """Return why a graph cannot be cut anywhere; empty if it can be."""
    if marks := [mark for mark in WHOLE if gm.meta.get(mark)]:
        return f"it is marked {', '.join(marks)}"
    if not all(isinstance(one, fx.Node) for one in _outputs(gm.graph)):
        return "it returns constants"
    held = [node for node in gm.graph.nodes if node.op in ("call_module", "get_attr")]
    return f"it holds a module or a constant ({held[0].target})" if held else ""


def compile_parts(
    gm: fx.GraphModule, parts: Sequence[Part], compile_part: Callable[[Part], Compiled]
) -> Compiled:
    """Return what runs the parts of a graph in order.

    Of parts with one digest the first is compiled.
    """
    slots = {node: at for at, node in enumerate(gm.graph.find_nodes(op="placeholder"))}
    steps = []
    made: dict[str, Compiled] = {}
    for part in parts:
        if part.opaque:
            compiled: Compiled = never_trace(part.module.forward)
        else:
            compiled = made.get(part.digest) or compile_part(part)
        if part.digest:
            made[part.digest] = compiled
        takes = [slots[node] for node in part.takes]
        for node in part.gives:
            slots[node] = len(slots)
        steps.append((compiled, takes))
    picks = [slots[node] for node in _outputs(gm.graph)]
    last = {at: number for number, (_, takes) in enumerate(steps) for at in takes}
    dead: list[list[int]] = [[] for _ in steps]
    for at in last.keys() - picks:
        dead[last[at]].append(at)

    def run(*args: Any) -> tuple[Any, ...]:
        values = list(args)
        for (compiled, takes), unused in zip(steps, dead, strict=True):
            values.extend(compiled(*(values[at] for at in takes)))
            for at in unused:
                values[at] = None  # its memory is free, as where the graph is whole
        return tuple(values[at] for at in picks)

    return run


def _outputs(graph: fx.Graph) -> list[Any]:
    given: Any = graph.output_node().args[0]
    return list(given) if isinstance(given, (tuple, list)) else [given]


def _part(gm: fx.GraphModule, nodes: Sequence[fx.Node], named: bool) -> Part:
    inside, graph = set(nodes), fx.Graph()
    used = [one for node in nodes for one in node.all_input_nodes if one not in inside]
    takes = tuple(dict.fromkeys(used))
    gives = tuple(node for node in nodes if any(user not in inside for user in node.users))
    copies: dict[fx.Node, fx.Node] = {}
    for node in takes:
        copies[node] = copy = graph.placeholder(node.name if named else f"arg{len(copies)}")
        copy.meta = {**node.meta, "example_value": _as_input(node.meta.get("example_value"))}
    for node in nodes:
        if named:
            copies[node] = graph.node_copy(node, copies.__getitem__)
        else:
            args, kwargs = fx.node.map_arg((node.args, node.kwargs), copies.__getitem__)
            copies[node] = copy = graph.create_node(node.op, node.target, args, kwargs)
            copy.meta = dict(node.meta)
    graph.output(tuple(copies[node] for node in gives))
    module = _LazyGraphModule(torch.nn.Module(), graph)
    module.meta = {PLACE: gm.meta[PLACE]} if PLACE in gm.meta else {}
    if any(node.meta.get(SETS_MODES) for node in nodes):
        module.meta[SETS_MODES] = True
    return Part(module, takes, gives)


def _as_input(value: Any) -> Any:
    """Return a fake tensor as it comes into another graph: a leaf of autograd."""
    if isinstance(value, torch.Tensor) and value.grad_fn is not None:
        return value.detach().requires_grad_(value.requires_grad)
    return value


def _may_cross(node: fx.Node) -> bool:
    """Return whether one part may give a value to another: a tensor, or a size that is known."""
    value = node.meta.get("example_value")
    return isinstance(value, torch.Tensor) or (
        isinstance(value, torch.SymInt) and hint(value) is not None
    )


def _modes_end(numbers: Mapping[fx.Node, int]) -> bool:
    """Return whether each part leaves the modes of torch as they were before it."""
    setting: dict[int, list[fx.Node]] = {}
    for node, number in numbers.items():
        if node.meta.get(SETS_MODES):
            setting.setdefault(number, []).append(node)
    if any(one.all_input_nodes or one.users for nodes in setting.values() for one in nodes):
        return False  # an inference mode, which an object holds
    with put_back():
        before = Settings()
        for nodes in setting.values():
            for one in nodes:
                one.target(*one.args, **one.kwargs)  # type: ignore[operator]
            if any(before.changes()):
                return False
    return True


def needs_gradients(graph: fx.Graph) -> bool:
    """Return whether an operation of a captured graph is recorded by autograd."""
    made = (n.meta.get("example_value") for n in graph.nodes if n.op != "placeholder")
    return any(isinstance(value, torch.Tensor) and value.requires_grad for value in made)


def _writes_stay_inside(graph: fx.Graph, numbers: Mapping[fx.Node, int]) -> bool:
    """Return whether each part writes to memory that it made, or that no other part uses.

    Autograd refuses writes of one part to a view that another made, and an input that a part writes
    to may need gradients in those after it.
    """
    users: dict[int, set[int]] = {}
    writers: dict[int, set[int]] = {}
    try:
        given = {one for node in graph.find_nodes(op="placeholder") for one in _storages(node)}
        for node, number in numbers.items():
            for one in (node, *node.all_input_nodes):
                for storage in _storages(one):
                    users.setdefault(storage, set()).add(number)
            for one in _written(node):
                for storage in _storages(one):
                    writers.setdefault(storage, set()).add(number)
    except NotImplementedError:  # a sparse tensor lies in memory of other tensors
        return not any(map(_written, numbers))
    return all(
        parts == {min(users[storage])} and (storage not in given or parts == users[storage])
        for storage, parts in writers.items()
    )


def _storages(node: fx.Node) -> list[int]:
    value = node.meta.get("example_value")
    values = value if isinstance(value, (list, tuple)) else [value]
    return [storage_id(one) for one in values if isinstance(one, torch.Tensor)]


def _written(node: fx.Node) -> list[fx.Node]:
    """Return the operands that an operation writes to."""
    if isinstance(node.target, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        packet: Any = getattr(node.target, "overloadpacket", node.target)
        overloads = (getattr(packet, name) for name in packet.overloads())
        return node.all_input_nodes if any(one._schema.is_mutable for one in overloads) else []
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    given: list[Any] = [node.kwargs.get("out")]
    if writes_first(name) or node.kwargs.get("inplace"):
        given += node.args[:1] or [node.kwargs]
    found: list[fx.Node] = []
    fx.node.map_arg(given, found.append)
    return found
