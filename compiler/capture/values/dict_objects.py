"""Objects of user-defined subclasses of dict: attributes as any object, items as a dict."""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tc.compiler.capture.guards.facts import is_heap_type
from tc.compiler.capture.values.base import Args, Kwargs, LambdaValue, Lazy, Value
from tc.compiler.capture.values.const import ConstValue, is_constant_object
from tc.compiler.capture.values.dicts import DictValue, Entries, merge
from tc.compiler.capture.values.lookup import MISSING, type_lookup
from tc.compiler.capture.values.objects import ClassValue, ObjectValue
from tc.compiler.core.sources import CallSource, Source

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter, ResidualInterface


class Storage(DictValue):
    """The items of a dict object; changes and replays bypass the methods of its class."""

    def __init__(self, owner: DictObjectValue, entries: Entries, kind: type) -> None:
        super().__init__(entries, kind=kind)
        self.owner = owner
        self.source = owner.source

    @property
    def holder(self) -> Value:
        return self.owner

    def replay(self, r: ResidualInterface) -> None:
        """Emit a refill of the object's items."""
        r.load_callable(refill)
        r.push(self.owner)
        self._build_map(r)
        r.e.call(2)
        r.e.pop_top()


class DictObjectValue(ObjectValue):
    """An instance of a subclass of dict or OrderedDict."""

    noun = "a dict object"

    def __init__(
        self,
        cls: type,
        obj: Any = None,
        source: Source | None = None,
        entries: Entries | None = None,
    ) -> None:
        super().__init__(cls, obj, source)
        base = (
            collections.OrderedDict
            if issubclass(cls, collections.OrderedDict)
            else dict
        )
        self.storage = Storage(self, entries or {}, base)

    def missing(self, t: Interpreter, key: Value) -> Value:
        """Return the value of a missing item by the class's ``__missing__``."""
        raw = type_lookup(self.cls, "__missing__")
        if raw is MISSING:
            return t.python.raise_(KeyError, key)
        return self.call_special(t, "__missing__", [key])

    def base_method(self, name: str) -> Value:
        """Return the method that dict itself has under a name, bound to the items."""

        def run(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
            if name == "__getitem__" and not self.storage.has(t, args[0]):
                return self.missing(t, args[0])
            if self.storage.kind is collections.OrderedDict and name in ORDERED:
                return ORDERED[name](t, self, *args, **kwargs)
            if (
                name in ("copy", "__or__")
                and type_lookup(self.cls, "__iter__") is not dict.__iter__
            ):
                plain = DictValue({})
                merge(t, functools.partial(plain.put, t), dict, self, {})
                return plain.method(t, name, args, kwargs)
            method = "update" if name == "__init__" else name
            found = t.attributes.builtin_method(self.storage, method)
            found = found.call(t, args, kwargs)
            return self if found is self.storage else found

        return LambdaValue(run, f"{self.cls.__name__}.{name}")

    def children(self, t: Interpreter) -> list[Value]:
        return self.storage.children(t)

    def rebuild(self, r: ResidualInterface) -> None:
        r.load_callable(make)
        r.load_object(self.cls)
        self.storage._build_map(r)
        r.e.call(2)


# -- methods of OrderedDict, which call those that a subclass replaces ----------------------------
def _update(
    t: Interpreter, d: DictObjectValue, other: Value | None = None, /, **named: Value
) -> Value:
    own = d.has_own("__setitem__")
    put = d.set_item if own else d.storage.put
    return merge(t, functools.partial(put, t), collections.OrderedDict, other, named)


def _setdefault(
    t: Interpreter, d: DictObjectValue, key: Value, default: Value | None = None
) -> Value:
    if t.python.contains(d, key).truth(t):
        return d.item(t, key)
    value = default if default is not None else ConstValue(None)
    d.set_item(t, key, value)
    return value


def _copy(t: Interpreter, d: DictObjectValue) -> Value:
    made = t.instantiate(ClassValue(d.cls), [], {})
    for key in d.storage.keys(t):
        made.set_item(t, key, d.item(t, key))
    return made


def _united(t: Interpreter, cls: type, left: Value, right: Value) -> Value:
    made = t.instantiate(ClassValue(cls), [left], {})
    merge(t, functools.partial(made.set_item, t), collections.OrderedDict, right, {})
    return made


def _ior(t: Interpreter, d: DictObjectValue, other: Value) -> Value:
    _update(t, d, other)
    return d


ORDERED: dict[str, Callable[..., Value]] = {
    "__init__": _update,
    "update": _update,
    "setdefault": _setdefault,
    "copy": _copy,
    "__or__": lambda t, d, other: _united(t, d.cls, d, other),
    "__ror__": lambda t, d, other: _united(t, d.cls, other, d),
    "__ior__": _ior,
}


def accepts(obj: Any) -> bool:
    """Return whether an object is an instance of a user's subclass of dict with plain keys."""
    return (
        issubclass(type(obj), dict)
        and is_heap_type(type(obj))
        and not issubclass(type(obj), collections.defaultdict)
        and all(is_constant_object(key) for key in dict.keys(obj))
    )


def wrap_dict_object(t: Interpreter, obj: Any, source: Source) -> Value:
    """Return the value of an existing dict object."""
    t.guards.add("TYPE", source, type(obj))
    t.guards.add(
        "EQUALS", CallSource(source, keys_of, "tuple(dict.keys({}))"), keys_of(obj)
    )
    entries: Entries = {}
    for key in dict.keys(obj):
        item = CallSource(
            source, functools.partial(item_of, key), f"dict.__getitem__({{}}, {key!r})"
        )
        entries[key] = (ConstValue(key), Lazy(dict.__getitem__(obj, key), item))
    return DictObjectValue(type(obj), obj, source, entries)


def keys_of(mapping: dict[Any, Any]) -> tuple[Any, ...]:
    """Return the keys, bypassing methods of the class."""
    return tuple(dict.keys(mapping))


def item_of(key: Any, mapping: dict[Any, Any]) -> Any:
    """Return an item, bypassing methods of the class."""
    return dict.__getitem__(mapping, key)


def make(cls: Any, items: dict[Any, Any]) -> Any:
    """Make a dict object without running its class's code; called from residual code."""
    ordered = issubclass(cls, collections.OrderedDict)
    made = (collections.OrderedDict if ordered else dict).__new__(cls)
    refill(made, items)
    return made


def refill(target: Any, items: dict[Any, Any]) -> None:
    """Replace all items, bypassing the methods of the class; called from residual code."""
    ordered = issubclass(type(target), collections.OrderedDict)
    base: Any = collections.OrderedDict if ordered else dict
    base.clear(target)
    for key, value in items.items():
        base.__setitem__(target, key, value)
