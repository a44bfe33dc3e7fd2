"""Constants: immutable Python objects whose value the tracer knows and folds."""

from __future__ import annotations

import enum
import inspect
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from tc.compiler.capture import breaks
from tc.compiler.capture.values.base import Args, KnownObject, Kwargs, NotConstant, Value
from tc.compiler.core.sources import AttrSource

if TYPE_CHECKING:
    from tc.compiler.capture.residual import Residual
    from tc.compiler.capture.tracer import Tracer

LITERALS = (
    type(None), bool, int, float, complex, str, bytes, type(Ellipsis), type(NotImplemented),
)  # fmt: skip
ATOMS = (
    torch.dtype, torch.device, torch.layout, torch.memory_format, torch.finfo, torch.iinfo,
    types.CodeType, np.finfo, np.iinfo,
)  # fmt: skip
#: bound methods of objects implemented in C or in Python
BOUND = (types.BuiltinMethodType, types.MethodType, types.MethodWrapperType)


def is_constant_object(obj: Any) -> bool:
    """Say whether an object is one that `ConstValue` stands for."""
    kind = type(obj)
    if kind in LITERALS or kind in ATOMS or isinstance(obj, enum.Enum):
        return True
    if kind is range:
        return True
    return kind is frozenset and all(is_constant_object(item) for item in obj)


#: attributes that every member of an enumeration has, as it was made
ENUM_PARTS = frozenset(("_value_", "_name_", "__objclass__", "_sort_order_"))


class ConstValue(KnownObject):
    """A known immutable object."""

    noun = "a constant"

    def describe(self) -> str:
        return repr(self.obj)

    def truth(self, t: Tracer) -> bool:
        return bool(self.obj)

    def attr(self, t: Tracer, name: str) -> Value:
        if isinstance(self.obj, enum.Enum):
            own = inspect.getattr_static(self.obj, name, None)
            if isinstance(own, types.FunctionType | classmethod | staticmethod):
                return t.bind_descriptor(self, type(self.obj), own, name)
            if name in vars(self.obj) and name not in ENUM_PARTS:
                return t.wrap(vars(self.obj)[name], AttrSource(t.source_of(self), name))
        found = t.fold(getattr, self.obj, name)
        if isinstance(found, BOUND):
            return ConstMethod(self, name)
        return t.known(found)

    def method(self, t: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        if isinstance(self.obj, str) and name in STRING_METHODS:
            return STRING_METHODS[name](t, self.obj, args)
        try:
            plain = [a.constant() for a in args]
            named = {k: v.constant() for k, v in kwargs.items()}
        except NotConstant:
            if type(self.obj) is frozenset:
                return t.frozen_set(t.known(item) for item in self.obj).method(
                    t, name, args, kwargs
                )
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
        return t.constant_iterator(self.obj)

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


def _join(t: Tracer, text: str, args: Args) -> Value:
    return t.known(t.fold(text.join, [t.concrete(item) for item in args[0].unpack(t)]))


STRING_METHODS: dict[str, Callable[[Tracer, str, Args], Value]] = {"join": _join}
