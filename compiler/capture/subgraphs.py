"""Bodies of higher-order operations: traced functions in, graph modules and lifted operands out."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from tc.compiler.capture import breaks
from tc.compiler.capture.values.base import Args, Kwargs, Value
from tc.compiler.capture.values.const import ConstValue
from tc.compiler.capture.values.containers import ListValue, TupleValue
from tc.compiler.capture.values.dicts import DictValue
from tc.compiler.capture.values.subclasses import twin
from tc.compiler.capture.values.tensor import NodeValue, SymValue, TensorValue

if TYPE_CHECKING:
    from tc.compiler.capture.tracer import Tracer


Operations = tuple[tuple[str, Any], ...]


class Scope:
    """One graph under construction: the captured one, or that of a body inside it.

    Attributes:
        operations: names and targets of the operations whose bodies it is in, outermost first.
        lifted: nodes of the graphs around it -> the placeholders that stand for them.
        bodies: graph modules of the bodies inside it, by attribute name.
    """

    def __init__(self, operations: Operations = (), body_names: set[str] | None = None) -> None:
        self.operations = operations
        self.graph = fx.Graph()
        self.lifted: dict[fx.Node, fx.Node] = {}
        self.bodies: dict[str, Any] = {}
        self._last_placeholder: fx.Node | None = None
        self._names: set[str] = set()
        self._body_names = body_names if body_names is not None else set()

    def placeholder(self, name: str) -> fx.Node:
        """Return a new placeholder, after those there are and before all calls."""
        base, number = name, 0
        while name in self._names:
            number += 1
            name = f"{base}_{number}"
        self._names.add(name)
        if self._last_placeholder is not None:
            with self.graph.inserting_after(self._last_placeholder):
                node = self.graph.placeholder(name)
        else:
            with self.graph.inserting_before():
                node = self.graph.placeholder(name)
        self._last_placeholder = node
        return node

    def lift(self, outer: fx.Node, example: Any) -> fx.Node:
        """Return the placeholder that stands for a node of the graph around this one."""
        if outer not in self.lifted:
            node = self.lifted[outer] = self.placeholder(outer.name)
            node.meta["example_value"] = example
        return self.lifted[outer]

    def add_body(self, name: str, module: Any) -> fx.Node:
        """Make a body or function an attribute of this graph; return the node that reads it."""
        number = 0
        while f"{name}_{number}" in self._body_names:
            number += 1
        full = f"{name}_{number}"
        self._body_names.add(full)
        self.bodies[full] = module
        # get_attr checks against an owning module, which is made only at the end
        return self.graph.create_node("get_attr", full)

    def inner(self, operation: tuple[str, Any] | None) -> Scope:
        """Return a new graph to be made inside this one, as a body of an operation."""
        operations = (*self.operations, operation) if operation else self.operations
        return Scope(operations, self._body_names)

    def module(self, kind: type[fx.GraphModule] = fx.GraphModule) -> fx.GraphModule:
        """Return the finished graph with its bodies."""
        root = torch.nn.Module()
        for name, body in self.bodies.items():
            setattr(root, name, body)
        return kind(root, self.graph, "GraphModule")


@dataclass
class Body:
    """A captured body.

    Attributes:
        scope: its graph, not closed yet.
        result: what the function returned, as values of the body's graph.
    """

    scope: Scope
    result: Value

    @property
    def lifted(self) -> list[fx.Node]:
        """Nodes of the graph around it that the body uses, in order."""
        return list(self.scope.lifted)


@contextmanager
def new_scope(t: Tracer, operation: tuple[str, Any] | None = None) -> Iterator[Scope]:
    """Record into a new graph, the body of an operation, for the length of a block."""
    scope = t.scopes[-1].inner(operation)
    t.scopes.append(scope)
    try:
        yield scope
    finally:
        t.scopes.pop()


def capture_body(
    t: Tracer,
    operation: tuple[str, Any],
    function: Value,
    args: Args,
    kwargs: Kwargs | None = None,
    first: Iterable[tuple[str, Any]] = (),
) -> Body:
    """Capture a call of a function as a body; what it uses of the graph around it is lifted.

    Args:
        operation: name and target of what takes the body.
        args: of the graph around it.
        first: names and examples of placeholders before those; passed as first arguments.
    """
    with new_scope(t, operation) as scope, t.effects.body() as changed:
        own: list[Value] = []
        for name, example in first:
            node = scope.placeholder(name)
            node.meta["example_value"] = example
            own.append(TensorValue(node, example))
        result = function.call(t, [*own, *args], kwargs or {})
        if changed():
            raise breaks.GraphBreak(breaks.BODY_EFFECT, operation[0])
        body = Body(scope, result)
        close_flat(t, body)
    return body


def like(leaf: NodeValue, node: fx.Node, example: Any) -> NodeValue:
    """Return a value of the same kind for another node."""
    if isinstance(leaf, TensorValue):
        return twin(leaf, node, example)
    return SymValue(node, example)


def map_leaves(t: Tracer, value: Value, change: Callable[[NodeValue], Value]) -> Value:
    """Return a value with the tensors and sizes in its lists, tuples and dicts replaced."""
    return map_items(t, value, lambda v: change(v) if isinstance(v, NodeValue) else None)


def map_items(t: Tracer, value: Value, change: Callable[[Value], Value | None]) -> Value:
    """Return a value with those it is made of replaced; what `change` gives None for stays."""
    changed = change(value)
    if changed is not None:
        return changed
    if isinstance(value, TupleValue):
        return TupleValue([map_items(t, v, change) for v in value.values(t)], kind=value.kind)
    if isinstance(value, ListValue):
        return ListValue([map_items(t, v, change) for v in value.values(t)])
    if isinstance(value, DictValue):
        pairs = zip(value.keys(t), value.values(t), strict=True)
        return t.dict_of((key, map_items(t, item, change)) for key, item in pairs)
    return value


def close_flat(t: Tracer, body: Body) -> None:
    """End the body's graph with a flat tuple of the tensors and sizes it returns."""
    nodes: list[Any] = []

    def note(leaf: NodeValue) -> Value:
        nodes.append(leaf.node(t))
        return leaf

    map_leaves(t, body.result, note)
    body.scope.graph.output(tuple(nodes))


