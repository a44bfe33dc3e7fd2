"""The ``__dict__`` of an object: a dict whose items are the object's attributes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tc.compiler.capture import breaks
from tc.compiler.capture.values.base import UNBOUND, Value
from tc.compiler.capture.values.const import ConstValue
from tc.compiler.capture.values.dicts import DictValue, Entries
from tc.compiler.capture.values.keys import find
from tc.compiler.capture.values.lookup import (
    SLOT_TYPES,
    is_data_descriptor,
    type_lookup,
)
from tc.compiler.capture.values.objects import Attributed
from tc.compiler.core.sources import DictSource, instance_dict

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter, ResidualInterface


class AttributesValue(DictValue):
    """``vars(owner)``: reads return the values that traced code stored, stores go to the owner."""

    noun = "an object's __dict__"
    is_filled_late = True

    def __init__(self, owner: Attributed | DictValue) -> None:
        source = DictSource(owner.source) if owner.source is not None else None
        obj = instance_dict(owner.obj)
        super().__init__({}, source, obj={} if obj is None else obj)
        self.owner = owner

    def constant(self) -> Any:
        return super(DictValue, self).constant()

    def _names(self, t: Interpreter) -> list[str]:
        stores = t.effects.attributes_of(self.owner)
        gone = {
            name
            for name, value in stores.items()
            if value is UNBOUND or t.effects.was_deleted(self.owner, name)
        }
        names = [name for name in self.obj if name not in gone]
        return names + [
            n
            for n, v in stores.items()
            if n not in names and v is not UNBOUND and not self._is_slot(n)
        ]

    def _is_slot(self, name: str) -> bool:
        return isinstance(type_lookup(self.owner.python_type(), name), SLOT_TYPES)

    def whole(self, t: Interpreter) -> Entries:
        """Return all attributes, after guarding on the names of an existing object."""
        if self.pending:
            self.pending = False
            t.guards.keys(self)
        found: Entries = {}
        for name in self._names(t):
            value = self.owner.stored(t, name)
            if value is not None:
                found[name] = (ConstValue(name), value)
        self.entries = found
        return found

    def at(self, t: Interpreter, token: Any) -> Value:
        """Return an attribute."""
        found = self.owner.stored(t, token)
        return found if found is not None else t.python.raise_(KeyError, token)

    def find(self, t: Interpreter, key: Value) -> Any:
        """Return the name of an attribute that there is, or MISSING."""
        token = t.python.key(key)
        if self.pending and self.source is not None:
            t.guards.contains(self, key, token in self.obj)
        return find(self._names(t), token)

    def put(self, t: Interpreter, key: Value, value: Value) -> None:
        """Store an attribute, bypassing descriptors."""
        if is_data_descriptor(
            type_lookup(self.owner.python_type(), t.python.concrete(key))
        ):
            # The store that is replayed would call it.
            self.cannot(
                breaks.UNSUPPORTED_STORE, "an entry of __dict__ that a descriptor hides"
            )
        t.effects.store_attribute(self.owner, t.python.concrete(key), value)

    def drop(self, t: Interpreter, token: Any) -> Value:
        """Delete an attribute and return its value."""
        value = self.at(t, token)
        t.effects.store_attribute(self.owner, token, UNBOUND)
        return value

    def children(self, t: Interpreter) -> list[Value]:
        return [self.owner]

    def rebuild(self, r: ResidualInterface) -> None:
        r.push(self.owner)
        r.e.load_attr("__dict__")
