"""Lists and tuples, and iterators over them."""

from __future__ import annotations

import collections
import operator
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from tc.compiler.capture import breaks
from tc.compiler.capture.values.base import (
    Args,
    Exhausted,
    IteratorValue,
    Kwargs,
    Lazy,
    NotConstant,
    Slot,
    Value,
)
from tc.compiler.capture.values.const import ConstValue
from tc.compiler.capture.values.lookup import (
    field_index,
    replaced_slot,
    type_lookup,
)
from tc.compiler.capture.values.stand_ins import raise_as_python
from tc.compiler.core.sources import Source

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter, ResidualInterface


class SequenceValue(Value):
    """Base of lists and tuples: their items are wrapped when first read."""

    kind: type

    def __init__(self, slots: list[Slot], source: Source | None = None) -> None:
        self.slots = slots
        self.source = source
        self.creation_index = self.next_creation_index()

    def python_type(self) -> type:
        return self.kind

    def at(self, t: Interpreter, index: int) -> Value:
        """Return the item at a plain index."""
        slot = self.slots[index]
        if isinstance(slot, Lazy):
            slot = self.slots[index] = t.values.wrap(slot.obj, slot.source)
        return slot

    def values(self, t: Interpreter) -> list[Value]:
        """Return all items."""
        return [self.at(t, i) for i in range(len(self.slots))]

    def _constants(self) -> list[Any]:
        """Return the constants that the items are, or raise NotConstant."""
        if any(isinstance(slot, Lazy) for slot in self.slots):
            raise NotConstant(self.describe())
        return [slot.constant() for slot in self.slots if isinstance(slot, Value)]

    def like(self, slots: list[Slot]) -> Value:
        """Return a new sequence of the same kind."""
        return type(self)(slots)

    def truth(self, t: Interpreter) -> bool:
        return bool(self.slots)

    def length(self, t: Interpreter) -> Value:
        return ConstValue(len(self.slots))

    def iterate(self, t: Interpreter) -> Value:
        return SequenceIterator(self)

    def unpack(self, t: Interpreter) -> list[Value]:
        return self.values(t)

    def item(self, t: Interpreter, key: Value) -> Value:
        index = t.python.concrete(key)
        if type(index) is not int or not -len(self.slots) <= index < len(self.slots):
            # or Python's error
            index = t.python.fold(operator.getitem, self.places(), index)
        if not isinstance(index, int):
            return self.like([self.slots[place] for place in index])
        return self.at(t, index)

    def places(self) -> Any:
        """Return numbers in a container of this kind: Python says what it refuses of them."""
        kind = next(
            (k for k in (list, collections.deque) if issubclass(self.kind, k)), tuple
        )
        return kind(range(len(self.slots)))

    def attr(self, t: Interpreter, name: str) -> Value:
        if name == "__class__":
            return t.values.known(self.kind)
        return t.attributes.builtin_method(self, name)

    def method(self, t: Interpreter, name: str, args: Args, kwargs: Kwargs) -> Value:
        handler = SEQUENCE_METHODS.get(name)
        if handler is None:
            self.cannot(breaks.UNSUPPORTED_CALL, f"{self.kind.__name__}.{name}")
        return handler(t, self, *args, **kwargs)

    def children(self, t: Interpreter) -> list[Value]:
        return [slot for slot in self.slots if isinstance(slot, Value)]


