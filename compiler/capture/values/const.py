"""Constants: immutable Python objects whose value the tracer knows and folds."""

from __future__ import annotations

import enum
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from tc.compiler.capture import breaks
from tc.compiler.capture.values.base import Args, Exhausted, Kwargs, NotConstant, Value
from tc.compiler.core.sources import Source

if TYPE_CHECKING:
    from tc.compiler.capture.residual import Residual
    from tc.compiler.capture.tracer import Tracer

LITERALS = (
    type(None), bool, int, float, complex, str, bytes, type(Ellipsis), type(NotImplemented),
)  # fmt: skip
ATOMS = (
    torch.dtype, torch.device, torch.layout, torch.memory_format, torch.finfo, torch.iinfo,
    types.CodeType,
)  # fmt: skip


def is_constant_object(obj: Any) -> bool:
    """Say whether an object is one that `ConstValue` stands for."""
    kind = type(obj)
    if kind in LITERALS or kind in ATOMS or isinstance(obj, enum.Enum):
        return True
    if kind is range:
        return True
    return kind is frozenset and all(is_constant_object(item) for item in obj)


class ConstValue(Value):
    """A known immutable object."""

    noun = "a constant"

    def __init__(self, obj: Any, source: Source | None = None) -> None:
        self.obj = obj
        self.source = source

    def python_type(self) -> type:
        return type(self.obj)

    def constant(self) -> Any:
        return self.obj

    def describe(self) -> str:
        return repr(self.obj)

    def truth(self, t: Tracer) -> bool:
        return bool(self.obj)

    def attr(self, t: Tracer, name: str) -> Value:
        found = t.fold(getattr, self.obj, name)
        if isinstance(found, types.BuiltinMethodType | types.MethodType):
            return ConstMethod(self, name)
        return t.known(found)

    def method(self, t: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        if isinstance(self.obj, str) and name in STRING_METHODS:
            return STRING_METHODS[name](t, self.obj, args)
        try:
            plain = [a.constant() for a in args]
            named = {k: v.constant() for k, v in kwargs.items()}
        except NotConstant:
            if name.startswith("__"):
                return t.known(NotImplemented)
            self.cannot(breaks.UNSUPPORTED_CALL, f"{type(self.obj).__name__}.{name}")
        return t.known(t.fold(getattr(self.obj, name), *plain, **named))

    def call(self, t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        return t.raise_(TypeError, f"{type(self.obj).__name__!r} object is not callable")

    def item(self, t: Tracer, key: Value) -> Value:
        return t.known(t.fold(lambda: self.obj[t.concrete(key)]))

    def length(self, t: Tracer) -> Value:
        return t.known(t.fold(len, self.obj))

    def iterate(self, t: Tracer) -> Value:
        return ConstIterator(t.fold(list, self.obj))

    def rebuild(self, r: Residual) -> None:
        if type(self.obj) in LITERALS:
            r.e.load_const(self.obj)
        else:
            r.load_object(self.obj)


class ConstMethod(Value):
    """A bound method of a constant (``"a,b".split``)."""

    def __init__(self, owner: ConstValue, name: str) -> None:
        self.owner = owner
        self.name = name

    def python_type(self) -> type:
        return types.BuiltinMethodType

    def describe(self) -> str:
        return f"{type(self.owner.obj).__name__}.{self.name}"

    def attr(self, t: Tracer, name: str) -> Value:
        return t.known(t.fold(getattr, getattr(self.owner.obj, self.name), name))

    def call(self, t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        return self.owner.method(t, self.name, args, kwargs)

    def children(self, t: Tracer) -> list[Value]:
        return [self.owner]

    def rebuild(self, r: Residual) -> None:
        r.push(self.owner)
        r.e.load_attr(self.name)


class ConstIterator(Value):
    """An iterator over known items."""

    noun = "an iterator"

    def __init__(self, items: list[Any]) -> None:
        self.items = items
        self.index = 0

    def python_type(self) -> type:
        return type(iter([]))

    def iterate(self, t: Tracer) -> Value:
        return self

    def advance(self, t: Tracer) -> Value:
        if self.index >= len(self.items):
            raise Exhausted
        self.index += 1
        return t.known(self.items[self.index - 1])

    def rebuild(self, r: Residual) -> None:
        r.load_object(list(self.items[self.index :]))
        r.e.get_iter()


def _join(t: Tracer, text: str, args: Args) -> Value:
    return t.known(t.fold(text.join, [t.concrete(item) for item in args[0].unpack(t)]))


STRING_METHODS: dict[str, Callable[[Tracer, str, Args], Value]] = {"join": _join}
