"""Sets, in the order that Python gives them."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from tc.compiler.capture import breaks
from tc.compiler.capture.values.base import Args, Kwargs, Lazy, Slot, Value
from tc.compiler.capture.values.const import ConstValue, is_constant_object
from tc.compiler.capture.values.dicts import SizedIterator
from tc.compiler.capture.values.keys import OWN_LOOKUP, find, refuse_comparisons
from tc.compiler.capture.values.lookup import MISSING, type_lookup
from tc.compiler.core.sources import Source

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter, ResidualInterface

#: in-place operators -> the methods that do the same
IN_PLACE = {
    "ior": "update",
    "iand": "intersection_update",
    "isub": "difference_update",
    "ixor": "symmetric_difference_update",
}
#: methods that make a new set -> the operators that do the same
OPERATORS = {
    "union": "__or__",
    "intersection": "__and__",
    "difference": "__sub__",
    "symmetric_difference": "__xor__",
}


class SetValue(Value):
    """A set, or a frozenset whose items are not all constants: token of the item -> item.

    In which order Python iterates over a set depends on the hashes of the items and on all that
    was done to it. So the same is done to a set of the tokens.

    Attributes:
        original: the set itself, of an input.
        table: the tokens in a set of Python; None for an input that has not been changed, which
            is iterated over in the order of `items`.
        ordered: whether the order of `table` is Python's.
    """

    noun = "a set"

    def __init__(
        self,
        items: dict[Any, Slot],
        source: Source | None = None,
        kind: type = set,
        table: Any = None,
        original: Any = None,
    ) -> None:
        self.items = items
        self.source = source
        self.creation_index = self.next_creation_index()
        self.kind = kind
        self.table = table
        self.original = original
        self.ordered = True

    def python_type(self) -> type:
        return self.kind

    def tokens(self) -> Any:
        """Return the tokens in the order of Python's; that of other objects has no meaning."""
        if self.table is None or not all(map(_has_own_hash, self.items)):
            return self.items
        if not self.ordered:
            self.cannot(
                breaks.UNSUPPORTED_OP, "the order of an input set that was changed"
            )
        return self.table

    def plain(self) -> Any:
        """Return a set of the tokens that Python iterates over as over this one."""
        if self.table is None and self.original is not None:
            return (
                self.original
                if all(map(_has_own_hash, self.items))
                else set(iter(self.items))
            )
        tokens = self.tokens()
        with OWN_LOOKUP:
            return tokens if tokens is self.table else self.kind(iter(tokens))

    def table_to_change(self) -> Any:
        """Return the set of tokens; of an input, a table of the same size and order if there is."""
        if self.table is None:
            likely = (set(iter(self.original)), self.original.copy())
            alike = [one for one in likely if _same_table(one, self.original)]
            self.ordered = bool(alike)
            own = all(map(_has_own_hash, self.items))
            with OWN_LOOKUP:
                self.table = alike[0] if alike and own else set(iter(self.items))
        return self.table

    def values(self, t: Interpreter) -> list[Value]:
        """Return all items."""
        with OWN_LOOKUP:
            for token, slot in list(self.items.items()):
                if isinstance(slot, Lazy):
                    self.items[token] = t.values.wrap(slot.obj, slot.source)
            return [
                slot
                for slot in map(self.items.get, self.tokens())
                if isinstance(slot, Value)
            ]

    def truth(self, t: Interpreter) -> bool:
        return bool(self.items)

    def length(self, t: Interpreter) -> Value:
        return ConstValue(len(self.items))

    def iterate(self, t: Interpreter) -> Value:
        return SetIterator(t, self.values(t), self)

    def attr(self, t: Interpreter, name: str) -> Value:
        return t.attributes.builtin_method(self, name)

    def method(self, t: Interpreter, name: str, args: Args, kwargs: Kwargs) -> Value:
        handler = SET_METHODS.get(name)
        if handler is None:
            self.cannot(breaks.UNSUPPORTED_CALL, f"{self.kind.__name__}.{name}")
        if not hasattr(self.kind, name):
            t.python.raise_(
                AttributeError,
                f"'{self.kind.__name__}' object has no attribute '{name}'",
            )
        return handler(t, self, *args, **kwargs)  # type: ignore[no-any-return]

    def children(self, t: Interpreter) -> list[Value]:
        return [slot for slot in self.items.values() if isinstance(slot, Value)]

    def rebuild(self, r: ResidualInterface) -> None:
        if self.kind is frozenset:
            r.load_callable(frozenset)
        refuse_comparisons(self.items)
        with OWN_LOOKUP:
            slots = [self.items[token] for token in self.tokens()]
        r.push_slots(slots)
        r.e.build_set(len(self.items))
        if self.kind is frozenset:
            r.e.call(1)

    def replay(self, r: ResidualInterface) -> None:
        """Emit code that takes out of the original what has gone, and adds what is new.

        That keeps its table as the program's own changes would; a new one has another order.
        """
        gone: list[Slot] = []
        before = set()
        for item in map(r.t.values.known, self.original):
            token = r.t.python.key(item)
            before.add(token)
            if token not in self.items:
                gone.append(item)
        new = [slot for token, slot in self.items.items() if token not in before]
        for name, slots in (("difference_update", gone), ("update", new)):
            if slots:
                self.call_on_original(r, name, slots)

    def call_on_original(
        self, r: ResidualInterface, name: str, slots: list[Slot]
    ) -> None:
        """Emit a call of a method of the original with a list."""
        r.push_slots(slots)
        r.e.build_list(len(slots))
        temporary = r.store_new()
        r.call_method(self, name, functools.partial(r.e.load_fast, temporary))


