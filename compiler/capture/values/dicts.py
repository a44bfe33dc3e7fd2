"""Dictionaries and their views."""

from __future__ import annotations

import collections
import functools
import itertools
import types
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from tc.compiler.capture import breaks
from tc.compiler.capture.values import table_iterators
from tc.compiler.capture.values.base import (
    Args,
    Exhausted,
    Kwargs,
    Lazy,
    NotConstant,
    Slot,
    Value,
)
from tc.compiler.capture.values.const import ConstValue
from tc.compiler.capture.values.containers import (
    ListValue,
    SequenceIterator,
    TupleValue,
)
from tc.compiler.capture.values.keys import OWN_LOOKUP, find, refuse_comparisons
from tc.compiler.capture.values.lookup import ITERABLE, MISSING, has_any, type_lookup
from tc.compiler.core.sources import AttrSource, DictSource, Source, instance_dict

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter, ResidualInterface

Entries = dict[Any, tuple[Slot, Slot]]


class DictValue(Value):
    """A dict, OrderedDict or defaultdict: token of the key -> (key, value).

    Attributes:
        factory: the default factory of a defaultdict.
        pending: whether the full key list of a sourced dict is not guarded yet.
    """

    noun = "a dict"

    def __init__(
        self,
        entries: Entries,
        source: Source | None = None,
        kind: type = dict,
        factory: Value | None = None,
        obj: Any = None,
    ) -> None:
        self.entries = entries
        self.source = source
        self.creation_index = self.next_creation_index()
        self.kind = kind
        self.factory = factory
        self.obj = obj
        self.pending = source is not None

    def python_type(self) -> type:
        return self.kind

    def constant(self) -> Any:
        if self.source is not None or self.kind is not dict:
            raise NotConstant(self.describe())
        plain = {}
        for key, value in self.entries.values():
            if isinstance(key, Lazy) or isinstance(value, Lazy):
                raise NotConstant(self.describe())
            plain[key.constant()] = value.constant()
        return plain

    # -- access ----------------------------------------------------------------------------
    def whole(self, t: Interpreter) -> Entries:
        """Return the entries after guarding on the full list of keys."""
        if self.pending:
            # globals of a module: compiling adds some
            if "__builtins__" in self.entries:
                self.cannot(
                    breaks.UNSUPPORTED_OP, "iteration over the names of a module"
                )
            self.pending = False
            t.guards.keys(self)
        return self.entries

    def keys(self, t: Interpreter) -> list[Value]:
        """Return all keys."""
        return [self.key_at(t, token) for token in list(self.whole(t))]

    def values(self, t: Interpreter) -> list[Value]:
        """Return all values."""
        return [self.at(t, token) for token in list(self.whole(t))]

    def pairs(self, t: Interpreter) -> list[Value]:
        """Return all (key, value) tuples."""
        return [
            TupleValue([key, value])
            for key, value in zip(self.keys(t), self.values(t), strict=True)
        ]

    def key_at(self, t: Interpreter, token: Any) -> Value:
        """Return the key of a token."""
        with OWN_LOOKUP:
            key, value = self.entries[token]
            if isinstance(key, Lazy):
                key = t.values.wrap(key.obj, key.source)
                self.entries[token] = (key, value)
        return key

    def at(self, t: Interpreter, token: Any) -> Value:
        """Return the value stored under the token of a stored key."""
        with OWN_LOOKUP:
            key, value = self.entries[token]
            if isinstance(value, Lazy):
                value = t.values.wrap(value.obj, value.source)
                self.entries[token] = (key, value)
        return value

    def find(self, t: Interpreter, key: Value) -> Any:
        """Return the token of the stored key that equals one, or MISSING, guarding only that."""
        token = find(self.entries, t.python.key(key))
        if self.pending:
            t.guards.contains(self, key, token is not MISSING)
        return token

    def has(self, t: Interpreter, key: Value) -> bool:
        """Return whether a key exists, guarding only that where possible."""
        return self.find(t, key) is not MISSING

    def put(self, t: Interpreter, key: Value, value: Value) -> None:
        """Store under a key."""
        self.whole(t)
        token = t.python.key(key)
        found = find(self.entries, token)
        t.effects.changed(self)
        with OWN_LOOKUP:
            if found is MISSING:
                self.entries[token] = (key, value)
            else:
                self.entries[found] = (self.entries[found][0], value)

    def drop(self, t: Interpreter, token: Any) -> Value:
        """Remove the key of a token and return its value."""
        value = self.at(t, token)
        self.whole(t)
        t.effects.changed(self)
        with OWN_LOOKUP:
            del self.entries[token]
        return value

    # -- Python's view ---------------------------------------------------------------------
    def truth(self, t: Interpreter) -> bool:
        return bool(self.whole(t))

    def length(self, t: Interpreter) -> Value:
        return ConstValue(len(self.whole(t)))

    def iterate(self, t: Interpreter) -> Value:
        return SizedIterator(t, self.keys(t), self)

    def item(self, t: Interpreter, key: Value) -> Value:
        token = self.find(t, key)
        if token is not MISSING:
            return self.at(t, token)
        if self.factory is not None:
            value = self.factory.call(t, [], {})
            self.put(t, key, value)
            return value
        return t.python.raise_(KeyError, key)

    def set_item(self, t: Interpreter, key: Value, value: Value) -> None:
        self.put(t, key, value)

    def del_item(self, t: Interpreter, key: Value) -> None:
        token = self.find(t, key)
        if token is MISSING:
            t.python.raise_(KeyError, key)
        self.drop(t, token)

    def attr(self, t: Interpreter, name: str) -> Value:
        if name == "__class__":
            return t.values.known(self.kind)
        if name == "default_factory" and self._has_factory():
            return self.factory or ConstValue(None)
        if name == "__dict__" and self.kind is collections.OrderedDict:
            return t.attributes.attributes_of(self)
        if (own := self.stored(t, name)) is not None:
            return own
        return t.attributes.builtin_method(self, name)

    def stored(self, t: Interpreter, name: str) -> Value | None:
        """Return an attribute of an OrderedDict, which has a ``__dict__`` unlike other dicts."""
        stored = t.effects.attribute(self, name)
        held = instance_dict(self.obj)
        if stored is not None or held is None or self.source is None:
            return stored
        if name in held:
            source = AttrSource(self.source, name)
            return t.values.wrap(held[name], source)
        if type_lookup(self.kind, name) is MISSING:
            t.guards.add("NOT_CONTAINS", DictSource(self.source), name)
        return None

    def set_attr(self, t: Interpreter, name: str, value: Value) -> None:
        if self.kind is collections.OrderedDict:
            t.effects.store_attribute(self, name, value)
            return
        if (
            name != "default_factory"
            or not self._has_factory()
            or self.source is not None
        ):
            super().set_attr(t, name, value)
        self.factory = None if t.python.is_none(value) else value

    def start(self, t: Interpreter, factory: Value) -> None:
        """Take the first argument of a defaultdict."""
        absent = t.python.is_none(factory)
        if not absent and type_lookup(factory.python_type(), "__call__") is MISSING:
            t.python.raise_(TypeError, "first argument must be callable or None")
        self.factory = None if absent else factory

    def method(self, t: Interpreter, name: str, args: Args, kwargs: Kwargs) -> Value:
        handler = DICT_METHODS.get(name)
        if handler is None:
            self.cannot(breaks.UNSUPPORTED_CALL, f"{self.kind.__name__}.{name}")
        return handler(t, self, *args, **kwargs)

    # -- the way back ----------------------------------------------------------------------
    def children(self, t: Interpreter) -> list[Value]:
        return [
            slot
            for entry in self.entries.values()
            for slot in entry
            if isinstance(slot, Value)
        ]

    def rebuild(self, r: ResidualInterface) -> None:
        if self.kind is not dict:
            r.load_callable(self.kind)
            if self._has_factory():
                r.push(self.factory or ConstValue(None))
        self._build_map(r)
        if self.kind is not dict:
            r.e.call(2 if self._has_factory() else 1)

    def _has_factory(self) -> bool:
        return issubclass(self.kind, collections.defaultdict)

    def _build_map(self, r: ResidualInterface) -> None:
        refuse_comparisons(self.entries)
        for entry in self.entries.values():
            r.push_slots(list(entry))
        r.e.build_map(len(self.entries))

    def replay(self, r: ResidualInterface) -> None:
        """Emit ``original.clear(); original.update(entries)``, with the new entries made first."""
        self._build_map(r)
        temporary = r.store_new()
        r.call_method(self, "clear")
        r.call_method(self, "update", lambda: r.e.load_fast(temporary))