class TupleValue(SequenceValue):
    """A tuple, a torch.Size, or a named tuple; `kind` is its class."""

    noun = "a tuple"

    def __init__(
        self, slots: list[Slot], source: Source | None = None, kind: type = tuple
    ) -> None:
        super().__init__(slots, source)
        self.kind = kind

    def constant(self) -> Any:
        return self.make(self._constants())

    def make(self, items: list[Any]) -> Any:
        """Return a Python object of this kind with those items."""
        if self._is_made_by_tuple():
            return tuple.__new__(self.kind, items)
        return self.kind(items)

    def _is_made_by_tuple(self) -> bool:
        """Return whether the class is the user's: its own `__new__` and `__init__` were traced."""
        maker = type_lookup(self.kind, "__new__")
        return isinstance(maker, staticmethod) or maker is tuple.__new__

    def like(self, slots: list[Slot]) -> Value:
        kind = self.kind if self.kind is torch.Size else tuple
        return TupleValue(slots, kind=kind)

    def attr(self, t: Interpreter, name: str) -> Value:
        index = field_index(self.kind, name)
        if index is not None:
            return self.at(t, index)
        own = self.has_own(name)
        if self.kind not in (tuple, torch.Size) and (own or name not in dir(tuple)):
            found = t.attributes.class_attr(self, self.kind, name)
            if found is not None:
                return found
        return super().attr(t, name)

    def own_special(self, name: str) -> Any:
        return replaced_slot(self.kind, name)

    def method(self, t: Interpreter, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name == "numel" and self.kind is torch.Size:
            total: Value = ConstValue(1)
            for size in self.values(t):
                total = t.python.binary("mul", total, size)
            return total
        own = self.has_own(name)
        if self.kind not in (tuple, torch.Size) and (
            own or name not in SEQUENCE_METHODS
        ):
            return self.attr(t, name).call(t, args, kwargs)
        return super().method(t, name, args, kwargs)

    def rebuild(self, r: ResidualInterface) -> None:
        if self.kind is tuple:
            r.push_slots(self.slots)
            r.e.build_tuple(len(self.slots))
            return
        own = self._is_made_by_tuple()
        r.load_callable(tuple.__new__ if own else self.kind)
        if own:
            r.load_object(self.kind)
        r.push_slots(self.slots)
        r.e.build_tuple(len(self.slots))
        r.e.call(1 + own)


class ListValue(SequenceValue):
    """A list; an input list to which items are only added is never read, nor is its length guarded.

    A loop that breaks fills a list over many frames: code that depended on its current length would
    serve a single iteration.
    """

    noun = "a list"
    kind: type = list

    def __init__(
        self,
        slots: list[Slot],
        source: Source | None = None,
        read: Callable[[], list[Slot]] | None = None,
    ) -> None:
        self._read = read
        self._slots: list[Slot] = []
        super().__init__(slots, source)

    def refill(self, t: Interpreter, slots: list[Slot]) -> None:
        """Put other items in the place of its own."""
        t.effects.changed(self)
        self.slots = slots

    @property
    def slots(self) -> list[Slot]:
        """The items; the first use reads the real list and guards its length."""
        if self._read is not None:
            read, self._read = self._read, None
            self._slots[:0] = read()
        return self._slots

    @slots.setter
    def slots(self, slots: list[Slot]) -> None:
        self._slots = slots

    def add(self, t: Interpreter, items: list[Value]) -> None:
        """Append items."""
        t.effects.changed(self)
        self._slots.extend(items)

    def children(self, t: Interpreter) -> list[Value]:
        return [slot for slot in self._slots if isinstance(slot, Value)]

    def constant(self) -> Any:
        if self.source is not None:
            raise NotConstant(self.describe())
        return self.make(self._constants())

    def make(self, items: list[Any]) -> Any:
        """Return a Python object of this kind with those items."""
        return items

    def set_item(self, t: Interpreter, key: Value, value: Value) -> None:
        index = t.python.concrete(key)
        if isinstance(index, slice):
            items = value.unpack(t)
            if index.step not in (None, 1) and len(self.slots[index]) != len(items):
                old, new = [None] * len(self.slots), [None] * len(items)
                t.python.fold(operator.setitem, old, index, new)
            t.effects.changed(self)
            self.slots[index] = list(items)
            return
        size = len(self.slots)
        if not isinstance(index, int) or not -size <= index < size:
            raise_as_python(t, self, "__setitem__", [key, value], {})
        t.effects.changed(self)
        self.slots[index] = value

    def del_item(self, t: Interpreter, key: Value) -> None:
        index = t.python.concrete(key)
        t.python.fold(operator.delitem, self.places(), index)  # Python's own errors
        t.effects.changed(self)
        del self.slots[index]

    def method(self, t: Interpreter, name: str, args: Args, kwargs: Kwargs) -> Value:
        handler = LIST_METHODS.get(name)
        if handler is not None:
            return handler(t, self, *args, **kwargs)
        return super().method(t, name, args, kwargs)

    def rebuild(self, r: ResidualInterface) -> None:
        r.push_slots(self.slots)
        r.e.build_list(len(self.slots))

    def replay(self, r: ResidualInterface) -> None:
        """Emit ``original[:] = items``, or the appending to a list that was not read."""
        if self._read is not None:
            r.push_slots(self._slots)
            r.e.build_list(len(self._slots))
            added = r.store_new()
            r.call_method(self, "extend", lambda: r.e.load_fast(added))
            return
        r.push_slots(self.slots)
        r.e.build_list(len(self.slots))
        r.push(self)
        r.e.load_const(slice(None))
        r.e.store_subscr()


class KnownIterator(IteratorValue):
    """Base of iterators over known items, which have a position."""

    index: int
    has_ended = False  # then it does not look at what it went over again, as in Python

    def count(self, t: Interpreter) -> int:
        """Advance and return the old position; an input iterator is changed by it."""
        if self.source is not None:
            t.effects.changed(self)
        self.index += 1
        return self.index - 1

    def _set_place(self, r: ResidualInterface) -> None:
        r.e.load_method("__setstate__")
        r.e.load_const(self.index)
        r.e.call(1)
        r.e.pop_top()


class SequenceIterator(KnownIterator):
    """An iterator over a list or tuple; sees later changes of the list, as Python's does."""

    def __init__(
        self, sequence: SequenceValue, index: int = 0, source: Source | None = None
    ) -> None:
        self.sequence = sequence
        self.size = len(sequence.slots)
        self.index = index
        self.source = source

    def python_type(self) -> type:
        return type(iter([] if isinstance(self.sequence, ListValue) else ()))

    def advance(self, t: Interpreter) -> Value:
        if self.is_invalid(t):
            raise breaks.SkipFrame(
                "a container changes its size while it is iterated over"
            )
        if self.index >= len(self.sequence.slots):
            if self.source is not None and not self.has_ended:
                t.effects.changed(self)
            self.has_ended = True
            self.sequence = ListValue([])
            raise Exhausted
        return self.sequence.at(t, self.count(t))

    def is_invalid(self, t: Interpreter) -> bool:
        """Return whether Python refuses to continue, since the container changed its size."""
        return False

    def children(self, t: Interpreter) -> list[Value]:
        return [self.sequence]

    def rebuild(self, r: ResidualInterface) -> None:
        r.push(self.sequence)
        r.e.get_iter()
        if self.index:
            r.e.copy(1)
            self._set_place(r)

    def replay(self, r: ResidualInterface) -> None:
        """Emit code that advances an input iterator, or ends it."""
        if self.has_ended:
            r.load_callable(_end)
            r.push(self)
            r.e.call(1)
            r.e.pop_top()
            return
        r.push(self)
        self._set_place(r)


def _end(iterator: Iterator[Any]) -> None:
    """End an iterator over a list; for residual code."""
    collections.deque(iterator, maxlen=0)


# -- methods ---------------------------------------------------------------------------------
def _append(t: Interpreter, x: ListValue, value: Value) -> Value:
    x.add(t, [value])
    return ConstValue(None)


def _extend(t: Interpreter, x: ListValue, values: Value) -> Value:
    for value in items_to_add(t, x, values):
        x.add(t, [value])
    return ConstValue(None)


def items_to_add(t: Interpreter, x: ListValue, values: Value) -> Iterable[Value]:
    """Return the items of an iterable; those of the container itself are not added for ever."""
    whole = values is x or type(values) in (ListValue, TupleValue)
    return values.unpack(t) if whole else values.each(t)


def _iadd(t: Interpreter, x: ListValue, values: Value) -> Value:
    _extend(t, x, values)
    return x


def _insert(t: Interpreter, x: ListValue, index: Value, value: Value) -> Value:
    t.effects.changed(x)
    x.slots.insert(t.python.concrete(index), value)
    return ConstValue(None)


def _pop(t: Interpreter, x: ListValue, index: Value | None = None) -> Value:
    place = -1 if index is None else t.python.concrete(index)
    if not -len(x.slots) <= place < len(x.slots):
        raise_as_python(t, x, "pop", [] if index is None else [index], {})
    value = x.at(t, place)
    t.effects.changed(x)
    del x.slots[place]
    return value


def _clear(t: Interpreter, x: ListValue) -> Value:
    t.effects.changed(x)
    x.slots.clear()
    return ConstValue(None)


def _reverse(t: Interpreter, x: ListValue) -> Value:
    t.effects.changed(x)
    x.slots.reverse()
    return ConstValue(None)


def _remove(t: Interpreter, x: ListValue, value: Value) -> Value:
    for index, item in enumerate(x.values(t)):
        if t.python.equal(item, value):
            t.effects.changed(x)
            del x.slots[index]
            return ConstValue(None)
    raise_as_python(t, x, "remove", [value], {})
    return t.python.raise_(
        ValueError, f"{x.kind.__name__}.remove(x): x not in {x.kind.__name__}"
    )


def sort_values(
    t: Interpreter,
    values: list[Value],
    key: Value | None = None,
    reverse: Value | None = None,
) -> list[Value]:
    """Sort values by Python's stable order, ``key`` being a traced function."""
    has_key = key is not None and not (key.is_constant() and key.constant() is None)
    keys = (
        [key.call(t, [v], {}) for v in values]
        if has_key and key is not None
        else values
    )

    class Key:
        """A key that is compared in traced code, where and when Python's sort compares."""

        def __init__(self, at: int) -> None:
            self.at = at

        def __lt__(self, other: Key) -> bool:
            return t.python.binary("lt", keys[self.at], keys[other.at]).truth(t)

    backwards = reverse is not None and reverse.truth(t)
    return [values[i] for i in sorted(range(len(values)), key=Key, reverse=backwards)]


def _sort(
    t: Interpreter,
    x: ListValue,
    *,
    key: Value | None = None,
    reverse: Value | None = None,
) -> Value:
    values = x.values(t)
    t.effects.changed(x)
    x.slots.clear()  # so it is for the key function, too
    try:
        ordered = sort_values(t, values, key, reverse)
        changed = bool(x.slots)
    finally:
        x.slots[:] = values
    x.slots[:] = ordered
    if changed:
        return t.python.raise_(ValueError, "list modified during sort")
    return ConstValue(None)


def _copy(t: Interpreter, x: SequenceValue) -> Value:
    return x.like(list(x.slots))


def _index(t: Interpreter, x: SequenceValue, value: Value, *bounds: Value) -> Value:
    limits = [t.python.concrete(bound) for bound in bounds]
    start, stop = [*limits, None, None][:2]
    for index in range(len(x.slots))[start:stop]:
        if t.python.equal(x.at(t, index), value):
            return ConstValue(index)
    raise_as_python(t, x, "index", [value, *bounds], {})
    return t.python.raise_(
        ValueError, f"{value.describe()} is not in {x.kind.__name__}"
    )


def _count(t: Interpreter, x: SequenceValue, value: Value) -> Value:
    return ConstValue(sum(t.python.equal(item, value) for item in x.values(t)))


def _contains(t: Interpreter, x: SequenceValue, value: Value) -> Value:
    return ConstValue(any(t.python.equal(item, value) for item in x.values(t)))


def _hash(t: Interpreter, x: SequenceValue) -> Value:
    return t.python.folded(hash, t.python.concrete(x))


SEQUENCE_METHODS: dict[str, Callable[..., Value]] = {
    "index": _index,
    "count": _count,
    "__contains__": _contains,
    "__getitem__": lambda t, x, key: x.item(t, key),
    "__len__": lambda t, x: x.length(t),
    "__iter__": lambda t, x: x.iterate(t),
    "__hash__": _hash,
    "__add__": lambda t, x, other: t.python.binary("add", x, other),
    "__mul__": lambda t, x, other: t.python.binary("mul", x, other),
    "__eq__": lambda t, x, other: t.python.binary("eq", x, other),
}


def _initialise(t: Interpreter, x: ListValue, *items: Value) -> Value:
    _clear(t, x)
    return _extend(t, x, *items) if items else ConstValue(None)


def _set_item(t: Interpreter, x: ListValue, key: Value, value: Value) -> Value:
    x.set_item(t, key, value)
    return ConstValue(None)


def _del_item(t: Interpreter, x: ListValue, key: Value) -> Value:
    x.del_item(t, key)
    return ConstValue(None)


LIST_METHODS: dict[str, Callable[..., Value]] = {
    "__init__": _initialise,
    "append": _append,
    "extend": _extend,
    "__iadd__": _iadd,
    "insert": _insert,
    "pop": _pop,
    "clear": _clear,
    "reverse": _reverse,
    "remove": _remove,
    "sort": _sort,
    "copy": _copy,
    "__setitem__": _set_item,
    "__delitem__": _del_item,
}
