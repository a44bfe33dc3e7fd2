"""Side effects of traced code on objects that outlive it, kept in order for replay."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tc.compiler.capture.values.base import UNBOUND, Value
from tc.compiler.capture.values.functions import CellValue

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import ResidualInterface


def _had(owner: Value, name: str) -> bool:
    """Return whether an object had an attribute before traced code began."""
    obj = owner.obj
    known = owner.source is not None and obj is not None
    return not known or name in getattr(obj, "__dict__", ()) or hasattr(type(obj), name)


class Effects:
    """What traced code changed; tracing itself changes nothing but values.

    Contents of lists, dicts, sets and cells are kept by their values; the attributes of objects
    and globals are kept here, the last store of each name winning. `writes` counts all changes,
    `outer_writes` those of what was there before the frame began, `body_writes` those of what was
    there before the body of a higher-order operation (`body`). `demanded` are values that must be
    made even if nobody uses them, `generators` those that traced code has started.
    """

    def __init__(self) -> None:
        self.writes = 0
        self.demanded: list[Value] = []
        self.generators: list[Value] = []
        self.outer_writes = 0
        self.body_start = 0
        self.body_writes = 0
        self._changed: dict[int, Value] = {}
        self._attributes: dict[int, dict[str, Value]] = {}
        self._owners: dict[int, Value] = {}
        self._classes: dict[type, Value] = {}
        self._globals: dict[tuple[int, str], tuple[dict[str, Any], Value]] = {}

    def _count(self, value: Value) -> None:
        self.writes += 1
        self.outer_writes += self._outlives(value, at_break=True)
        self.body_writes += value.source is not None or value.creation_index < self.body_start

    @contextmanager
    def body(self) -> Iterator[Callable[[], bool]]:
        """For a block that traces a body: yield what says whether it changed something outside."""
        start, self.body_start = self.body_start, Value.next_creation_index()
        before = self.body_writes
        try:
            yield lambda: self.body_writes != before
        finally:
            self.body_start = start

    # -- containers and cells --------------------------------------------------------------
    def changed(self, value: Value) -> None:
        """Note that a container's or cell's contents differ from the real object's."""
        self._count(value)
        self._changed.setdefault(id(value), value)

    def was_changed(self, value: Value) -> bool:
        """Return whether the contents of a container or cell were changed."""
        return id(value) in self._changed

    # -- attributes ------------------------------------------------------------------------
    def store_attribute(self, owner: Value, name: str, value: Value) -> None:
        """Note ``owner.name = value``; UNBOUND stands for a deletion."""
        self._count(owner)
        self._owners.setdefault(id(owner), owner)
        stores = self._attributes.setdefault(id(owner), {})
        if value is UNBOUND and name in stores and not _had(owner, name):
            del stores[name]  # made and deleted by traced code: nothing is left to be done
            return
        if stores.get(name) is UNBOUND:
            del stores[name]  # set again after a deletion: it goes to the end of __dict__
        stores[name] = value

    def attribute(self, owner: Value, name: str) -> Value | None:
        """Return what traced code stored, UNBOUND if it deleted it, None if it did neither."""
        return self._attributes.get(id(owner), {}).get(name)

    def store_class_attribute(self, owner: Value, name: str, value: Value) -> None:
        """Note a store to a class that was there before traced code began."""
        self.store_attribute(self._classes.setdefault(owner.constant(), owner), name, value)

    def class_attribute(self, mro: Sequence[type], name: str) -> Value | None:
        """Return what traced code stored to the class that a look-up along ``mro`` comes to."""
        for cls in mro if self._classes else ():
            stored = self.attribute(self._classes[cls], name) if cls in self._classes else None
            if stored is not None or name in cls.__dict__:
                return stored
        return None

    def attributes_of(self, owner: Value) -> dict[str, Value]:
        """Return all stores to an object."""
        return self._attributes.get(id(owner), {})

    # -- calls -----------------------------------------------------------------------------
    def demand(self, value: Value) -> None:
        """Note a new value that must be made even if nobody uses it, for what making it does."""
        self.writes += 1
        self.outer_writes += 1
        self.body_writes += 1
        self.demanded.append(value)

    def withdraw(self, value: Value) -> None:
        """Take a demand back."""
        self.demanded = [one for one in self.demanded if one is not value]

    # -- globals ---------------------------------------------------------------------------
    def store_global(self, module_globals: dict[str, Any], name: str, value: Value) -> None:
        """Note a store to a global of a module."""
        self.writes += 1
        self.outer_writes += 1
        self.body_writes += 1
        key = (id(module_globals), name)
        self._globals.pop(key, None)
        self._globals[key] = (module_globals, value)

    def global_value(self, module_globals: dict[str, Any], name: str) -> Value | None:
        """Return what traced code stored to a global, or None."""
        entry = self._globals.get((id(module_globals), name))
        return entry[1] if entry else None

    # -- the way back ----------------------------------------------------------------------
    def any(self) -> bool:
        """Return whether a frame that returns has anything to replay on objects it did not make."""
        return bool(self._globals or self.demanded) or bool(self.roots(at_break=False))

    @staticmethod
    def _outlives(value: Value, at_break: bool) -> bool:
        own_cell = at_break and isinstance(value, CellValue) and value.root_name is not None
        return value.source is not None or own_cell

    def roots(self, at_break: bool) -> list[Value]:
        """Return the existing objects that have to be changed; a break goes on with all cells."""
        values = [*self._changed.values(), *self._owners.values()]
        return [value for value in values if self._outlives(value, at_break)]

    def changed_outside(self) -> list[Value]:
        """Return what was there before the frame and was changed: containers and owners."""
        values = [*self._changed.values(), *self._owners.values()]
        return [value for value in values if value.source is not None]

    def contents(self, value: Value) -> list[Value]:
        """Return what an object's attributes, or a cell, hold: put in after it is made."""
        stored = [v for v in self.attributes_of(value).values() if v is not UNBOUND]
        return [*stored, *value.held()] if isinstance(value, CellValue) else stored

    def global_stores(self) -> list[tuple[dict[str, Any], str, Value]]:
        """Return all stores to globals: module globals, name, value."""
        return [(space, name, value) for (_, name), (space, value) in self._globals.items()]

    def replay(self, r: ResidualInterface, made: dict[int, Value], at_break: bool) -> None:
        """Emit all changes, in the order in which each object was first touched.

        Args:
            r: the residual code.
            made: new values that the residual code builds, by id: they are filled too.
            at_break: the code goes on after a break, and needs the frame's own cells.
        """
        new_cells = [v for v in made.values() if isinstance(v, CellValue) and v.held()]
        for value in {id(v): v for v in [*self._changed.values(), *new_cells]}.values():
            new_cell = isinstance(value, CellValue) and id(value) in made
            if self._outlives(value, at_break) or new_cell:
                value.replay(r)  # type: ignore[attr-defined]
        for key, stores in list(self._attributes.items()):
            owner = self._owners[key]
            if not self._outlives(owner, at_break) and key not in made:
                continue
            for name, value in stores.items():
                if value is UNBOUND and owner.source is None:
                    continue  # a new object is made without what was deleted
                r.replay_attribute(owner, name, None if value is UNBOUND else value)
        for value in self.demanded:
            r.push(value)
            r.e.pop_top()
        for space, name, value in self.global_stores():
            r.replay_global(space, name, value)
