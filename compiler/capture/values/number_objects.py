"""Objects of user-defined subclasses of int, float, complex, str and bytes.

They are constants, known by their class and the number or text in them, with attributes and methods
of their own: the methods are traced, the attributes guarded as those of other objects.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tc.compiler.capture.guards.facts import is_heap_type
from tc.compiler.capture.values.base import Args, Kwargs, Value
from tc.compiler.capture.values.const import ConstMethod, ConstValue
from tc.compiler.capture.values.lookup import (
    is_read_first,
    python_method,
    type_lookup,
)
from tc.compiler.core.sources import (
    AttrSource,
    CallSource,
    DictSource,
    Source,
    instance_dict,
)

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter

#: base -> what gives the number or text in an object as one of the base, past methods of its class
CONTENTS: dict[type, Callable[[Any], Any]] = {
    int: int.__int__,
    float: float.__float__,
    complex: complex.__complex__,
    str: str.__str__,
    bytes: lambda obj: bytes.__getitem__(obj, slice(None)),
}


class NumberObjectValue(ConstValue):
    """An instance of a subclass of a type of numbers or texts."""

    noun = "an object with a number or text"

    def contents(self) -> Any:
        """Return the number or text as one of the base class."""
        return CONTENTS[base_of(self.obj)](self.obj)

    def attr(self, t: Interpreter, name: str) -> Value:
        raw = type_lookup(type(self.obj), name)
        held = instance_dict(self.obj)
        if held is not None and not is_read_first(raw):
            source = t.values.source_of(self)
            if name in held:
                return t.values.wrap(held[name], AttrSource(source, name))
            t.guards.add("NOT_CONTAINS", DictSource(source), name)
        if type_lookup(base_of(self.obj), name) is raw:
            return super().attr(t, name)
        return t.attributes.bind_descriptor(self, type(self.obj), raw, name)

    def method(self, t: Interpreter, name: str, args: Args, kwargs: Kwargs) -> Value:
        found = self.attr(t, name)
        if isinstance(found, ConstMethod):
            return super().method(t, name, args, kwargs)
        return found.call(t, args, kwargs)


def base_of(obj: Any) -> type:
    """Return which type of numbers or texts an object derives from."""
    return next(base for base in CONTENTS if issubclass(type(obj), base))


def accepts(obj: Any) -> bool:
    """Return whether an object is of a subclass of the program that has a number or text."""
    cls = type(obj)
    own = ("__getattribute__", "__getattr__")
    return (
        is_heap_type(cls)
        and issubclass(cls, tuple(CONTENTS))
        and not any(python_method(cls, name) is not None for name in own)
    )


def wrap_number_object(t: Interpreter, obj: Any, source: Source) -> Value:
    """Return the value of an existing object, guarded by its class and what it contains."""
    t.guards.add("TYPE", source, type(obj))
    value = NumberObjectValue(obj, source)
    base = base_of(obj)
    inner = CallSource(source, CONTENTS[base], f"{base.__name__}({{}})")
    t.guards.add("EQUALS", inner, value.contents())
    return value