class DictView(Value):
    """``d.keys()``, ``d.values()`` or ``d.items()``."""

    noun = "a dict view"

    def __init__(self, owner: DictValue, name: str) -> None:
        self.owner = owner
        self.name = name

    def python_type(self) -> type:
        return type(getattr({}, self.name)())

    def contents(self, t: Interpreter) -> list[Value]:
        """Return the current items of the view."""
        parts = {
            "keys": self.owner.keys,
            "values": self.owner.values,
            "items": self.owner.pairs,
        }
        return parts[self.name](t)

    def truth(self, t: Interpreter) -> bool:
        return self.owner.truth(t)

    def length(self, t: Interpreter) -> Value:
        return self.owner.length(t)

    def iterate(self, t: Interpreter) -> Value:
        return SizedIterator(t, self.contents(t), self.owner, self)

    def attr(self, t: Interpreter, name: str) -> Value:
        if name == "mapping":
            self.cannot(breaks.UNSUPPORTED_ATTR, "the mapping of a view")
        return t.attributes.builtin_method(self, name)

    def method(self, t: Interpreter, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name == "__contains__":
            if self.name == "keys":
                return ConstValue(self.owner.has(t, args[0]))
            return ListValue(list(self.contents(t))).method(t, name, args, kwargs)
        if name == "__len__" and not args:
            return self.length(t)
        if self.name == "keys" or name == "isdisjoint":
            return t.values.set_of(self.contents(t)).method(t, name, args, kwargs)
        return super().method(t, name, args, kwargs)

    def children(self, t: Interpreter) -> list[Value]:
        return [self.owner.holder]

    def rebuild(self, r: ResidualInterface) -> None:
        if self.owner.holder is self.owner:
            r.call_method(self.owner, self.name, keep=True)
            return
        r.load_callable(vars(self.owner.kind)[self.name])  # which its class may replace
        r.push(self.owner.holder)
        r.e.call(1)


class SizedIterator(SequenceIterator):
    """An iterator over a dict, a view, or a set; Python refuses to go past a change of size."""

    def __init__(
        self,
        t: Interpreter,
        items: list[Value],
        owner: Value,
        view: DictView | None = None,
    ) -> None:
        super().__init__(ListValue(list(items)))
        self.owner = owner
        self.view = view
        self.writes = t.effects.writes

    def advance(self, t: Interpreter) -> Value:
        self._refresh(t)
        return super().advance(t)

    def _refresh(self, t: Interpreter) -> None:
        """Look at the items again if something was written: values may have been replaced."""
        if self.view is None or self.writes == t.effects.writes or self.is_invalid(t):
            return
        if self.sequence.slots:
            self.sequence.slots[:] = self.view.contents(t)
        self.writes = t.effects.writes

    def is_invalid(self, t: Interpreter) -> bool:
        if (
            self.index >= self.size
            and self.owner.python_type() is collections.OrderedDict
        ):
            return False  # its iterator looks for the end first
        return bool(self.owner.length(t).constant() != self.size)

    def children(self, t: Interpreter) -> list[Value]:
        if self.sequence.slots and self.is_invalid(t):
            raise breaks.SkipFrame(
                "a container changes its size while it is iterated over"
            )
        if self.is_of_the_owner():
            return [self.view or self.owner]
        return super().children(t)

    def is_of_the_owner(self) -> bool:
        """Return whether residual code may iterate over the container itself, as Python does."""
        return self.index <= self.size and bool(self.sequence.slots)

    def rebuild(self, r: ResidualInterface) -> None:
        if not self.is_of_the_owner():
            super().rebuild(r)
            return
        is_late = self.owner.is_filled_late
        r.load_callable(table_iterators.later if is_late else table_iterators.at)
        r.push_slots([self.view or self.owner, ConstValue(self.index)])
        r.e.call(2)


# -- dict methods ----------------------------------------------------------------------------
def _get(
    t: Interpreter, d: DictValue, key: Value, default: Value | None = None
) -> Value:
    token = d.find(t, key)
    if token is not MISSING:
        return d.at(t, token)
    return default if default is not None else ConstValue(None)


def _setdefault(
    t: Interpreter, d: DictValue, key: Value, default: Value | None = None
) -> Value:
    token = d.find(t, key)
    if token is not MISSING:
        return d.at(t, token)
    value = default if default is not None else ConstValue(None)
    d.put(t, key, value)
    return value


def _pop(
    t: Interpreter, d: DictValue, key: Value, default: Value | None = None
) -> Value:
    token = d.find(t, key)
    if token is not MISSING:
        return d.drop(t, token)
    return default if default is not None else t.python.raise_(KeyError, key)


def _popitem(t: Interpreter, d: DictValue, last: Value | None = None) -> Value:
    tokens = list(d.whole(t))
    if not tokens:
        return t.python.raise_(KeyError, "popitem(): dictionary is empty")
    token = tokens[-1 if last is None or last.truth(t) else 0]
    key = d.key_at(t, token)
    return TupleValue([key, d.drop(t, token)])


def _update(
    t: Interpreter, d: DictValue, other: Value | None = None, /, **named: Value
) -> Value:
    plain = type(d) is type(other) is DictValue and d.kind is dict
    if plain and isinstance(other, DictValue) and not d.whole(t):
        _copy_into(t, d, other)
        other = None
    return merge(t, functools.partial(d.put, t), d.kind, other, named)


def _copy_into(t: Interpreter, d: DictValue, other: DictValue) -> None:
    """Fill an empty dict with the items of another, which compares no keys."""
    tokens = list(other.whole(t))
    pairs = zip(other.keys(t), other.values(t), strict=True)
    t.effects.changed(d)
    with OWN_LOOKUP:
        d.entries.update(zip(tokens, pairs, strict=True))


def merge(
    t: Interpreter,
    put: Callable[[Value, Value], None],
    into: type,
    other: Value | None,
    named: Kwargs,
) -> Value:
    """Store what the constructor and ``update`` of a kind of dict take from their arguments."""
    if isinstance(other, DictValue) or (
        other is not None and hasattr(other.python_type(), "keys")
    ):
        for key, value in items_to_merge(t, other, into):
            put(key, value)
    elif other is not None:
        _put_pairs(t, put, other.iterate(t))
    for name, value in named.items():
        put(ConstValue(name), value)
    return ConstValue(None)


def items_to_merge(
    t: Interpreter, mapping: Value, into: type = dict
) -> Iterator[tuple[Value, Value]]:
    """Yield the items that a dict takes from a mapping.

    Those of a dict are copied, whatever its class defines, as long as it does not replace
    ``__iter__``. Else, and where an OrderedDict takes them, ``keys`` and ``__getitem__`` are asked.
    """
    kind = mapping.python_type()
    ordered = issubclass(into, collections.OrderedDict)
    asks = ordered or type_lookup(kind, "__iter__") is not dict.__iter__
    methods = [type_lookup(kind, name) for name in ("keys", "__getitem__")]
    storage = mapping.container()
    if isinstance(storage, DictValue) and not (
        asks and any(isinstance(method, types.FunctionType) for method in methods)
    ):
        yield from zip(storage.keys(t), storage.values(t), strict=True)
        return
    for key in mapping.method(t, "keys", [], {}).unpack(t):
        yield key, mapping.item(t, key)


def _put_pairs(
    t: Interpreter, put: Callable[[Value, Value], None], pairs: Value
) -> None:
    """Store pairs one by one, as they come: the first that is none ends it."""
    for place in itertools.count():
        try:
            item = pairs.advance(t)
        except Exhausted:
            return
        what = f"dictionary update sequence element #{place}"
        if not has_any(item.python_type(), ITERABLE):
            text = f"cannot convert {what} to a sequence"
            t.python.raise_(TypeError, text)
        pair = item.unpack(t)
        if len(pair) != 2:
            text = f"{what} has length {len(pair)}; 2 is required"
            t.python.raise_(ValueError, text)
        put(*pair)


def _ior(t: Interpreter, d: DictValue, other: Value) -> Value:
    _update(t, d, other)
    return d


def _or(t: Interpreter, d: DictValue, other: Value) -> Value:
    copy = _copy(t, d)
    _update(t, copy, other)
    return copy


def _ror(t: Interpreter, d: DictValue, other: DictValue) -> Value:
    united = _copy(t, other)
    united.kind, united.factory = d.kind, d.factory
    _update(t, united, d)
    return united


def _clear(t: Interpreter, d: DictValue) -> Value:
    for token in list(d.whole(t)):
        d.drop(t, token)
    return ConstValue(None)


def _copy(t: Interpreter, d: DictValue) -> DictValue:
    with OWN_LOOKUP:
        return DictValue(dict(d.whole(t)), kind=d.kind, factory=d.factory)


def _move_to_end(
    t: Interpreter, d: DictValue, key: Value, last: Value | None = None
) -> Value:
    token = d.find(t, key)
    if token is MISSING:
        t.python.raise_(KeyError, key)
    held = d.key_at(t, token)
    value = d.drop(t, token)
    with OWN_LOOKUP:
        first = last is not None and not last.truth(t)
        moved: Entries = {token: (held, value)}
        d.entries = {**moved, **d.entries} if first else {**d.entries, **moved}
    return ConstValue(None)


def _put(t: Interpreter, d: DictValue, key: Value, value: Value) -> Value:
    d.put(t, key, value)
    return ConstValue(None)


def _del_item(t: Interpreter, d: DictValue, key: Value) -> Value:
    d.del_item(t, key)
    return ConstValue(None)


DICT_METHODS: dict[str, Callable[..., Value]] = {
    "get": _get,
    "setdefault": _setdefault,
    "pop": _pop,
    "popitem": _popitem,
    "__init__": _update,
    "update": _update,
    "clear": _clear,
    "copy": _copy,
    "move_to_end": _move_to_end,
    "__ior__": _ior,
    "__or__": _or,
    "__ror__": _ror,
    "keys": lambda t, d: DictView(d, "keys"),
    "values": lambda t, d: DictView(d, "values"),
    "items": lambda t, d: DictView(d, "items"),
    "__contains__": lambda t, d, key: ConstValue(d.has(t, key)),
    "__getitem__": lambda t, d, key: d.item(t, key),
    "__setitem__": _put,
    "__delitem__": _del_item,
    "__len__": lambda t, d: d.length(t),
    "__iter__": lambda t, d: d.iterate(t),
    "__eq__": lambda t, d, other: t.python.binary("eq", d, other),
}
DICT_KINDS = (dict, collections.OrderedDict, collections.defaultdict)


def _dict_reduce(t: Interpreter, d: DictValue, protocol: Value) -> Value:
    given = [d.factory or ConstValue(None)] if d._has_factory() else []
    pairs = t.values.list_of(d.pairs(t)).iterate(t)
    none: Value = ConstValue(None)
    state = none
    if d.kind is collections.OrderedDict:
        state = d.attr(t, "__dict__").method(t, "copy", [], {})
    state = state if state.truth(t) else none
    return t.values.new_tuple(
        [t.values.known(d.kind), t.values.new_tuple(given), state, none, pairs]
    )


DICT_METHODS["__reduce_ex__"] = _dict_reduce
