"""Deques: lists of limited length that grow and shrink at both ends, and iterators over them."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, Any

from tc.compiler.capture import breaks
from tc.compiler.capture.values.base import Args, Kwargs, Slot, Value
from tc.compiler.capture.values.const import ConstValue
from tc.compiler.capture.values.containers import (
    ListValue,
    SequenceIterator,
    items_to_add,
)
from tc.compiler.capture.values.stand_ins import raise_as_python
from tc.compiler.core.sources import Source

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter, ResidualInterface


class DequeValue(ListValue):
    """A collections.deque; items beyond its maximum length are dropped from the other end.

    Attributes:
        moves: changes that end iteration: all but those that put other items in the same places.
    """

    noun = "a deque"
    kind = collections.deque

    def __init__(
        self, slots: list[Slot], source: Source | None = None, maxlen: int | None = None
    ) -> None:
        super().__init__(slots, source)
        self.maxlen = maxlen
        self.moves = 0
        self._trim(at_end=False)

    def add(self, t: Interpreter, items: list[Value]) -> None:
        super().add(t, items)
        self.moves += bool(items)
        self._trim(at_end=False)

    def refill(self, t: Interpreter, slots: list[Slot]) -> None:
        super().refill(t, slots)
        self.moves += 1
        self._trim(at_end=False)

    def _trim(self, at_end: bool) -> None:
        excess = len(self.slots) - self.maxlen if self.maxlen is not None else 0
        if excess > 0:
            self.slots[:] = self.slots[:-excess] if at_end else self.slots[excess:]

    def iterate(self, t: Interpreter) -> Value:
        return DequeIterator(self)

    def like(self, slots: list[Slot]) -> Value:
        return DequeValue(slots, maxlen=self.maxlen)

    def make(self, items: list[Any]) -> Any:
        return collections.deque(items, self.maxlen)

    def attr(self, t: Interpreter, name: str) -> Value:
        return (
            t.values.known(self.maxlen) if name == "maxlen" else super().attr(t, name)
        )

    def rebuild(self, r: ResidualInterface) -> None:
        r.load_callable(collections.deque)
        super().rebuild(r)
        r.e.load_const(self.maxlen)
        r.e.call(2)

    def replay(self, r: ResidualInterface) -> None:
        """Emit ``original.clear(); original.extend(items)``, or stores to the same places.

        An iterator from outside may continue after the stores alone.
        """
        ListValue.rebuild(self, r)
        temporary = r.store_new()
        if not self.moves:
            r.load_callable(put_items)
            r.push(self)
            r.e.load_fast(temporary)
            r.e.call(2)
            r.e.pop_top()
            return
        r.call_method(self, "clear")
        r.call_method(self, "extend", lambda: r.e.load_fast(temporary))

    def del_item(self, t: Interpreter, key: Value) -> None:
        super().del_item(t, key)
        self.moves += 1

    def method(self, t: Interpreter, name: str, args: Args, kwargs: Kwargs) -> Value:
        before = len(self.slots)
        found = self._method(t, name, args, kwargs)
        self.moves += len(self.slots) != before
        return found

    def _method(self, t: Interpreter, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name == "popleft":
            if not self.slots:
                raise_as_python(t, self, name, args, kwargs)
            return super().method(t, "pop", [ConstValue(0)], {})
        if name in ("appendleft", "extendleft"):
            items = args if name == "appendleft" else items_to_add(t, self, args[0])
            for item in items:
                super().method(t, "insert", [ConstValue(0), item], {})
                self.moves += 1
                self._trim(at_end=True)
            return ConstValue(None)
        if name == "rotate":
            return self._rotate(t, t.python.concrete(args[0]) if args else 1)
        if name in ("sort", "__add__"):
            self.cannot(breaks.UNSUPPORTED_CALL, f"deque.{name}")
        if name == "insert" and len(self.slots) == self.maxlen:
            t.python.raise_(IndexError, "deque already at its maximum size")
        found = super().method(t, name, args, kwargs)
        self._trim(at_end=False)
        return found

    def _rotate(self, t: Interpreter, count: int) -> Value:
        t.effects.changed(self)
        self.moves += 1
        rotated = collections.deque(self.slots)
        rotated.rotate(count)
        self.slots[:] = rotated
        return ConstValue(None)


def put_items(held: collections.deque[Any], items: list[Any]) -> None:
    """Store other items in the places of a deque; for residual code."""
    for place, item in enumerate(items):
        if held[place] is not item:
            held[place] = item


class DequeIterator(SequenceIterator):
    """An iterator over a deque: it has no place to set, and does not go past a move of items."""

    sequence: DequeValue

    def __init__(self, sequence: DequeValue) -> None:
        super().__init__(sequence)
        self.moves = sequence.moves

    def python_type(self) -> type:
        return type(iter(collections.deque()))

    def is_invalid(self, t: Interpreter) -> bool:
        return not self.has_ended and self.sequence.moves != self.moves

    def rebuild(self, r: ResidualInterface) -> None:
        rest = self.sequence.slots[self.index :]
        r.push(ListValue(rest) if self.index else self.sequence)
        r.e.get_iter()
