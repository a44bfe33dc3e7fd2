"""Instances of subclasses of tuple: special methods, items and attributes of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tc.compiler.capture.guards.facts import is_heap_type
from tc.compiler.capture.values.base import Args, Kwargs, NotConstant, Slot, Value
from tc.compiler.capture.values.containers import TupleValue
from tc.compiler.capture.values.iterators import ReversedIterator
from tc.compiler.capture.values.lookup import (
    MISSING,
    field_index,
    is_struct_sequence,
    type_lookup,
)
from tc.compiler.capture.values.objects import Attributed
from tc.compiler.core.sources import Source

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter


class OwnTupleValue(TupleValue):
    """A tuple of a class that a program defines, which may override special methods."""

    def own(self, t: Interpreter, name: str) -> Value | None:
        """Return a special method that the class overrides, bound to the tuple."""
        raw = self.own_special(name)
        if raw is MISSING:
            return None
        kind = self.kind
        return t.attributes.bind_descriptor(self, kind, raw, name, inherited=True)

    def item(self, t: Interpreter, key: Value) -> Value:
        own = self.own(t, "__getitem__")
        if own is None:
            return super().item(t, key)
        return own.call(t, [key], {})

    def iterate(self, t: Interpreter) -> Value:
        own = self.own(t, "__iter__")
        if own is None:
            return super().iterate(t)
        return t.python.slot_result(self.kind, "__iter__", own.call(t, [], {}))

    def reversed(self, t: Interpreter) -> Value:
        """Return the value of ``reversed(self)``."""
        own = self.own(t, "__reversed__")
        if own is not None:
            return own.call(t, [], {})
        return ReversedIterator(self, t.python.concrete(self.length(t)) - 1)

    def length(self, t: Interpreter) -> Value:
        own = self.own(t, "__len__")
        if own is None:
            return super().length(t)
        return t.python.slot_result(self.kind, "__len__", own.call(t, [], {}))

    def truth(self, t: Interpreter) -> bool:
        if (
            type_lookup(self.kind, "__bool__") is MISSING
            and self.own(t, "__len__") is None
        ):
            return super().truth(t)
        return self.truth_by_class(t)

    def unpack(self, t: Interpreter) -> list[Value]:
        own = self.own(t, "__iter__")
        if own is None:
            return super().unpack(t)
        return self.iterate(t).unpack(t)

    def call(self, t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
        own = self.own(t, "__call__")
        if own is None:
            return super().call(t, args, kwargs)
        return own.call(t, args, kwargs)


class TupleObjectValue(OwnTupleValue, Attributed):
    """A tuple with attributes; those are read and stored as those of any other object."""

    noun = "a tuple object"

    def __init__(
        self,
        slots: list[Slot],
        source: Source | None = None,
        kind: type = tuple,
        obj: Any = None,
    ) -> None:
        super().__init__(slots, source, kind)
        self.cls = kind
        self.obj = obj

    def constant(self) -> Any:
        raise NotConstant(self.describe())

    def attr(self, t: Interpreter, name: str) -> Value:
        return Attributed.attr(self, t, name)

    def find(self, t: Interpreter, name: str) -> Value | None:
        if field_index(self.kind, name) is not None:
            return TupleValue.attr(self, t, name)
        raw = type_lookup(self.kind, name)
        if raw is type_lookup(tuple, name) and raw is not type_lookup(object, name):
            return self.stored(t, name) or TupleValue.attr(self, t, name)
        return super().find(t, name)

    def generic_set_attr(self, t: Interpreter, name: str, value: Value) -> None:
        if field_index(self.kind, name) is not None:
            t.python.raise_(AttributeError, "can't set attribute")
        super().generic_set_attr(t, name, value)

    def generic_del_attr(self, t: Interpreter, name: str) -> None:
        if field_index(self.kind, name) is not None:
            t.python.raise_(AttributeError, "can't delete attribute")
        super().generic_del_attr(t, name)


def tuple_of(
    slots: list[Slot], kind: type, source: Source | None = None, obj: Any = None
) -> Value:
    """Return the value of a tuple of some class."""
    if kind.__dictoffset__:
        return TupleObjectValue(slots, source, kind, obj)
    if is_heap_type(kind) and not is_struct_sequence(kind):
        return OwnTupleValue(slots, source, kind)
    return TupleValue(slots, source, kind)
