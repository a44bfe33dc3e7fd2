"""Objects of user-defined subclasses of dict: attributes as any object, items as a dict."""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tc.compiler.capture import breaks
from tc.compiler.capture.guards.facts import is_heap_type
from tc.compiler.capture.values.base import Args, Kwargs, Lazy, Value
from tc.compiler.capture.values.const import ConstValue, is_constant_object
from tc.compiler.capture.values.dicts import DictValue, Entries, merge
from tc.compiler.capture.values.lookup import MISSING, type_lookup
from tc.compiler.capture.values.objects import ClassValue
from tc.compiler.capture.values.stored_objects import StoredObject
from tc.compiler.core.sources import CallSource, Source

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter, ResidualInterface


class Storage(DictValue):
    """The items of a dict object; changes and replays bypass the methods of its class."""

    def __init__(
        self,
        owner: DictObjectValue,
        entries: Entries,
        kind: type,
    ) -> None:
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


class DictObjectValue(StoredObject):
    """An instance of a subclass of dict, OrderedDict or defaultdict."""

    noun = "a dict object"
    bases = (collections.OrderedDict, collections.defaultdict, dict)
    storage: Storage

    def __init__(
        self,
        cls: type,
        obj: Any = None,
        source: Source | None = None,
        entries: Entries | None = None,
        factory: Value | None = None,
    ) -> None:
        super().__init__(cls, obj, source)
        self.storage = Storage(self, entries or {}, self.base)
        self.storage.factory = factory

    def missing(
        self,
        t: Interpreter,
        key: Value,
    ) -> Value:
        """Return the value of a missing item by the class's ``__missing__``."""
        raw = type_lookup(self.cls, "__missing__")
        if raw is MISSING_OF_C and self.storage.factory is not None:
            made = self.storage.factory.call(t, [], {})
            self.set_item(t, key, made)
            return made
        if raw is MISSING or raw is MISSING_OF_C:
            return t.python.raise_(KeyError, key)
        return self.call_special(t, "__missing__", [key])

    def leaves(self, name: str) -> bool:
        # a merge asks other methods than those of the operator
        return name in ("eq", "ne") and super().leaves(name)

    def call_base(
        self,
        t: Interpreter,
        name: str,
        args: Args,
        kwargs: Kwargs,
    ) -> Value:
        if name == "__getitem__":
            token = self.storage.find(t, args[0])
            absent = token is MISSING
            return self.missing(t, args[0]) if absent else self.storage.at(t, token)
        if self.base is collections.OrderedDict and name in ORDERED:
            return ORDERED[name](t, self, *args, **kwargs)
        if self.base is collections.defaultdict:
            if name in CALL_THE_CLASS:
                self.cannot(breaks.UNSUPPORTED_CALL, f"{self.cls.__qualname__}.{name}")
            if name == "__init__" and args:
                factory, *args = args
                self.storage.start(t, factory)
        if (
            name in ("copy", "__or__")
            and type_lookup(self.cls, "__iter__") is not dict.__iter__
        ):
            plain = DictValue({})
            merge(t, functools.partial(plain.put, t), dict, self, {})
            return plain.method(t, name, args, kwargs)
        method = "update" if name == "__init__" else name
        found = t.attributes.builtin_method(self.storage, method).call(t, args, kwargs)
        return self if found is self.storage else found

    def attr(
        self,
        t: Interpreter,
        name: str,
    ) -> Value:
        if name == "default_factory" and self.base is collections.defaultdict:
            return self.storage.attr(t, name)
        return super().attr(t, name)

    def rebuild(self, r: ResidualInterface) -> None:
        r.load_callable(make)
        r.load_object(self.cls)
        self.storage._build_map(r)
        r.push(self.storage.factory or ConstValue(None))
        r.e.call(3)


#: what a class derived from defaultdict has of its own
MISSING_OF_C = vars(collections.defaultdict)["__missing__"]
DEFAULT_FACTORY: Any = vars(collections.defaultdict)["default_factory"]
#: methods of defaultdict that call the class for a new object
CALL_THE_CLASS = ("copy", "__copy__", "__or__", "__ror__", "__reduce__")


# -- methods of OrderedDict, which call those that a subclass replaces ----------------------------
def _update(
    t: Interpreter,
    d: DictObjectValue,
    other: Value | None = None,
    /,
    **named: Value,
) -> Value:
    own = d.has_own("__setitem__")
    put = d.set_item if own else d.storage.put
    return merge(t, functools.partial(put, t), collections.OrderedDict, other, named)


def _setdefault(
    t: Interpreter,
    d: DictObjectValue,
    key: Value,
    default: Value | None = None,
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


def _united(
    t: Interpreter,
    cls: type,
    left: Value,
    right: Value,
) -> Value:
    made = t.instantiate(ClassValue(cls), [left], {})
    merge(t, functools.partial(made.set_item, t), collections.OrderedDict, right, {})
    return made


def _ior(
    t: Interpreter,
    d: DictObjectValue,
    other: Value,
) -> Value:
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
        and all(is_constant_object(key) for key in dict.keys(obj))
    )


def wrap_dict_object(
    t: Interpreter,
    obj: Any,
    source: Source,
) -> Value:
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
    factory = None
    if issubclass(type(obj), collections.defaultdict):
        place = CallSource(
            source, factory_of, "defaultdict.default_factory.__get__({})"
        )
        found = t.values.wrap(factory_of(obj), place)
        factory = None if t.python.is_none(found) else found
    return DictObjectValue(type(obj), obj, source, entries, factory)


def keys_of(mapping: dict[Any, Any]) -> tuple[Any, ...]:
    """Return the keys, bypassing methods of the class."""
    return tuple(dict.keys(mapping))


def factory_of(mapping: Any) -> Any:
    """Return the default factory, bypassing attributes of the class."""
    return DEFAULT_FACTORY.__get__(mapping)


def item_of(key: Any, mapping: dict[Any, Any]) -> Any:
    """Return an item, bypassing methods of the class."""
    return dict.__getitem__(mapping, key)


def make(
    cls: Any,
    items: dict[Any, Any],
    factory: Any,
) -> Any:
    """Make a dict object without running its class's code; called from residual code."""
    base: Any = DictObjectValue.base_of(cls)
    made = base.__new__(cls)
    if factory is not None:
        DEFAULT_FACTORY.__set__(made, factory)
    refill(made, items)
    return made


def refill(target: Any, items: dict[Any, Any]) -> None:
    """Replace all items, bypassing the methods of the class; called from residual code."""
    ordered = issubclass(type(target), collections.OrderedDict)
    base: Any = collections.OrderedDict if ordered else dict
    base.clear(target)
    for key, value in items.items():
        base.__setitem__(target, key, value)
