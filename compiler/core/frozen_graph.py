"""Graphs of ATen operations as plain data, for what is kept on disk (see `frozen`)."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from tc.compiler.core.frozen import NotPlain

aten = torch.ops.aten
#: operations that compute with places in memory: the layout of their first argument is kept
ADDRESSING = (aten.as_strided.default, aten.as_strided_scatter.default)
#: namespaces of operators that no user defines
OWN_NAMESPACES = ("aten", "prims", "prim")
NAMESPACES = (*OWN_NAMESPACES, "mkldnn")


@dataclass(frozen=True)
class Result:
    """An argument that another operation made."""

    node: str


@dataclass(frozen=True)
class Named:
    """A type, layout or memory format of torch; or a device."""

    name: str
    device: bool = False


@dataclass(frozen=True)
class Operation:
    """A node.

    Attributes:
        target: ``namespace::op.overload``; empty for inputs, ``getitem`` for parts of a tuple.
        layout: size and stride of the value, where an operation addresses its memory.
    """

    name: str
    target: str
    args: tuple[Any, ...] = ()
    kwargs: tuple[tuple[str, Any], ...] = ()
    layout: tuple[tuple[int, ...], tuple[int, ...]] | None = None


@dataclass(frozen=True)
class PlainGraph:
    """Operations in order, and what they return."""

    operations: tuple[Operation, ...]
    outputs: Any


CLASSES = (Result, Named, Operation, PlainGraph)


def written(graph: fx.Graph) -> PlainGraph:
    """Write a graph down.

    Raises:
        NotPlain: it holds tensors, other functions than ATen's, or sizes that are symbols.
    """
    addressed = {node.args[0] for op in ADDRESSING for node in _calls(graph, op)}
    operations = []
    outputs: Any = ()
    for node in graph.nodes:
        if node.op == "output":
            outputs = _plain(node.args[0])
            continue
        layout = None
        if node in addressed:
            value = node.meta["val"]
            layout = tuple(_numbers(value.shape)), tuple(_numbers(value.stride()))
        kwargs = tuple((name, _plain(value)) for name, value in node.kwargs.items())
        args = () if node.op == "placeholder" else _plain(tuple(node.args))
        operations.append(Operation(node.name, _target(node), args, kwargs, layout))
    return PlainGraph(tuple(operations), outputs)


def restored(plain: PlainGraph) -> fx.GraphModule:
    """Return a graph that was written down."""
    graph = fx.Graph()
    nodes: dict[str, fx.Node] = {}
    for item in plain.operations:
        if item.target:
            kwargs = {name: _value(value, nodes) for name, value in item.kwargs}
            args = _value(item.args, nodes)
            made = graph.create_node("call_function", _function(item.target), args, kwargs)
        else:
            made = graph.placeholder(item.name)
        if item.layout is not None:
            made.meta["val"] = torch.empty_strided(*item.layout, device="meta")
        nodes[item.name] = made
    graph.output(_value(plain.outputs, nodes))
    return fx.GraphModule({}, graph)


def _calls(graph: fx.Graph, op: Any) -> list[fx.Node]:
    return list(graph.find_nodes(op="call_function", target=op))


def _numbers(values: Any) -> list[int]:
    if any(type(value) is not int for value in values):
        raise NotPlain("sizes are symbolic")
    return list(values)


def _target(node: fx.Node) -> str:
    if node.op == "placeholder":
        return ""
    if node.target is operator.getitem:
        return "getitem"
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or target.namespace not in NAMESPACES:
        raise NotPlain(f"{node.op} {target} cannot be serialised")
    return f"{target._schema.name}.{target._overloadname}"


def _function(target: str) -> Any:
    if target == "getitem":
        return operator.getitem
    namespace, _, name = target.partition("::")
    name, _, overload = name.rpartition(".")
    return getattr(getattr(getattr(torch.ops, namespace), name), overload)


def _plain(value: Any) -> Any:
    if isinstance(value, fx.Node):
        return Result(value.name)
    if isinstance(value, tuple | list):
        kind = tuple if isinstance(value, tuple) else list
        return kind(map(_plain, value))
    if isinstance(value, torch.dtype | torch.layout | torch.memory_format):
        return Named(str(value).removeprefix("torch."))
    if isinstance(value, torch.device):
        return Named(str(value), device=True)
    if value is None or type(value) in (bool, int, float, str):
        return value
    raise NotPlain(f"an argument is a {type(value).__name__}")


def _value(plain: Any, nodes: dict[str, fx.Node]) -> Any:
    if isinstance(plain, Result):
        return nodes[plain.node]
    if isinstance(plain, Named):
        return torch.device(plain.name) if plain.device else getattr(torch, plain.name)
    if isinstance(plain, tuple | list):
        return type(plain)(_value(item, nodes) for item in plain)
    return plain
