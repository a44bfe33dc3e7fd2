"""``super()``: attributes along the rest of a class's method resolution order."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from tc.compiler.capture import breaks
from tc.compiler.capture.values.base import Args, Kwargs, LambdaValue, Value
from tc.compiler.capture.values.functions import MethodValue
from tc.compiler.capture.values.lookup import MISSING, is_users_function, type_lookup
from tc.compiler.capture.values.objects import ClassValue
from tc.compiler.core.sources import AttrSource

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter, ResidualInterface

#: methods of the metaclass of enumerations that return iterators
ITERATING = ("__iter__", "__reversed__")
#: and those that do nothing but read the members
PURE_OF_ENUMERATIONS = (
    "__getitem__",
    "__contains__",
    "__len__",
    "__bool__",
    *ITERATING,
)

#: special methods of `type` that the tracer has rules for
OF_TYPE = ("__call__", "__instancecheck__", "__subclasscheck__")


class SuperValue(Value):
    """``super(cls, owner)``."""

    noun = "super()"

    def __init__(self, cls: type, owner: Value) -> None:
        self.cls = cls
        self.owner = owner

    def python_type(self) -> type:
        return super

    def attr(self, t: Interpreter, name: str) -> Value:
        start = (
            self.owner.obj
            if isinstance(self.owner, ClassValue)
            else self.owner.python_type()
        )
        if self.cls not in start.__mro__:  # in a method of a metaclass
            return self._of_metaclass(t, name)
        raw = type_lookup(start, name, after=self.cls)
        own = start.__mro__.index(self.cls)
        mro = start.__mro__[own + 1 :]
        stored = t.effects.class_attribute(mro, name)
        if stored is not None:
            return stored
        if raw is MISSING:
            return t.python.raise_(
                AttributeError, f"'super' object has no attribute '{name}'"
            )
        if type_lookup(type(raw), "__get__") is MISSING:
            home = next(base for base in mro if name in base.__dict__)
            source = t.values.source_of(t.values.known(home))
            return t.values.wrap(raw, AttrSource(source, name))
        if isinstance(self.owner, ClassValue):
            return t.attributes.bind_class_attr(self.owner, raw, name)
        return t.attributes.bind_descriptor(
            self.owner, start, raw, name, inherited=True
        )

    def _of_metaclass(self, t: Interpreter, name: str) -> Value:
        """Return what a metaclass inherits: from the program, `type`, or enumerations."""
        raw = type_lookup(type(self.owner.obj), name, after=self.cls)
        if is_users_function(raw):
            return MethodValue(self.owner, t.values.function_of_class(raw))
        if any(raw is vars(type)[special] for special in OF_TYPE):
            return MethodValue(self.owner, t.values.known(raw))
        if (
            not isinstance(self.owner.obj, enum.EnumMeta)
            or name not in PURE_OF_ENUMERATIONS
        ):
            self.cannot(breaks.UNSUPPORTED_ATTR, f"super().{name} of a class")
        inherited = getattr(super(self.cls, self.owner.obj), name)

        def call(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
            found = t.python.fold(inherited, *t.python.concrete_list(args))
            if name in ITERATING:
                return t.values.known(list(found)).iterate(t)
            return t.values.known(found)

        return LambdaValue(call, f"super().{name}")

    def children(self, t: Interpreter) -> list[Value]:
        return [self.owner]

    def rebuild(self, r: ResidualInterface) -> None:
        r.load_callable(super)
        r.load_object(self.cls)
        r.push(self.owner)
        r.e.call(2)
