"""Side effects of traced code on objects that outlive it, kept in order for replay."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tc.compiler.capture import breaks
from tc.compiler.capture.values.base import UNBOUND, IteratorValue, Value
from tc.compiler.capture.values.functions import CellValue
from tc.compiler.capture.values.lookup import is_data_descriptor, type_lookup
from tc.compiler.capture.values.stored_data import StoredData
from tc.compiler.core.sources import instance_dict

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import ResidualInterface


def _had(owner: Value, name: str) -> bool:
    """Return whether an object had an attribute before the frame."""
    obj = owner.obj
    known = owner.source is not None and obj is not None
    if not known or name in (instance_dict(obj) or ()):
        return True
    defined = type_lookup(type(obj), name)
    if isinstance(defined, types.MemberDescriptorType):
        return hasattr(obj, name)
    return is_data_descriptor(defined)


class Effects:
    """The side effects of traced code; tracing itself changes only values.

    Values store the new contents of lists, dicts, sets and cells; this class stores attributes of
    objects and globals, of which the last store to each name counts. `writes` counts all changes,
    `outer_writes` those to objects older than the frame, `body_writes` those to objects older than
    the body of a higher-order operation (`body`). `demanded` are values that must be made even if
    nothing uses them, `generators` those that traced code has started. `references` are the weak
    references without a callback, by the ids of their referents' values: an object has one.
    """

    def __init__(self) -> None:
        self.writes = 0
        self.demanded: list[Value] = []
        self.generators: list[Value] = []
        self.references: dict[int, Value] = {}
        self.stored_data = StoredData()
        self.outer_writes = 0
        self.body_start = 0
        self.body_writes = 0
        self._changed: dict[int, Value] = {}
        self._attributes: dict[int, dict[str, Value]] = {}
        self._owners: dict[int, Value] = {}
        self._deleted: set[tuple[int, str]] = set()
        self._classes: dict[type, Value] = {}
        self._globals: dict[tuple[int, str], tuple[dict[str, Any], Value]] = {}

    def _count(self, value: Value) -> None:
        self.writes += 1
        self.outer_writes += self._outlives(value, at_break=True)
        self.body_writes += (
            value.source is not None or value.creation_index < self.body_start
        )

    @contextmanager
    def body(self) -> Iterator[Callable[[], bool]]:
        """Trace a body in the block.

        Yield a function that returns whether it changed outer objects.
        """
        start, self.body_start = self.body_start, Value.next_creation_index()
        before = self.body_writes
        try:
            yield lambda: self.body_writes != before
        finally:
            self.body_start = start

    # -- containers and cells --------------------------------------------------------------
    def changed(self, value: Value) -> None:
        """Record that the contents of a container or cell differ from those of the real object."""
        self._count(value)
        self._changed.setdefault(id(value), value)

    def was_changed(self, value: Value) -> bool:
        """Return whether the contents of a container or cell were changed."""
        return id(value) in self._changed

    # -- attributes ------------------------------------------------------------------------
    def store_attribute(self, owner: Value, name: str, value: Value) -> None:
        """Record ``owner.name = value``; UNBOUND means a deletion.

        Raises:
            GraphBreak: the owner was hashed, perhaps as a key, whose hash Python keeps.
        """
        if owner.is_hashed:
            what = f"a change of {owner.describe()}, which was hashed,"
            raise breaks.GraphBreak(breaks.UNSUPPORTED_OP, what)
        self._count(owner)
        self._owners.setdefault(id(owner), owner)
        stores = self._attributes.setdefault(id(owner), {})
        if value is UNBOUND and name in stores and not _had(owner, name):
            del stores[name]  # made and deleted by traced code: nothing to replay
            return
        if stores.get(name) is UNBOUND:
            # set again after a deletion: it goes to the end of __dict__
            del stores[name]
            self._deleted.add((id(owner), name))
        stores[name] = value

    def was_deleted(self, owner: Value, name: str) -> bool:
        """Return whether an attribute of an existing object was deleted and then set again."""
        return (id(owner), name) in self._deleted

    def attribute(self, owner: Value, name: str) -> Value | None:
        """Return the value stored to an attribute, UNBOUND after a deletion, else None."""
        return self._attributes.get(id(owner), {}).get(name)

    def store_class_attribute(self, owner: Value, name: str, value: Value) -> None:
        """Record a store to a class that existed before the frame."""
        self.store_attribute(
            self._classes.setdefault(owner.constant(), owner), name, value
        )

    def class_attribute(self, mro: Sequence[type], name: str) -> Value | None:
        """Return the value that traced code stored to the class that ``mro`` finds first."""
        for cls in mro if self._classes else ():
            stored = (
                self.attribute(self._classes[cls], name)
                if cls in self._classes
                else None
            )
            if stored is not None or name in cls.__dict__:
                return stored
        return None

    def are_stored(self, classes: Sequence[type]) -> bool:
        """Return whether an attribute of one of several classes was stored."""
        return any(cls in self._classes for cls in classes)

    def attributes_of(self, owner: Value) -> dict[str, Value]:
        """Return all stores to an object."""
        return self._attributes.get(id(owner), {})

    # -- calls -----------------------------------------------------------------------------
    def demand(self, value: Value) -> None:
        """Record a new value that must be made even if nothing uses it, for its side effects."""
        self.writes += 1
        self.outer_writes += 1
        self.body_writes += 1
        self.demanded.append(value)

    def withdraw(self, value: Value) -> None:
        """Undo `demand`."""
        self.demanded = [one for one in self.demanded if one is not value]

    # -- globals ---------------------------------------------------------------------------
    def store_global(
        self, module_globals: dict[str, Any], name: str, value: Value
    ) -> None:
        """Record a store to a global of a module."""
        self.writes += 1
        self.outer_writes += 1
        self.body_writes += 1
        key = (id(module_globals), name)
        self._globals.pop(key, None)
        self._globals[key] = (module_globals, value)

    def global_value(self, module_globals: dict[str, Any], name: str) -> Value | None:
        """Return the value that traced code stored to a global, or None."""
        entry = self._globals.get((id(module_globals), name))
        return entry[1] if entry else None

    # -- the way back ----------------------------------------------------------------------
    def any(self) -> bool:
        """Return whether a frame that returns has changed objects that it did not make."""
        return bool(self._globals or self.demanded) or bool(self.roots(at_break=False))

    @staticmethod
    def _outlives(value: Value, at_break: bool) -> bool:
        own_cell = (
            at_break and isinstance(value, CellValue) and value.root_name is not None
        )
        return value.source is not None or own_cell

    def roots(self, at_break: bool) -> list[Value]:
        """Return the existing objects to change; a resumed frame needs all its cells."""
        values = [*self._changed.values(), *self._owners.values()]
        return [value for value in values if self._outlives(value, at_break)]

    def changed_outside(self) -> list[Value]:
        """Return the changed containers and owners of attributes that existed before the frame."""
        values = [*self._changed.values(), *self._owners.values()]
        return [value for value in values if value.source is not None]

    def contents(self, value: Value) -> list[Value]:
        """Return the values that are stored into an object or a cell after it is made."""
        stored = [v for v in self.attributes_of(value).values() if v is not UNBOUND]
        return [*stored, *value.held()] if isinstance(value, CellValue) else stored

    def global_stores(self) -> list[tuple[dict[str, Any], str, Value]]:
        """Return all stores to globals: module globals, name, value."""
        return [
            (space, name, value) for (_, name), (space, value) in self._globals.items()
        ]

    def replay(
        self, r: ResidualInterface, made: dict[int, Value], at_break: bool
    ) -> None:
        """Emit all changes, in the order in which each object was first touched.

        Args:
            r: the residual code.
            made: new values that the residual code builds, by id: they are filled too.
            at_break: whether the frame is resumed after a break, and needs its own cells.
        """
        new_cells = [v for v in made.values() if isinstance(v, CellValue) and v.held()]
        distinct = {id(value): value for value in [*self._changed.values(), *new_cells]}
        # Places of iterators are set last: they may lie beyond the old end of a list.
        for value in sorted(
            distinct.values(), key=lambda one: isinstance(one, IteratorValue)
        ):
            new_cell = isinstance(value, CellValue) and id(value) in made
            if self._outlives(value, at_break) or new_cell:
                value.replay(r)  # type: ignore[attr-defined]
        for key, stores in list(self._attributes.items()):
            owner = self._owners[key]
            if not self._outlives(owner, at_break) and key not in made:
                continue
            for name, value in stores.items():
                deleted = value is UNBOUND or self.was_deleted(owner, name)
                if deleted and owner.source is not None:  # a new object never has it
                    r.replay_attribute(owner, name, None)
                if value is not UNBOUND:
                    r.replay_attribute(owner, name, value)
        for value in self.demanded:
            r.push(value)
            r.e.pop_top()
        for space, name, value in self.global_stores():
            r.replay_global(space, name, value)
