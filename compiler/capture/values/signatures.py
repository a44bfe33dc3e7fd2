"""`inspect.signature` under capture: computed from the function without tracing inspect."""

from __future__ import annotations

import functools
import inspect
import types
from typing import TYPE_CHECKING, Any

from tc.compiler.capture import breaks
from tc.compiler.capture.values.base import Args, Kwargs, Value
from tc.compiler.capture.values.dicts import DictValue
from tc.compiler.capture.values.functions import FunctionValue, MethodValue
from tc.compiler.capture.values.handlers import handles
from tc.compiler.capture.values.objects import ClassValue
from tc.compiler.capture.values.partials import PartialValue
from tc.compiler.core.sources import AttrSource

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter


@handles(inspect.signature)
def _signature(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    named = t.python.concrete_dict(kwargs)
    return t.python.folded(inspect.signature, _like(t, args[0]), **named)


def _like(t: Interpreter, value: Value) -> Any:
    """Return a callable with the signature of a value."""
    if isinstance(value, MethodValue):
        return types.MethodType(_like(t, value.function), object())
    if isinstance(value, PartialValue):
        plain = t.python.concrete_list(value.arguments.values(t))
        named = t.python.concrete_dict(value.named(t))
        return functools.partial(_like(t, value.function), *plain, **named)
    if isinstance(value, FunctionValue):
        wrapped = value.extra.get("__wrapped__")
        return _real_function(t, value) if wrapped is None else _like(t, wrapped)
    if isinstance(value, ClassValue):
        return value.obj
    raise breaks.GraphBreak(breaks.UNSUPPORTED_CALL, f"signature of {value.describe()}")


def _real_function(t: Interpreter, value: FunctionValue) -> Any:
    """Return the function, or an equivalent of one that traced code made; guard its defaults."""
    if value.obj is None:
        made = types.FunctionType(
            value.code,
            value.module_globals,
            value.name,
            tuple(t.python.concrete(default) for default in value.defaults.values(t)),
            tuple(types.CellType() for _ in value.closure),
        )
        named = value.kwdefaults
        made.__kwdefaults__ = None if named is None else t.python.concrete(named)
        notes = value.attr(t, "__annotations__")
        assert isinstance(notes, DictValue)
        names = t.python.concrete_list(notes.keys(t))
        plain = t.python.concrete_list(notes.values(t))
        made.__annotations__ = dict(zip(names, plain, strict=True))
        return made
    source = (
        value.source if value.source is not None else t.values.object_source(value.obj)
    )
    for name in ("__defaults__", "__kwdefaults__"):
        t.guards.identity(AttrSource(source, name), getattr(value.obj, name))
    return value.obj