def _same_table(one: Any, other: Any) -> bool:
    """Return whether two sets have their items at the same places, as far as can be seen."""
    return list(one) == list(other) and sys.getsizeof(one) == sys.getsizeof(other)


def _has_own_hash(token: Any) -> bool:
    """Return whether a token is the item itself, so that it has the same hash."""
    if type(token) is tuple:
        return all(map(_has_own_hash, token))
    return is_constant_object(token) or isinstance(token, np.generic)


def set_of(t: Interpreter, values: Iterable[Value], kind: type = set) -> SetValue:
    """Return a new set of values."""
    items: dict[Any, Slot] = {}
    for value in values:
        items.setdefault(t.python.key(value), value)
    with OWN_LOOKUP:
        return SetValue(items, kind=kind, table=kind(list(items)))


def set_from(t: Interpreter, iterable: Value, kind: type = set) -> SetValue:
    """Return ``kind(iterable)``, with the order that Python gives a copy of that container."""
    tokens, items = _tokens_of(t, iterable)
    with OWN_LOOKUP:
        return SetValue(dict(items), kind=kind, table=kind(tokens))


def _tokens_of(t: Interpreter, iterable: Value) -> tuple[Any, dict[Any, Slot]]:
    """Return the tokens in a container of the iterable's kind, and the items by token."""
    container = iterable.container()
    if isinstance(container, SetValue):
        tokens = container.plain()
        with OWN_LOOKUP:
            return tokens, {token: container.items[token] for token in tokens}
    items: dict[Any, Slot] = {}
    for value in iterable.each(t):
        items.setdefault(t.python.key(value), value)
    kind = iterable.python_type()
    if isinstance(iterable, ConstValue) and kind in (set, frozenset):
        return iterable.obj, items
    return items if kind is dict else list(items), items


class SetIterator(SizedIterator):
    """An iterator over a set; residual code iterates over the set itself unless it was changed."""

    owner: SetValue

    def is_of_the_owner(self) -> bool:
        return self.owner.table is None and super().is_of_the_owner()


# -- methods -----------------------------------------------------------------------------------
def _add(t: Interpreter, s: SetValue, value: Value) -> Value:
    token = t.python.key(value)
    t.effects.changed(s)
    table = s.table_to_change()
    table.add(token)
    with OWN_LOOKUP:
        if token in table:
            s.items.setdefault(token, value)
    return ConstValue(None)


def _sought(t: Interpreter, value: Value) -> Any:
    """Return the token of what is looked for: a set finds the frozenset of its items."""
    items = value.container()
    unhashable = type_lookup(value.python_type(), "__hash__") is None
    if isinstance(items, SetValue) and unhashable:
        return frozenset(items.items)
    return t.python.key(value)


def _subtract(t: Interpreter, s: SetValue, value: Value) -> Value:
    return _drop(t, s, find(s.items, t.python.key(value)))


def _discard(t: Interpreter, s: SetValue, value: Value) -> Value:
    return _drop(t, s, find(s.items, _sought(t, value)))


def _drop(t: Interpreter, s: SetValue, token: Any) -> Value:
    t.effects.changed(s)
    with OWN_LOOKUP:
        s.table_to_change().discard(token)
        s.items.pop(token, None)
    return ConstValue(None)


def _remove(t: Interpreter, s: SetValue, value: Value) -> Value:
    token = find(s.items, _sought(t, value))
    if token is MISSING:
        return t.python.raise_(KeyError, value)
    return _drop(t, s, token)


def _pop(t: Interpreter, s: SetValue) -> Value:
    if not s.items:
        return t.python.raise_(KeyError, "pop from an empty set")
    s.values(t)
    t.effects.changed(s)
    table = s.table_to_change()
    with OWN_LOOKUP:
        token = table.pop() if s.tokens() is table else next(iter(s.items))
        table.discard(token)
        item = s.items.pop(token)
    assert isinstance(item, Value)
    return item


def _clear(t: Interpreter, s: SetValue) -> Value:
    t.effects.changed(s)
    s.table_to_change().clear()
    s.items.clear()
    return ConstValue(None)


