"""Read-only views of dicts: ``types.MappingProxyType``."""

from __future__ import annotations

import gc
import types
from typing import TYPE_CHECKING, Any

from tc.compiler.capture import breaks
from tc.compiler.capture.values.base import Args, Kwargs, Lazy, Value
from tc.compiler.capture.values.builtins import builtin
from tc.compiler.capture.values.const import ConstValue, is_constant_object
from tc.compiler.capture.values.dicts import DictValue
from tc.compiler.core.sources import CallSource, ItemSource, Source

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter, ResidualInterface


class MappingProxyValue(Value):
    """A read-only view of a dict: ``types.MappingProxyType(d)``."""

    noun = "a mapping proxy"

    def __init__(self, mapping: DictValue, source: Source | None = None) -> None:
        self.mapping = mapping
        self.source = source

    def python_type(self) -> type:
        return types.MappingProxyType

    def truth(self, t: Interpreter) -> bool:
        return self.mapping.truth(t)

    def length(self, t: Interpreter) -> Value:
        return self.mapping.length(t)

    def item(self, t: Interpreter, key: Value) -> Value:
        return self.mapping.item(t, key)

    def set_item(self, t: Interpreter, key: Value, value: Value) -> None:
        t.python.raise_(
            TypeError, "'mappingproxy' object does not support item assignment"
        )

    def del_item(self, t: Interpreter, key: Value) -> None:
        t.python.raise_(
            TypeError, "'mappingproxy' object doesn't support item deletion"
        )

    def iterate(self, t: Interpreter) -> Value:
        return self.mapping.iterate(t)

    def attr(self, t: Interpreter, name: str) -> Value:
        if not hasattr(types.MappingProxyType, name):
            return t.python.raise_(
                AttributeError, f"'mappingproxy' object has no attribute '{name}'"
            )
        return t.attributes.builtin_method(self, name)

    def method(self, t: Interpreter, name: str, args: Args, kwargs: Kwargs) -> Value:
        if not hasattr(types.MappingProxyType, name):
            return self.attr(t, name)
        return self.mapping.method(t, name, args, kwargs)

    def children(self, t: Interpreter) -> list[Value]:
        return [self.mapping]

    def rebuild(self, r: ResidualInterface) -> None:
        r.load_callable(types.MappingProxyType)
        r.push(self.mapping)
        r.e.call(1)


@builtin(types.MappingProxyType)
def _mapping_proxy(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    if not isinstance(args[0], DictValue):
        raise breaks.GraphBreak(breaks.UNSUPPORTED_CALL, "mappingproxy()")
    return MappingProxyValue(args[0])


def accepts(obj: Any) -> bool:
    """Return whether an object is a mapping proxy that the tracer can look into."""
    return type(obj) is types.MappingProxyType and all(map(is_constant_object, obj))


def behind(proxy: Any) -> Any:
    """Return the mapping that a proxy shows; that of a class has no other name."""
    return gc.get_referents(proxy)[0]


def wrap_proxy(
    t: Interpreter, obj: types.MappingProxyType[Any, Any], source: Source
) -> Value:
    """Return the value of an existing proxy: a dict that it shows is one value under all names."""
    t.guards.add("TYPE", source, type(obj))
    mapping = t.values.wrap(
        behind(obj), CallSource(source, behind, "gc.get_referents({})[0]")
    )
    if isinstance(mapping, DictValue):
        return MappingProxyValue(mapping, source)
    entries: dict[Any, Any] = {}
    for key, item in obj.items():
        unread = Lazy(item, ItemSource(source, key))
        entries[key] = (ConstValue(key), unread)
    return MappingProxyValue(DictValue(entries, source, obj=obj), source)
