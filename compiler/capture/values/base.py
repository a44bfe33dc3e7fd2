"""Values: the tracer's representation of Python objects, one class for each kind of object.

A value is *sourced* if it was reached from the frame's inputs (and can be loaded again from there)
and *new* otherwise. One object always has one value, so `is` on values is `is` on objects.
"""

from __future__ import annotations

import dis
import itertools
import logging
from collections.abc import Callable, Iterator, Sequence
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from tc.compiler.capture import breaks
from tc.compiler.capture.values.lookup import (
    ITERABLE,
    MISSING,
    full_name,
    has_any,
    read_runs_python,
    type_lookup,
)
from tc.compiler.core.sources import Source
from tc.compiler.options import config
from tc.trace.places import StackFrame

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter, ResidualInterface

Args = Sequence["Value"]
Kwargs = dict[str, "Value"]


_creation_numbers = itertools.count(1)


class NotConstant(Exception):
    """A value's Python object is not known as a constant."""


class Raised(Exception):
    """Control flow: traced code raised the exception that `value` describes."""

    def __init__(self, value: Value) -> None:
        super().__init__(value)
        self.value = value


class Exhausted(Exception):
    """Control flow: an iterator is exhausted.

    Attributes:
        value: what a generator returned, or the argument of an iterator's StopIteration.
    """

    def __init__(self, value: Value | None = None) -> None:
        super().__init__()
        self.value = value

    def as_raised(self, t: Interpreter) -> NoReturn:
        """Raise StopIteration into the traced code, as ``next()`` does."""
        none = self.value is None or t.python.is_none(self.value)
        t.python.raise_(StopIteration, *(() if none else (self.value,)))


