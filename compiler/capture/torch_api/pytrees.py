"""torch.utils._pytree over values: nests of tuples, lists and dicts are flattened at once.

Interpreting the Python code of that module would give the same values a hundred times slower. A
tree with another kind of container, or a call with ``is_leaf``, is interpreted all the same.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch.utils import _pytree as pytree

from tc.compiler.capture import breaks
from tc.compiler.capture.values.base import Args, Kwargs, Value
from tc.compiler.capture.values.const import ConstValue
from tc.compiler.capture.values.containers import ListValue, TupleValue
from tc.compiler.capture.values.dicts import DictValue
from tc.compiler.capture.values.functions import wrap_function
from tc.compiler.capture.values.handlers import handles

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter


class Unfamiliar(Exception):
    """Control flow: a tree has a container that only the interpreted code can flatten."""


class SpecValue(ConstValue):
    """The structure of a tree of tuples, lists and dicts."""

    noun = "a TreeSpec"


def as_tree(t: Interpreter, value: Value) -> Any:
    """Return a tree of values as real containers, with values as leaves. Raises Unfamiliar."""
    try:
        kind = value.python_type()
    except breaks.GraphBreak:
        return value
    if isinstance(value, TupleValue) and kind is tuple:
        return tuple(as_tree(t, item) for item in value.values(t))
    if isinstance(value, ListValue) and kind is list:
        return [as_tree(t, item) for item in value.values(t)]
    if isinstance(value, DictValue) and kind is dict:
        keys = value.keys(t)
        if not all(key.is_constant() for key in keys):
            raise Unfamiliar
        pairs = zip(keys, value.values(t), strict=True)
        return {key.constant(): as_tree(t, item) for key, item in pairs}
    if kind in pytree.SUPPORTED_NODES or pytree.is_namedtuple_class(kind):
        raise Unfamiliar
    return value


def as_value(t: Interpreter, tree: Any) -> Value:
    """Return the value of a tree with values as leaves."""
    if isinstance(tree, tuple):
        return TupleValue([as_value(t, item) for item in tree])
    if isinstance(tree, list):
        return ListValue([as_value(t, item) for item in tree])
    if isinstance(tree, dict):
        pairs = ((key, as_value(t, item)) for key, item in tree.items())
        return t.values.dict_of(pairs)
    assert isinstance(tree, Value)
    return tree


def _flatten(t: Interpreter, value: Value) -> tuple[list[Value], Any]:
    return pytree.tree_flatten(as_tree(t, value))


def _spec(value: Value) -> Any:
    if not isinstance(value, SpecValue):
        raise Unfamiliar
    return value.obj


def _tree_flatten(t: Interpreter, tree: Value) -> Value:
    leaves, spec = _flatten(t, tree)
    return TupleValue([ListValue(list(leaves)), SpecValue(spec)])


def _tree_leaves(t: Interpreter, tree: Value) -> Value:
    return ListValue(list(_flatten(t, tree)[0]))


def _tree_structure(t: Interpreter, tree: Value) -> Value:
    return SpecValue(_flatten(t, tree)[1])


def _tree_unflatten(t: Interpreter, leaves: Value, treespec: Value) -> Value:
    spec = _spec(treespec)
    return as_value(t, t.python.fold(pytree.tree_unflatten, leaves.unpack(t), spec))


def _broadcast(t: Interpreter, tree: Value, treespec: Value) -> Value:
    found = pytree._broadcast_to_and_flatten(as_tree(t, tree), _spec(treespec))
    return ConstValue(None) if found is None else ListValue(found)


def _mapped(
    t: Interpreter, func: Value, tree: Value, rests: Args
) -> tuple[list[Value], Any]:
    leaves, spec = _flatten(t, tree)
    others = [t.python.fold(spec.flatten_up_to, as_tree(t, rest)) for rest in rests]
    rows = zip(leaves, *others, strict=True)
    found = []
    for row in rows:
        given = [as_value(t, item) for item in row]
        found.append(func.call(t, given, {}))
    return found, spec


def _tree_map(t: Interpreter, func: Value, tree: Value, *rests: Value) -> Value:
    results, spec = _mapped(t, func, tree, rests)
    return as_value(t, pytree.tree_unflatten(results, spec))


def _tree_map_(t: Interpreter, func: Value, tree: Value, *rests: Value) -> Value:
    _mapped(t, func, tree, rests)
    return tree


def _result_by(function: Any, compute: Callable[..., Value]) -> None:
    count = compute.__code__.co_argcount - 1
    rest = bool(compute.__code__.co_flags & inspect.CO_VARARGS)

    @handles(function)
    def handler(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
        given = {
            name: value for name, value in kwargs.items() if not t.python.is_none(value)
        }
        if "is_leaf" not in given and (rest or len(args) <= count):
            try:
                return compute(t, *args, **given)
            except Unfamiliar:
                pass
        return t.interpret(wrap_function(t, function, None), args, kwargs)


for _function, _handler in (
    (pytree.tree_flatten, _tree_flatten),
    (pytree.tree_leaves, _tree_leaves),
    (pytree.tree_structure, _tree_structure),
    (pytree.tree_unflatten, _tree_unflatten),
    (pytree.tree_map, _tree_map),
    (pytree.tree_map_, _tree_map_),
    (pytree._broadcast_to_and_flatten, _broadcast),
):
    _result_by(_function, _handler)
