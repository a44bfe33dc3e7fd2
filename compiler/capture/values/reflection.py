"""Objects that describe code: descriptors, and generics of typing."""

from __future__ import annotations

import collections
import functools
import types
import typing
from typing import TYPE_CHECKING, Any

from tc.compiler.capture.values.base import (
    Args,
    KnownObject,
    Kwargs,
    LambdaValue,
    Value,
)
from tc.compiler.capture.values.const import ConstValue
from tc.compiler.capture.values.handlers import handles
from tc.compiler.capture.values.objects import ObjectValue
from tc.compiler.core.sources import AttrSource, Source

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter, ResidualInterface

SLOTS = (types.GetSetDescriptorType, types.MemberDescriptorType)
DESCRIPTORS = (*SLOTS, property, classmethod, staticmethod, functools.cached_property)


class DescriptorValue(KnownObject):
    """A property, slot, classmethod or staticmethod that is used as an object."""

    noun = "a descriptor"

    def truth(self, t: Interpreter) -> bool:
        return True

    def attr(self, t: Interpreter, name: str) -> Value:
        if name == "__get__" and t.values.has_rule(
            found := getattr(self.obj, name, None)
        ):
            return t.values.known(found)  # overrides compare functions with it
        if name in ("__get__", "__set__", "__delete__"):
            return LambdaValue(
                lambda t, args, kwargs: self._use(t, name, args),
                f"{self.describe()}.{name}",
            )
        if id(self.obj) in t.values.made_inside and name in (
            "setter",
            "getter",
            "deleter",
        ):
            return LambdaValue(
                lambda t, args, kwargs: self._with(t, name, args[0]), f"property.{name}"
            )
        found = t.python.fold(getattr, self.obj, name)
        if self.source is None:
            return t.values.known(found)
        return t.values.wrap(found, AttrSource(self.source, name))

    def _with(self, t: Interpreter, name: str, function: Value) -> Value:
        """Return a property of traced code with another function."""
        parts = {"fget": self.obj.fget, "fset": self.obj.fset, "fdel": self.obj.fdel}
        known = {part: t.values.known(one) for part, one in parts.items()}
        known[{"setter": "fset", "getter": "fget", "deleter": "fdel"}[name]] = function
        return t.values.known(property).call(t, [], known)

    def _use(self, t: Interpreter, way: str, args: Args) -> Value:
        name: str = getattr(self.obj, "__name__", "") or getattr(
            self.obj, "attrname", ""
        )
        if isinstance(self.obj, property) and way != "__get__":
            function = self.obj.fset if way == "__set__" else self.obj.fdel
            return t.inline_object(function, args)
        if way == "__get__" and t.python.is_none(args[0]) and len(args) < 2:
            return self
        if way == "__get__" and not isinstance(self.obj, SLOTS):
            owner = args[0] if not t.python.is_none(args[0]) else args[1]
            cls = args[1].constant() if len(args) > 1 else owner.python_type()
            return t.attributes.bind_descriptor(
                owner, cls, self.obj, name, inherited=True
            )
        if way == "__get__":
            return args[0].attr(t, name)
        if way == "__set__":
            args[0].set_attr(t, name, args[1])
        else:
            args[0].del_attr(t, name)
        return ConstValue(None)

    def rebuild(self, r: ResidualInterface) -> None:
        r.load_object(self.obj)


def wrap_descriptor(t: Interpreter, obj: Any, source: Source) -> Value:
    """Return the value of a descriptor."""
    t.guards.add("ID", source, obj)
    return DescriptorValue(obj, source)


class GenericValue(ConstValue):
    """An object of the typing module, or ``list[int]``: a constant that describes a class."""

    noun = "a generic"

    def call(self, t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
        origin = getattr(self.obj, "__origin__", None)
        if isinstance(self.obj, typing.NewType):
            return args[0]
        if not isinstance(origin, type):
            return t.python.raise_(TypeError, f"Type {self.obj} cannot be instantiated")
        made = t.values.known(origin).call(t, args, kwargs)
        if isinstance(made, ObjectValue):
            made.set_attr(t, "__orig_class__", self)
        return made

    def rebuild(self, r: ResidualInterface) -> None:
        r.load_object(self.obj)


def is_generic(obj: Any) -> bool:
    """Return whether an object is one of typing's, or a builtin generic or union."""
    kind = type(obj)
    if kind in (types.GenericAlias, types.UnionType):
        return True
    return kind.__module__ == "typing" and not isinstance(
        obj, type | types.FunctionType
    )


def wrap_generic(t: Interpreter, obj: Any, source: Source) -> Value:
    """Return the value of a generic."""
    t.guards.add("ID", source, obj)
    return GenericValue(obj, source)


@handles(collections.namedtuple)
def _namedtuple(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    plain = t.python.concrete_list(args)
    named = t.python.concrete_dict(kwargs)
    if t.top is not None:
        named.setdefault("module", t.top.module_globals.get("__name__"))
    return t.python.folded(collections.namedtuple, *plain, **named)