def _algebra(name: str) -> Any:
    def operate(t: Interpreter, s: SetValue, *others: Value) -> Value:
        given = [_tokens_of(t, other) for other in others]
        with _undisturbed(t, s, *others):
            found = getattr(s.plain(), name)(*(tokens for tokens, _ in given))
        kept = _kept(found, s.items, *(items for _, items in given))
        return SetValue(kept, kind=s.kind, table=found)

    return operate


def _in_place(name: str) -> Any:
    def update(t: Interpreter, s: SetValue, *others: Value) -> Value:
        for other in others:
            tokens, more = _tokens_of(t, other)
            t.effects.changed(s)
            table = s.table_to_change()
            try:
                with _undisturbed(t, other):
                    getattr(table, name)(tokens)
            finally:  # an `__eq__` may raise, or change the set itself
                s.items = _kept(table, s.items, more)
        return ConstValue(None)

    return update


@contextlib.contextmanager
def _undisturbed(t: Interpreter, *operands: Value) -> Iterator[None]:
    """Break where an ``__eq__`` changes operands: only a run has the order of their items."""
    sets = [
        one for one in (o.container() for o in operands) if isinstance(one, SetValue)
    ]
    writes, before = t.effects.writes, [set(map(id, one.items)) for one in sets]
    try:
        yield
    finally:
        after = [set(map(id, one.items)) for one in sets]
        if t.effects.writes != writes and after != before:
            sets[0].cannot(breaks.UNSUPPORTED_OP, "a set that changes as it is merged")


def _one_by_one(name: str, change: Callable[..., Value]) -> Any:
    """Return a method that changes the set while it goes through an iterable."""
    whole = _in_place(name)

    def update(t: Interpreter, s: SetValue, *others: Value) -> Value:
        for other in others:
            if other.python_type() in (set, frozenset, dict):
                whole(t, s, other)
                continue
            for value in other.each(t):
                change(t, s, value)
            # Python may make the table smaller at the end
            getattr(s.table_to_change(), name)(())
        return ConstValue(None)

    return update


def _kept(table: Any, *held: dict[Any, Slot]) -> dict[Any, Slot]:
    """Return the items that are in a set now: of equal ones (1, True), that which Python kept."""
    wanted = set(map(id, table))
    kept: dict[Any, Slot] = {}
    with OWN_LOOKUP:
        for same in (lambda token: id(token) in wanted, table.__contains__):
            for items in held:
                for token, slot in items.items():
                    if token not in kept and same(token):
                        kept[token] = slot
    return kept


def _relation(name: str) -> Any:
    def compare(t: Interpreter, s: SetValue, other: Value) -> Value:
        tokens, _ = _tokens_of(t, other)
        with OWN_LOOKUP:
            left, right = set(iter(s.items)), set(iter(tokens))
        return ConstValue(getattr(left, name)(right))

    return compare


def _all_items(wanted: bool) -> Any:
    """Return the method that asks whether all items of an iterable are, or are not, in the set."""

    def compare(t: Interpreter, s: SetValue, other: Value) -> Value:
        found = (t.python.key(value) in s.items for value in other.each(t))
        return ConstValue(all(one == wanted for one in found))

    return compare


def _reduce(t: Interpreter, s: SetValue, protocol: Value) -> Value:
    items = t.values.new_tuple([t.values.list_of(s.values(t))])
    cls, state = t.values.known(s.kind), ConstValue(None)
    return t.values.new_tuple([cls, items, state])


def _initialise(t: Interpreter, s: SetValue, *items: Value) -> Value:
    if s.kind is not frozenset:
        _clear(t, s)
        SET_METHODS["update"](t, s, *items)
    return ConstValue(None)


SET_METHODS: dict[str, Any] = {
    "__init__": _initialise,
    "__reduce_ex__": _reduce,
    "add": _add,
    "discard": _discard,
    "remove": _remove,
    "pop": _pop,
    "update": _one_by_one("update", _add),
    "clear": _clear,
    "copy": _algebra("copy"),
    "intersection_update": _in_place("intersection_update"),
    "difference_update": _one_by_one("difference_update", _subtract),
    "symmetric_difference_update": _in_place("symmetric_difference_update"),
    **{
        name: _algebra(method)
        for method in ("union", "intersection", "difference", "symmetric_difference")
        for name in (method, OPERATORS[method])
    },
    **{
        name: _relation(name)
        for name in ("issubset", "__le__", "__lt__", "__ge__", "__gt__")
    },
    "issuperset": _all_items(True),
    "isdisjoint": _all_items(False),
    "__eq__": _relation("__eq__"),
    "__contains__": lambda t, s, value: ConstValue(_sought(t, value) in s.items),
    "__len__": lambda t, s: s.length(t),
    "__iter__": lambda t, s: s.iterate(t),
}
