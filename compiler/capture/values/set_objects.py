"""Objects of user-defined subclasses of set and frozenset: attributes, and items as a set."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tc.compiler.capture.guards.facts import is_heap_type
from tc.compiler.capture.values.base import Args, Kwargs, Slot, Value
from tc.compiler.capture.values.const import ConstValue, is_constant_object
from tc.compiler.capture.values.keys import OWN_LOOKUP, refuse_comparisons
from tc.compiler.capture.values.lookup import REFLECTED
from tc.compiler.capture.values.sets import SetValue
from tc.compiler.capture.values.stored_objects import StoredObject
from tc.compiler.core.sources import CallSource, Source

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter, ResidualInterface


#: the methods of operators, which take sets alone
OF_TWO_SETS = frozenset(
    f"__{name}__"
    for plain in ("or", "and", "sub", "xor")
    for name in (plain, f"r{plain}", f"i{plain}")
) | {f"__{name}__" for name in REFLECTED}


class ItemSet(SetValue):
    """The items of a set object; changes and replays bypass the methods of its class."""

    def __init__(
        self,
        owner: SetObjectValue,
        items: dict[Any, Slot],
        original: Any,
        table: Any,
    ) -> None:
        super().__init__(items, owner.source, owner.base, table, original)
        self.owner = owner

    @property
    def holder(self) -> Value:
        return self.owner

    def call_on_original(
        self,
        r: ResidualInterface,
        name: str,
        slots: list[Slot],
    ) -> None:
        r.load_callable(getattr(set, name))
        r.push(self.owner)
        r.push_slots(slots)
        r.e.build_list(len(slots))
        r.e.call(2)
        r.e.pop_top()


class SetObjectValue(StoredObject):
    """An instance of a subclass of set or frozenset."""

    noun = "a set object"
    bases = (set, frozenset)

    def __init__(
        self,
        cls: type,
        obj: Any = None,
        source: Source | None = None,
        items: dict[Any, Slot] | None = None,
        original: Any = None,
        table: Any = None,
    ) -> None:
        super().__init__(cls, obj, source)
        if original is None and table is None:
            table = self.base()
        self.storage = ItemSet(self, items or {}, original, table)

    def call_base(
        self,
        t: Interpreter,
        name: str,
        args: Args,
        kwargs: Kwargs,
    ) -> Value:
        sets = (issubclass(one.python_type(), self.bases) for one in args)
        if name in OF_TWO_SETS and not all(sets):
            return ConstValue(NotImplemented)
        return super().call_base(t, name, args, kwargs)

    def rebuild(self, r: ResidualInterface) -> None:
        refuse_comparisons(self.storage.items)
        with OWN_LOOKUP:
            slots = [self.storage.items[token] for token in self.storage.tokens()]
        r.load_callable(make)
        r.load_object(self.cls)
        r.push_slots(slots)
        r.e.build_list(len(slots))
        r.e.call(2)


def accepts(obj: Any) -> bool:
    """Return whether an object is of a user's subclass of set or frozenset, with plain items.

    Its order has to be that of a copy, which replaces it.
    """
    kind = type(obj)
    if not issubclass(kind, SetObjectValue.bases) or not is_heap_type(kind):
        return False
    base: Any = SetObjectValue.base_of(kind)
    items = items_of(base, obj)
    return all(map(is_constant_object, items)) and items == tuple(base.copy(obj))


def wrap_set_object(
    t: Interpreter,
    obj: Any,
    source: Source,
) -> SetObjectValue:
    """Return the value of an existing set object."""
    base: Any = SetObjectValue.base_of(type(obj))
    items = items_of(base, obj)
    place = CallSource(
        source,
        functools.partial(items_of, base),
        f"tuple({base.__name__}.__iter__({{}}))",
        "{}",
    )
    t.guards.add("TYPE", source, type(obj))
    t.guards.add("ITEMS", place, items)
    known: dict[Any, Slot] = {item: t.values.known(item) for item in items}
    return SetObjectValue(type(obj), obj, source, known, base.copy(obj))


def items_of(base: Any, obj: Any) -> tuple[Any, ...]:
    """Return the items in their order, bypassing methods of the class."""
    return tuple(base.__iter__(obj))


def make(cls: Any, items: Iterable[Any]) -> Any:
    """Make a set object without running its class's code; called from residual code."""
    if issubclass(cls, frozenset):
        return frozenset.__new__(cls, items)
    made = set.__new__(cls)
    set.update(made, items)
    return made