def same_operands(bodies: Sequence[Body]) -> list[fx.Node]:
    """Give several bodies the same placeholders in the same order; return what they stand for.

    Placeholders of a body's own come before them.
    """
    wanted = list(dict.fromkeys(node for body in bodies for node in body.lifted))
    for body in bodies:
        scope = body.scope
        placeholders = [scope.lift(node, node.meta.get("example_value")) for node in wanted]
        first_call = next(node for node in scope.graph.nodes if node.op != "placeholder")
        for node in placeholders:
            first_call.prepend(node)
        scope.lifted = dict(zip(wanted, placeholders, strict=True))
    return wanted


def results(
    t: Tracer, node: fx.Node, result: Value, examples: Sequence[Any] | None = None
) -> Value:
    """Return the outer values of a call of a body that returned ``result``.

    Args:
        examples: of the outer values, where they differ from those of the body's.
    """
    index = iter(range(1 << 30))

    def pick(leaf: NodeValue) -> Value:
        place = next(index)
        example = examples[place] if examples is not None else leaf.example
        picked = t.graph.call_function(operator.getitem, (node, place))
        t.annotate(picked, example)
        return like(leaf, picked, example)

    made = map_leaves(t, result, pick)
    if made is result and not isinstance(made, ConstValue):
        raise breaks.GraphBreak(breaks.LEAKED_BODY, result.describe())
    return made


def leaves(t: Tracer, value: Value) -> list[Value]:
    """Return what is in a nest of lists, tuples and dicts, in the order of `map_leaves`."""
    if isinstance(value, TupleValue | ListValue | DictValue):
        return [leaf for item in value.values(t) for leaf in leaves(t, item)]
    return [value]