class Value:
    """Base of all values. Operations that a kind does not implement break the graph."""

    #: The name of this kind of value in messages.
    noun: ClassVar[str] = "a value"

    source: Source | None = None
    #: the Python object that it represents, if there is one
    obj: Any = None
    #: for a raised exception: the frames that it left, innermost first, each with its depth
    trail: tuple[tuple[int, StackFrame, dis.Positions | None], ...] = ()
    #: the order in which traced code made its mutable objects; 0: it existed before
    creation_index = 0
    #: whether its class's ``__hash__`` was called: a key must have its attributes before it is one
    is_hashed = False
    #: whether residual code stores what it contains only once all new objects are made
    is_filled_late = False

    @staticmethod
    def next_creation_index() -> int:
        """Return a number greater than those of all earlier objects."""
        return next(_creation_numbers)

    # -- what is known ---------------------------------------------------------------------
    def python_type(self) -> type:
        """Return the type of the Python object."""
        return self.cannot(breaks.UNSUPPORTED_CALL, f"type() of {self.describe()}")

    def constant(self) -> Any:
        """Return the Python object. Raises NotConstant if it is not known."""
        raise NotConstant(self.describe())

    def is_constant(self) -> bool:
        """Return whether `constant` does not raise."""
        try:
            self.constant()
        except NotConstant:
            return False
        return True

    def describe(self) -> str:
        """Describe the value for a message."""
        return self.source.pretty if self.source is not None else self.noun

    def own_special(self, name: str) -> Any:
        """Return what its class defines for a special method, MISSING if C code's own is left."""
        return MISSING

    def has_own(self, *names: str) -> bool:
        """Return whether its class defines one of some special methods."""
        return any(self.own_special(name) is not MISSING for name in names)

    def call_special(
        self, t: Interpreter, name: str, args: Args, kwargs: Kwargs | None = None
    ) -> Value:
        """Call a special method that its class defines, as Python's slots look it up."""
        kind, raw = self.python_type(), self.own_special(name)
        if isinstance(raw, FunctionType):
            return t.inline_object(raw, [self, *args], kwargs)
        method = t.attributes.bind_descriptor(self, kind, raw, name, inherited=True)
        return method.call(t, args, kwargs or {})

    def call_own(self, t: Interpreter, name: str, *args: Value) -> Value | None:
        """Return the result of `own_special` of that name, or None if there is no such method."""
        if self.own_special(name) is MISSING:
            return None
        result = self.call_special(t, name, args)
        return t.python.slot_result(self.python_type(), name, result)

    def container(self) -> Value:
        """Return what has its items: itself, or the storage of an object of a derived class."""
        return self

    @property
    def holder(self) -> Value:
        """The object that has these items: itself, or that of which it is the storage."""
        return self

    # -- what can be done ------------------------------------------------------------------
    def attr(self, t: Interpreter, name: str) -> Value:
        """Return the value of ``self.name``."""
        self.cannot(breaks.UNSUPPORTED_ATTR, f"{self.describe()}.{name}")

    def set_attr(self, t: Interpreter, name: str, value: Value) -> None:
        """Do ``self.name = value``."""
        self.cannot(breaks.UNSUPPORTED_STORE, f"{self.describe()}.{name}")

    def del_attr(self, t: Interpreter, name: str) -> None:
        """Do ``del self.name``."""
        self.cannot(breaks.UNSUPPORTED_STORE, f"{self.describe()}.{name}")

    def call(self, t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
        """Return the value of ``self(*args, **kwargs)``."""
        self.cannot(breaks.UNSUPPORTED_CALL, self.describe())

    def tail_call_codes(self) -> tuple[CodeType, ...]:
        """Return the code that a call inlines in tail position, if any."""
        return ()

    def method(self, t: Interpreter, name: str, args: Args, kwargs: Kwargs) -> Value:
        """Return the value of ``self.name(*args, **kwargs)``."""
        found = self.attr(t, name)
        if isinstance(found, LambdaValue) and found.calls_method_of is self:
            self.cannot(breaks.UNSUPPORTED_CALL, found.describe())
        return found.call(t, args, kwargs)

    def special(self, t: Interpreter, name: str, args: Args, refusal: str) -> Value:
        """Return the result of a special method; if its class has none, raise a TypeError."""
        kind = self.python_type()
        if type_lookup(kind, name) is MISSING and not issubclass(kind, type):
            return t.python.raise_(TypeError, refusal.format(full_name(kind)))
        return self.method(t, name, args, {})

    def item(self, t: Interpreter, key: Value) -> Value:
        """Return the value of ``self[key]``."""
        return self.special(t, "__getitem__", [key], "'{}' object is not subscriptable")

    def set_item(self, t: Interpreter, key: Value, value: Value) -> None:
        """Do ``self[key] = value``."""
        refusal = "'{}' object does not support item assignment"
        self.special(t, "__setitem__", [key, value], refusal)

    def del_item(self, t: Interpreter, key: Value) -> None:
        """Do ``del self[key]``."""
        refusal = "'{}' object does not support item deletion"
        self.special(t, "__delitem__", [key], refusal)

    def truth(self, t: Interpreter) -> bool:
        """Return ``bool(self)``."""
        self.cannot(breaks.UNSUPPORTED_OP, f"bool() of {self.describe()}")

    def truth_by_class(self, t: Interpreter) -> bool:
        """Return ``bool(self)`` by the special methods of its class; True if it has none."""
        kind = self.python_type()
        for name in ("__bool__", "__len__"):
            raw = type_lookup(kind, name)
            if raw is not MISSING:  # None, too, is called
                method = t.attributes.bind_descriptor(
                    self, kind, raw, name, inherited=True
                )
                found = method.call(t, [], {})
                return t.python.slot_result(kind, name, found).truth(t)
        return True

    def length(self, t: Interpreter) -> Value:
        """Return the value of ``len(self)``."""
        return self.special(t, "__len__", [], "object of type '{}' has no len()")

    def iterate(self, t: Interpreter) -> Value:
        """Return the value of ``iter(self)``: one whose `advance` yields items."""
        kind = self.python_type()
        if not has_any(kind, ITERABLE):
            t.python.raise_(TypeError, f"'{full_name(kind)}' object is not iterable")
        self.cannot(breaks.UNSUPPORTED_OP, f"iteration over {self.describe()}")

    def advance(self, t: Interpreter) -> Value:
        """Return the next item of an iterator. Raises Exhausted at its end."""
        self.cannot(breaks.UNSUPPORTED_OP, f"next() of {self.describe()}")

    def each(self, t: Interpreter) -> Iterator[Value]:
        """Yield the items of an iterable, each when Python asks for it, not before.

        What uses an item before it asks for the next takes this, not `unpack`: the iterator may be
        of traced code, which sees what was done meanwhile, has effects, raises, or never ends.
        """
        iterator = self.iterate(t)
        while True:
            try:
                item = iterator.advance(t)
            except Exhausted:
                return
            yield item

    def unpack(self, t: Interpreter) -> list[Value]:
        """Return all items of an iterable; see `each`."""
        return list(self.each(t))

    # -- the way back ----------------------------------------------------------------------
    def children(self, t: Interpreter) -> list[Value]:
        """Return the values that have to exist before this one can be rebuilt."""
        return []

    def rebuild(self, r: ResidualInterface) -> None:
        """Emit code that pushes a new object like this one; only called for unsourced values."""
        self.cannot(breaks.UNSUPPORTED_VALUE, self.describe())

    def cannot(self, reason: breaks.Reason, detail: str) -> NoReturn:
        """Break the graph."""
        raise breaks.GraphBreak(reason, detail)


class KnownObject(Value):
    """Base of values whose Python object is known."""

    def __init__(self, obj: Any, source: Source | None = None) -> None:
        self.obj = obj
        self.source = source

    def python_type(self) -> type:
        return type(self.obj)

    def constant(self) -> Any:
        return self.obj


class IteratorValue(Value):
    """Base of iterators."""

    noun = "an iterator"

    def iterate(self, t: Interpreter) -> Value:
        return self

    def truth(self, t: Interpreter) -> bool:
        return True

    def attr(self, t: Interpreter, name: str) -> Value:
        return t.attributes.builtin_method(self, name)

    def method(self, t: Interpreter, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name == "__iter__":
            return self
        if name != "__next__":
            self.cannot(
                breaks.UNSUPPORTED_CALL, f"{self.python_type().__name__}.{name}"
            )
        try:
            return self.advance(t)
        except Exhausted as end:
            end.as_raised(t)


class Lazy:
    """An unread item of a sourced container: not guarded and not wrapped yet."""

    __slots__ = ("obj", "source")

    def __init__(self, obj: Any, source: Source) -> None:
        self.obj = obj
        self.source = source


Slot = Value | Lazy


class NullValue(Value):
    """CPython's NULL on the stack."""

    noun = "NULL"


NULL = NullValue()


class Unbound(Value):
    """The contents of a cell or an attribute that was deleted or never set."""

    noun = "an unbound name"


UNBOUND = Unbound()


class HandlingValue(Value):
    """What PUSH_EXC_INFO puts below an exception: the one handled before, which POP_EXCEPT takes.

    Attributes:
        error: the exception that the stack entries above it handle.
    """

    noun = "the exception handled before"

    def __init__(self, error: Value) -> None:
        self.error = error

    def rebuild(self, r: ResidualInterface) -> None:
        r.e.load_const(None)


class OpaqueValue(Value):
    """A sourced object that the tracer does not model: it can only be passed on."""

    def __init__(self, obj: Any, source: Source | None) -> None:
        self.obj = obj
        self.source = source

    def python_type(self) -> type:
        return type(self.obj)

    def describe(self) -> str:
        name = (
            f"{type(self.obj).__module__}.{type(self.obj).__qualname__}".removeprefix(
                "builtins."
            )
        )
        return f"{self.source.pretty} ({name})" if self.source else f"a {name}"

    def truth(self, t: Interpreter) -> bool:
        kind = type(self.obj)  # which is guarded, and watched for special methods
        if any(
            type_lookup(kind, name) is not MISSING for name in ("__bool__", "__len__")
        ):
            return super().truth(t)
        return True

    def attr(self, t: Interpreter, name: str) -> Value:
        if read_runs_python(self.obj, name):
            return super().attr(t, name)
        try:
            value = getattr(self.obj, name)
        except Exception:  # what the program gets, where it reads this after the break
            return super().attr(t, name)
        if callable(value) and is_ignored(value):
            return LambdaValue(lambda t, args, kwargs: t.values.known(None), name)
        if callable(value) and self.source is not None:
            return OpaqueMethod(self, name)
        return super().attr(t, name)

    def rebuild(self, r: ResidualInterface) -> None:
        r.load_object(self.obj)


def is_ignored(method: Any) -> bool:
    """Return whether the user allows calls of a logger's method to be dropped."""
    known = config.ignore_logger_methods
    return method in known or getattr(method, "__func__", None) in known


class OpaqueMethod(Value):
    """A method of an opaque object; calling it breaks the graph and names it."""

    def __init__(self, owner: OpaqueValue, name: str) -> None:
        self.owner = owner
        self.name = name

    def describe(self) -> str:
        return f"{type(self.owner.obj).__qualname__}.{self.name}"

    def call(self, t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
        of_logger = isinstance(self.owner.obj, (logging.Logger, logging.LoggerAdapter))
        self.cannot(
            breaks.LOGGER_CALL if of_logger else breaks.UNSUPPORTED_CALL,
            self.describe(),
        )

    def children(self, t: Interpreter) -> list[Value]:
        return [self.owner]

    def rebuild(self, r: ResidualInterface) -> None:
        r.push(self.owner)
        r.e.load_attr(self.name)


class LambdaValue(Value):
    """A callable made by the tracer itself, from a Python function over values.

    `rebuild` emits code that pushes it, for which the `parts` have to exist.

    Attributes:
        calls_method_of: the value whose `method` a call comes down to.
    """

    def __init__(
        self,
        function: Callable[[Interpreter, Args, Kwargs], Value],
        text: str,
        rebuild: Any = None,
        parts: Args = (),
        calls_method_of: Value | None = None,
    ) -> None:
        self.function = function
        self.text = text
        self.parts = parts
        self.calls_method_of = calls_method_of
        self._rebuild = rebuild

    def truth(self, t: Interpreter) -> bool:
        return True

    def describe(self) -> str:
        return self.text

    def call(self, t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
        return self.function(t, args, kwargs)

    def attr(self, t: Interpreter, name: str) -> Value:
        if name == "__self__" and self.calls_method_of is not None:
            return self.calls_method_of
        return super().attr(t, name)

    def children(self, t: Interpreter) -> list[Value]:
        return list(self.parts)

    def rebuild(self, r: ResidualInterface) -> None:
        if self._rebuild is None:
            super().rebuild(r)
        else:
            self._rebuild(r)
