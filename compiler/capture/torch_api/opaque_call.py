"""Opaque calls: a call of a function becomes one node, with arguments of any structure.

Arguments are flattened into tensors, numbers and a *shape* (nested lists, tuples, dicts and
`PytreeNode`, with `LEAF` in the place of each leaf), and unflattened when the graph runs. Results
are flattened when it runs, and unflattened while tracing.
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from tc.compiler.capture import breaks
from tc.compiler.capture.torch_api.fake_calls import run_fake
from tc.compiler.capture.values.base import Args, Kwargs, Value
from tc.compiler.capture.values.containers import ListValue, TupleValue
from tc.compiler.capture.values.dicts import DictValue
from tc.compiler.capture.values.lookup import is_frozen_dataclass
from tc.compiler.capture.values.objects import ObjectValue, object_with
from tc.compiler.capture.values.tensor import NodeValue

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter

LEAF = object()


@dataclass(frozen=True)
class PytreeNode:
    """The children of an object of a registered pytree class or frozen dataclass."""

    kind: type
    context: Any
    children: Any

    def make(self, children: Any) -> Any:
        """Make such an object of its children."""
        known = pytree.SUPPORTED_NODES.get(self.kind)
        if known is not None:
            return known.unflatten_fn(children, self.context)
        return object_with(self.kind, self.context, *children)


class WholeCall:
    """A function and the shape of its arguments; graphs call it with their leaves."""

    def __init__(self, function: Any, shape: Any) -> None:
        self.function = function
        self.shape = shape
        self.__name__ = self.__qualname__ = function.__name__

    def call(self, parts: Any) -> Any:
        """Call the function on arguments unflattened from these leaves."""
        args, kwargs = together(self.shape, iter(parts))
        return self.function(*args, **kwargs)

    def __call__(self, *parts: Any) -> tuple[Any, ...]:
        found: list[Any] = []
        apart(self.call(parts), found)
        return tuple(found)


def apart(obj: Any, parts: list[Any]) -> Any:
    """Flatten an object: return its shape, and append its leaves to the parts."""
    kind = type(obj)
    if kind in (list, tuple):
        return kind([apart(item, parts) for item in obj])
    if kind is dict:
        return {key: apart(item, parts) for key, item in obj.items()}
    known = pytree.SUPPORTED_NODES.get(kind)
    if known is not None:
        children, context = known.flatten_fn(obj)
        return PytreeNode(kind, context, [apart(item, parts) for item in children])
    parts.append(obj)
    return LEAF


def together(shape: Any, parts: Iterator[Any]) -> Any:
    """Unflatten an object: make it of a shape and its leaves."""
    kind = type(shape)
    if kind in (list, tuple):
        return kind([together(item, parts) for item in shape])
    if kind is dict:
        return {key: together(item, parts) for key, item in shape.items()}
    if isinstance(shape, PytreeNode):
        return shape.make(together(shape.children, parts))
    return next(parts) if shape is LEAF else shape


# -- while tracing -------------------------------------------------------------------------------
def call_tree(
    t: Interpreter,
    function: Any,
    args: Args,
    kwargs: Kwargs,
    fake: Any = None,
) -> Value:
    """Record a call of a function whose arguments and result are trees of tensors.

    Args:
        fake: a function that returns results of the same shapes for fake tensors; the function
            itself, if there is none.
    """
    leaves: list[NodeValue] = []
    given = TupleValue([TupleValue(list(args)), t.values.dict_of(kwargs.items())])
    target = WholeCall(function, _shape(t, given, leaves))
    described = target if fake is None else WholeCall(fake, target.shape)
    found: list[Any] = []

    def run(*parts: Any) -> Any:
        made: list[Any] = []
        found[:] = [apart(described.call(parts), made)]
        return tuple(made)

    fakes = [leaf.example for leaf in leaves]
    result = run_fake(t, run, target.__name__, fakes, {}, method=False)
    node = t.output.graph.call_function(target, tuple(leaf.node(t) for leaf in leaves))
    t.output.calls += 1
    t.output.annotate(node, result)
    parts = iter(t.output.result_of(result, node).unpack(t) if result else ())
    return _value(t, found[0], parts)


def holds_objects(t: Interpreter, value: Value) -> bool:
    """Return whether an argument has to be flattened to be recorded."""
    if isinstance(value, ListValue | TupleValue | DictValue):
        return any(holds_objects(t, item) for item in value.values(t))
    return isinstance(value, ObjectValue)


def _shape(t: Interpreter, value: Value, leaves: list[NodeValue]) -> Any:
    if isinstance(value, NodeValue):
        leaves.append(value)
        return LEAF
    if isinstance(value, ListValue):
        return [_shape(t, item, leaves) for item in value.values(t)]
    if isinstance(value, TupleValue):
        items = [_shape(t, item, leaves) for item in value.values(t)]
        return tuple(items) if value.kind is tuple else _made(t, value, leaves)
    if isinstance(value, DictValue) and value.kind is dict:
        pairs = zip(value.keys(t), value.values(t), strict=True)
        return {t.python.concrete(key): _shape(t, item, leaves) for key, item in pairs}
    if isinstance(value, ObjectValue):
        return _made(t, value, leaves)
    return t.python.concrete(value)


def _made(t: Interpreter, value: Value, leaves: list[NodeValue]) -> PytreeNode:
    kind = value.python_type()
    known = pytree.SUPPORTED_NODES.get(kind)
    if known is None and is_frozen_dataclass(kind):
        names = tuple(field.name for field in fields(kind))
        held = [value.attr(t, name) for name in names]
        return PytreeNode(kind, names, [_shape(t, one, leaves) for one in held])
    if known is None:
        what = (
            f"a {kind.__qualname__}, which is not registered with torch.utils._pytree,"
        )
        raise breaks.GraphBreak(breaks.UNSUPPORTED_OP, f"{what} as an argument")
    children, context = t.inline_object(known.flatten_fn, [value]).unpack(t)
    known_context = t.python.concrete(context)
    shapes = [_shape(t, child, leaves) for child in children.unpack(t)]
    return PytreeNode(kind, known_context, shapes)


def _value(t: Interpreter, shape: Any, parts: Iterator[Value]) -> Value:
    if isinstance(shape, list):
        return ListValue([_value(t, item, parts) for item in shape])
    if isinstance(shape, tuple):
        return TupleValue([_value(t, item, parts) for item in shape])
    if isinstance(shape, dict):
        return t.values.dict_of(
            (key, _value(t, item, parts)) for key, item in shape.items()
        )
    if isinstance(shape, PytreeNode):
        children = ListValue([_value(t, item, parts) for item in shape.children])
        unflatten = pytree.SUPPORTED_NODES[shape.kind].unflatten_fn
        return t.inline_object(unflatten, [children, t.values.known(shape.context)])
    return next(parts)


# -- autograd.Function -----------------------------------------------------------------------
_BASE: Any = torch.autograd.Function
_WHOLE: weakref.WeakKeyDictionary[type, Any] = weakref.WeakKeyDictionary()


def is_apply(cls: type, name: str) -> bool:
    """Return whether reading a class attribute gives the ``apply`` of an autograd.Function."""
    if name != "apply" or not issubclass(cls, _BASE):
        return False
    return inspect.getattr_static(cls, name) is inspect.getattr_static(_BASE, name)


def apply_whole(cls: type) -> Any:
    """Return a function that applies an autograd.Function, which graphs record as one node."""
    if cls not in _WHOLE:

        def call(*args: Any, **kwargs: Any) -> Any:
            return cls.apply(*args, **kwargs)  # type: ignore[attr-defined]

        call.__name__ = call.__qualname__ = f"{cls.__name__}_apply"
        _WHOLE[cls] = call
    return _WHOLE[cls]
