"""Instances of subclasses of tuple that have a ``__dict__``: items and attributes of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tc.compiler.capture.values.base import NotConstant, Slot, Value
from tc.compiler.capture.values.containers import TupleValue
from tc.compiler.capture.values.lookup import field_index, type_lookup
from tc.compiler.capture.values.objects import Attributed
from tc.compiler.core.sources import Source

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter


class TupleObjectValue(TupleValue, Attributed):
    """A tuple with attributes; those are read and stored as those of any other object."""

    noun = "a tuple object"

    def __init__(
        self, slots: list[Slot], source: Source | None = None, kind: type = tuple, obj: Any = None
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


def tuple_of(slots: list[Slot], kind: type, source: Source | None = None, obj: Any = None) -> Value:
    """Return the value of a tuple of some class."""
    if kind.__dictoffset__:
        return TupleObjectValue(slots, source, kind, obj)
    return TupleValue(slots, source, kind)
