"""Objects of user-defined subclasses of list: attributes as any object, items as a list."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tc.compiler.capture.guards.facts import is_heap_type
from tc.compiler.capture.values.base import Args, Kwargs, Lazy, Slot, Value
from tc.compiler.capture.values.containers import ListValue
from tc.compiler.capture.values.iterators import ReversedIterator
from tc.compiler.capture.values.stored_objects import StoredObject
from tc.compiler.core.sources import CallSource, Source

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter, ResidualInterface


class ItemList(ListValue):
    """The items of a list object; changes and replays bypass the methods of its class."""

    def __init__(
        self,
        owner: ListObjectValue,
        read: Callable[[], list[Slot]] | None,
    ) -> None:
        super().__init__([], owner.source, read)
        self.owner = owner

    @property
    def holder(self) -> Value:
        return self.owner

    def like(self, slots: list[Slot]) -> Value:
        return ListValue(slots)

    def replay(self, r: ResidualInterface) -> None:
        """Emit a refill of the object's items, or the appending to those that were not read."""
        unread = self._read is not None
        slots = self._slots if unread else self.slots
        r.load_callable(list.extend if unread else refill)
        r.push(self.owner)
        r.push_slots(slots)
        r.e.build_list(len(slots))
        r.e.call(2)
        r.e.pop_top()


class ListObjectValue(StoredObject):
    """An instance of a subclass of list."""

    noun = "a list object"
    bases = (list,)

    def __init__(
        self,
        cls: type,
        obj: Any = None,
        source: Source | None = None,
        read: Callable[[], list[Slot]] | None = None,
    ) -> None:
        super().__init__(cls, obj, source)
        self.storage = ItemList(self, read)

    def call_base(
        self,
        t: Interpreter,
        name: str,
        args: Args,
        kwargs: Kwargs,
    ) -> Value:
        if name == "__reversed__":
            return ReversedIterator(self.storage, len(self.storage.slots) - 1)
        return super().call_base(t, name, args, kwargs)

    def rebuild(self, r: ResidualInterface) -> None:
        r.load_callable(make)
        r.load_object(self.cls)
        r.push_slots(self.storage.slots)
        r.e.build_list(len(self.storage.slots))
        r.e.call(2)


def accepts(obj: Any) -> bool:
    """Return whether an object is an instance of a user's subclass of list."""
    return issubclass(type(obj), list) and is_heap_type(type(obj))


def wrap_list_object(
    t: Interpreter,
    obj: Any,
    source: Source,
) -> Value:
    """Return the value of an existing list object; its items are read when they are asked for."""
    t.guards.add("TYPE", source, type(obj))

    def read() -> list[Slot]:
        t.guards.add(
            "EQUALS", CallSource(source, len_of, "list.__len__({})"), len_of(obj)
        )
        return [
            Lazy(
                list.__getitem__(obj, i),
                CallSource(
                    source,
                    functools.partial(item_of, i),
                    f"list.__getitem__({{}}, {i})",
                ),
            )
            for i in range(len_of(obj))
        ]

    return ListObjectValue(type(obj), obj, source, read)


def len_of(obj: list[Any]) -> int:
    """Return the number of items, bypassing methods of the class."""
    return list.__len__(obj)


def item_of(index: int, obj: list[Any]) -> Any:
    """Return an item, bypassing methods of the class."""
    return list.__getitem__(obj, index)


def make(cls: Any, items: list[Any]) -> Any:
    """Make a list object without running its class's code; called from residual code."""
    made = list.__new__(cls)
    refill(made, items)
    return made


def refill(target: Any, items: list[Any]) -> None:
    """Replace all items, bypassing the methods of the class; called from residual code."""
    list.__setitem__(target, slice(None), items)
