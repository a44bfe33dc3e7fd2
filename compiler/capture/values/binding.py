"""What reading a class attribute gives, through an instance or through the class."""

from __future__ import annotations

import functools
import types
from typing import TYPE_CHECKING, Any

from tc.compiler.capture import breaks
from tc.compiler.capture.values.base import Value
from tc.compiler.capture.values.functions import MethodValue
from tc.compiler.capture.values.objects import (
    MISSING,
    ClassValue,
    ObjectValue,
    is_library,
    type_lookup,
)
from tc.compiler.core.sources import AttrSource, Source

if TYPE_CHECKING:
    from tc.compiler.capture.tracer import Tracer


def bind_descriptor(
    t: Tracer, owner: Value, cls: type, raw: Any, name: str, inherited: bool = False
) -> Value:
    """Return what reading a class attribute through an instance gives."""
    if isinstance(raw, types.FunctionType):
        # a method read from the class: found again by id, so no source of its own is needed
        return MethodValue(owner, t.function_of_class(owner, cls, raw, name, inherited))
    if isinstance(raw, staticmethod):
        return t.function_of_class(owner, cls, raw.__func__, name, inherited)
    if isinstance(raw, classmethod):
        function = t.function_of_class(owner, cls, raw.__func__, name, inherited)
        return MethodValue(t.known(cls), function)
    if isinstance(raw, property):
        if raw.fget is None:
            return t.raise_(AttributeError, f"property {name!r} has no getter")
        return t.inline_object(raw.fget, [owner])
    if isinstance(raw, functools.cached_property) and isinstance(owner, ObjectValue):
        return _compute_once(t, owner, raw, name)
    if isinstance(raw, functools._lru_cache_wrapper):
        return MethodValue(owner, t.known(raw))
    if isinstance(raw, types.WrapperDescriptorType | types.MethodDescriptorType):
        return t.slot_method(owner, raw)
    if isinstance(raw, types.GetSetDescriptorType) and hasattr(owner, "base_attr"):
        found: Value = owner.base_attr(t, name)
        return found
    getter = type_lookup(type(raw), "__get__")
    if isinstance(getter, types.FunctionType):
        return t.inline_object(getter, [t.known(raw), owner, t.known(cls)])
    if getter is not MISSING and not isinstance(raw, type):
        raise breaks.GraphBreak(breaks.UNSUPPORTED_ATTR, f"{owner.describe()}.{name}")
    source: Source | None = None
    if owner.source is None or inherited:
        source = _source_in_class(t, cls, raw, name)
    else:
        source = AttrSource(owner.source, name)
    return t.wrap(raw, source) if source is not None else t.known(raw)


def _compute_once(
    t: Tracer, owner: ObjectValue, raw: functools.cached_property[Any], name: str
) -> Value:
    """Return what a property computes that its object does not hold yet, and let it be held."""
    value = t.inline_object(raw.func, [owner])
    t.effects.store_attribute(owner, raw.attrname or name, value)
    return value


def _source_in_class(t: Tracer, cls: type, raw: Any, name: str) -> Source | None:
    """Return where a class attribute can be read again, None if nothing could have changed it."""
    for base in cls.__mro__:
        if id(base) not in t.made_inside and type_lookup(base, name) is raw:
            return None if is_library(base.__module__) else AttrSource(t.object_source(base), name)
    return None


def bind_class_attr(t: Tracer, owner: ClassValue, raw: Any, name: str) -> Value:
    """Return what reading a class attribute through the class gives."""
    if isinstance(raw, classmethod):
        return MethodValue(owner, t.known(raw.__func__))
    found = raw
    if isinstance(raw, staticmethod):
        found = raw.__func__
    elif not isinstance(raw, types.FunctionType | property) and hasattr(type(raw), "__get__"):
        found = raw.__get__(None, owner.obj)
    if type_lookup(owner.obj, name) is not raw:
        return t.known(found)  # found further up by super()
    return t.wrap(found, AttrSource(t.source_of(owner), name))
