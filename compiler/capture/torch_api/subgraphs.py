"""Captures bodies of higher-order operations as graph modules with lifted operands."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import fx

from tc.compiler.capture import breaks
from tc.compiler.capture.scopes import Scope
from tc.compiler.capture.values.base import Args, Kwargs, Value
from tc.compiler.capture.values.const import ConstValue
from tc.compiler.capture.values.containers import ListValue, TupleValue
from tc.compiler.capture.values.dicts import DictValue
from tc.compiler.capture.values.subclasses import twin
from tc.compiler.capture.values.tensor import NodeValue, SymValue, TensorValue
from tc.compiler.capture.values.tuple_objects import tuple_of

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter


@dataclass
class Body:
    """A captured body.

    Attributes:
        scope: its graph, still open.
        result: the function's result, as values of the body's graph.
    """

    scope: Scope
    result: Value

    @property
    def lifted(self) -> list[fx.Node]:
        """Nodes of the enclosing graph that the body uses, in order."""
        return list(self.scope.lifted)


@contextmanager
def new_scope(
    t: Interpreter, operation: tuple[str, Any] | None = None
) -> Iterator[Scope]:
    """Record into a new graph, the body of an operation, inside a ``with`` block."""
    scope = t.output.scopes[-1].inner(operation)
    t.output.scopes.append(scope)
    try:
        yield scope
    finally:
        t.output.scopes.pop()


def capture_body(
    t: Interpreter,
    operation: tuple[str, Any],
    function: Value,
    args: Args,
    kwargs: Kwargs | None = None,
    first: Iterable[tuple[str, Any]] = (),
) -> Body:
    """Capture a call of a function as a body; nodes of the enclosing graph that it uses are lifted.

    Args:
        operation: name and target of the operation that takes the body.
        args: values of the enclosing graph.
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


def map_leaves(
    t: Interpreter, value: Value, change: Callable[[NodeValue], Value]
) -> Value:
    """Return a value with the tensors and sizes in its lists, tuples and dicts replaced."""
    return map_items(
        t, value, lambda v: change(v) if isinstance(v, NodeValue) else None
    )


def map_items(
    t: Interpreter, value: Value, change: Callable[[Value], Value | None]
) -> Value:
    """Return a value with its children replaced; a child stays if `change` returns None."""
    changed = change(value)
    if changed is not None:
        return changed
    if isinstance(value, TupleValue):
        return tuple_of([map_items(t, v, change) for v in value.values(t)], value.kind)
    if isinstance(value, ListValue):
        return ListValue([map_items(t, v, change) for v in value.values(t)])
    if isinstance(value, DictValue):
        pairs = zip(value.keys(t), value.values(t), strict=True)
        return t.values.dict_of(
            (key, map_items(t, item, change)) for key, item in pairs
        )
    return value


def close_flat(t: Interpreter, body: Body) -> None:
    """End the body's graph with a flat tuple of the tensors and sizes it returns."""
    nodes: list[Any] = []

    def note(leaf: NodeValue) -> Value:
        nodes.append(leaf.node(t))
        return leaf

    map_leaves(t, body.result, note)
    body.scope.graph.output(tuple(nodes))


def same_operands(bodies: Sequence[Body]) -> list[fx.Node]:
    """Give several bodies the same placeholders in the same order; return the lifted nodes.

    Placeholders of a body's own come before them.
    """
    wanted = list(dict.fromkeys(node for body in bodies for node in body.lifted))
    for body in bodies:
        scope = body.scope
        placeholders = [
            scope.lift(node, node.meta.get("example_value")) for node in wanted
        ]
        first_call = next(
            node for node in scope.graph.nodes if node.op != "placeholder"
        )
        for node in placeholders:
            first_call.prepend(node)
        scope.lifted = dict(zip(wanted, placeholders, strict=True))
    return wanted


def results(
    t: Interpreter, node: fx.Node, result: Value, examples: Sequence[Any] | None = None
) -> Value:
    """Return the outer values of a call of a body that returned ``result``.

    Args:
        examples: fakes of the outer values, if they differ from those of the body's values.
    """
    index = iter(range(1 << 30))

    def pick(leaf: NodeValue) -> Value:
        place = next(index)
        example = examples[place] if examples is not None else leaf.example
        picked = t.output.graph.call_function(operator.getitem, (node, place))
        t.output.annotate(picked, example)
        return like(leaf, picked, example)

    made = map_leaves(t, result, pick)
    if made is result and not isinstance(made, ConstValue):
        raise breaks.GraphBreak(breaks.LEAKED_BODY, result.describe())
    return made


def leaves(t: Interpreter, value: Value) -> list[Value]:
    """Return the leaves of a nest of lists, tuples and dicts, in the order of `map_leaves`."""
    if isinstance(value, TupleValue | ListValue | DictValue):
        return [leaf for item in value.values(t) for leaf in leaves(t, item)]
    return [value]
