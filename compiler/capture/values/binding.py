"""Binds class attributes that are read through an instance or through the class."""

from __future__ import annotations

import functools
import types
from typing import TYPE_CHECKING, Any

from tc.compiler.capture import breaks
from tc.compiler.capture.guards.facts import is_library
from tc.compiler.capture.values.base import Value
from tc.compiler.capture.values.const import ConstValue
from tc.compiler.capture.values.functions import MethodValue
from tc.compiler.capture.values.lookup import (
    MISSING,
    has_any,
    is_read_first,
    replaced_slot,
    type_lookup,
)
from tc.compiler.capture.values.objects import (
    Attributed,
    ClassValue,
)
from tc.compiler.capture.values.tensor import TensorValue
from tc.compiler.core.sources import AttrSource, CallSource, Source, instance_dict

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter


def bind_descriptor(
    t: Interpreter,
    owner: Value,
    cls: type,
    raw: Any,
    name: str,
    inherited: bool = False,
) -> Value:
    """Return the value of a class attribute that is read through an instance."""
    if isinstance(raw, types.FunctionType):
        # a method read from the class: it is found by id, so it needs no source of its own
        return MethodValue(owner, t.values.function_of_class(raw))
    if isinstance(raw, staticmethod):
        return t.values.function_of_class(raw.__func__)
    if isinstance(raw, classmethod):
        function = t.values.function_of_class(_function_of(raw, cls, name))
        return MethodValue(t.values.known(cls), function)
    if isinstance(raw, property):
        if raw.fget is None:
            return t.python.raise_(AttributeError, f"property {name!r} has no getter")
        return t.inline_object(raw.fget, [owner])
    if isinstance(raw, functools.cached_property) and isinstance(owner, Attributed):
        return _compute_once(t, owner, raw, name)
    if isinstance(raw, functools._lru_cache_wrapper):
        return MethodValue(owner, t.values.known(raw))
    if isinstance(raw, types.WrapperDescriptorType | types.MethodDescriptorType):
        return t.attributes.slot_method(owner, raw)
    if isinstance(raw, types.GetSetDescriptorType) and isinstance(owner, TensorValue):
        return owner.base_attr(t, name)
    getter = type_lookup(type(raw), "__get__")
    if replaced_slot(type(raw), "__get__") is not MISSING:
        return _called_getter(t, raw, owner, t.values.known(cls))
    if getter is not MISSING and not isinstance(raw, type):
        raise breaks.GraphBreak(breaks.UNSUPPORTED_ATTR, f"{owner.describe()}.{name}")
    if owner.source is None or inherited or _instance_hides(owner, cls, name):
        return _in_class(t, cls, raw, name)
    return t.values.wrap(raw, AttrSource(owner.source, name))


def _called_getter(t: Interpreter, raw: Any, owner: Value, cls: Value) -> Value:
    """Call the ``__get__`` of a descriptor, which Python binds to nothing."""
    kind = type(raw)
    getter = _in_class(t, kind, type_lookup(kind, "__get__"), "__get__")
    return getter.call(t, [t.values.known(raw), owner, cls], {})


def _in_class(t: Interpreter, cls: type, raw: Any, name: str) -> Value:
    """Return the value of what a class defines, as it is."""
    if isinstance(raw, types.FunctionType):
        return t.values.function_of_class(raw)
    source = _source_in_class(t, cls, raw, name)
    return t.values.wrap(raw, source) if source is not None else t.values.known(raw)


def _function_of(raw: classmethod[Any, Any, Any], cls: type, name: str) -> Any:
    """Return what a class method calls.

    Up to Python 3.12, a class method of another descriptor (a property) asks that one instead.
    """
    function = raw.__func__
    if not callable(function):
        raise breaks.GraphBreak(breaks.UNSUPPORTED_ATTR, f"{cls.__qualname__}.{name}")
    return function


def _instance_hides(owner: Value, cls: type, name: str) -> bool:
    """Return whether ``owner.name`` was something else than the class attribute before the frame.

    Traced code may have deleted an attribute of the object, or a ``__getattribute__`` that is
    written in Python asked for the one of the class.
    """
    if replaced_slot(cls, "__getattribute__") is not MISSING:
        return True
    return name in (instance_dict(owner.obj) or ())


def _compute_once(
    t: Interpreter, owner: Attributed, raw: functools.cached_property[Any], name: str
) -> Value:
    """Compute a cached property that its object does not store yet, and store it."""
    value = t.inline_object(raw.func, [owner])
    t.effects.store_attribute(owner, raw.attrname or name, value)
    return value


def _source_in_class(t: Interpreter, cls: type, raw: Any, name: str) -> Source | None:
    """Return the source of a class attribute, or None if nothing can change the attribute."""
    for base in cls.__mro__:
        if id(base) not in t.values.made_inside and type_lookup(base, name) is raw:
            if is_library(base.__module__):
                return None
            source = t.values.object_source(base)
            of_metaclass = type_lookup(type(base), name)
            if is_read_first(of_metaclass):
                return _past_metaclass(source, name)
            return AttrSource(source, name)
    return None


def _past_metaclass(source: Source, name: str) -> Source:
    """Return the source of what a class defines, for which no metaclass is asked."""
    look = functools.partial(type_lookup, name=name)
    text = f"type_lookup({{}}, {name!r})"
    return CallSource(source, look, text)


def bind_class_attr(t: Interpreter, owner: ClassValue, raw: Any, name: str) -> Value:
    """Return the value of a class attribute that is read through the class."""
    if isinstance(raw, classmethod):
        return MethodValue(owner, t.values.known(_function_of(raw, owner.obj, name)))
    own = replaced_slot(type(raw), "__get__")
    if own is not MISSING and not isinstance(raw, functools.cached_property):
        return _called_getter(t, raw, ConstValue(None), owner)
    found = raw
    if isinstance(raw, staticmethod):
        found = raw.__func__
    elif not isinstance(raw, types.FunctionType | property) and has_any(
        type(raw), ("__get__",)
    ):
        found = raw.__get__(None, owner.obj)
    if type_lookup(owner.obj, name) is not raw:
        return t.values.known(found)  # super() finds it in a base
    source = t.values.source_of(owner)
    if found is raw and owner.has_own("__getattr__"):
        # Where the attribute is gone, a guard must not run the fallback.
        return t.values.wrap(found, _past_metaclass(source, name))
    return t.values.wrap(found, AttrSource(source, name))
