"""Handlers that copying of objects needs: ``id()``, and ``__reduce_ex__`` of plain objects."""

from __future__ import annotations

import copyreg
from typing import TYPE_CHECKING, Any

import torch

from tc.compiler.capture import breaks
from tc.compiler.capture.values.base import Args, Kwargs, Value
from tc.compiler.capture.values.builtins import OBJECT_METHODS, builtin
from tc.compiler.capture.values.const import ConstValue
from tc.compiler.capture.values.lookup import python_method
from tc.compiler.capture.values.objects import ObjectValue
from tc.compiler.capture.values.tensor import METHODS, SymValue, TensorValue

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter, ResidualInterface

#: the integers that Python keeps one object of
SMALL_INTEGERS = range(-5, 257)


class IdentityNumber(Value):
    """``id()`` of an object that traced code made: unknown, but equal for the same object only."""

    noun = "id() of a value"

    def __init__(self, owner: Value) -> None:
        self.obj = owner

    def python_type(self) -> type:
        return int

    def truth(self, t: Interpreter) -> bool:
        return True

    def children(self, t: Interpreter) -> list[Value]:
        return [self.obj]

    def rebuild(self, r: ResidualInterface) -> None:
        r.load_callable(id)
        r.push(self.obj)
        r.e.copy(1)
        r.store_new()  # another object must not get its number while the frame lasts
        r.e.call(1)


@builtin(id)
def _id(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    owner = args[0]
    if isinstance(owner, SymValue):
        owner = owner.specialise(t)
        # which object holds the number, only a run can say
        if not _is_only_one(owner.obj):
            raise breaks.GraphBreak(breaks.BUILTIN_CALL, "id() of a symbolic number")
    made_inside = owner.source is None or owner.obj is None
    if made_inside and not isinstance(owner, ConstValue):
        return IdentityNumber(owner)
    if owner.source is not None and not _is_only_one(owner.obj):
        t.guards.identity(owner.source, owner.obj)
    # another object must not get its number while the trace lasts
    t.values.keep(owner.obj)
    return ConstValue(id(owner.obj))


def _is_only_one(obj: Any) -> bool:
    """Return whether a process has one object of this value, so that a guard on it is enough."""
    if type(obj) is int:
        return obj in SMALL_INTEGERS
    return obj is None or obj is Ellipsis or obj is NotImplemented or type(obj) is bool


def _reduce(t: Interpreter, x: ObjectValue) -> Value:
    """Return ``object.__reduce_ex__(x, 4)`` of a plain object with a ``__dict__``."""
    own = python_method(x.cls, "__reduce__")
    if own is not None:
        return t.inline_object(own, [x])
    special = ("__getnewargs__", "__getnewargs_ex__")
    slots = any(base.__dict__.get("__slots__") for base in x.cls.__mro__)
    if (
        slots
        or any(hasattr(x.cls, name) for name in special)
        or not _is_plain_class(x.cls)
    ):
        raise breaks.GraphBreak(
            breaks.UNSUPPORTED_CALL, f"{x.cls.__name__}.__reduce_ex__"
        )
    getter = python_method(x.cls, "__getstate__")
    if getter is not None:
        state = t.inline_object(getter, [x])
    else:
        names = x.dictionary(t)
        held = names.method(t, "copy", [], {})
        state = held if held.truth(t) else ConstValue(None)
    maker = t.values.known(copyreg.__newobj__)  # type: ignore[attr-defined]
    arguments = t.values.new_tuple([t.values.known(x.cls)])
    return t.values.new_tuple([maker, arguments, state])


def _is_plain_class(cls: type) -> bool:
    return cls.__basicsize__ <= _PLAIN_SIZE


class _Plain:
    pass


_PLAIN_SIZE = _Plain.__basicsize__


OBJECT_METHODS["__reduce_ex__"] = lambda t, x, protocol: _reduce(t, x)


def _deepcopy_tensor(
    t: Interpreter, tensor: TensorValue, args: Args, kwargs: Kwargs
) -> Value:
    attributes = tensor.obj is not None and vars(tensor.obj)
    plain = (
        tensor.kind is torch.Tensor
        and tensor.example.is_contiguous()
        and not attributes
    )
    has_grad = plain and not t.python.is_none(tensor.attr(t, "grad"))
    if tensor.example.requires_grad or not plain or has_grad:
        tensor.cannot(breaks.UNSUPPORTED_CALL, "Tensor.__deepcopy__")
    return t.output.call_torch("clone", [tensor], {}, method=True)


METHODS["__deepcopy__"] = _deepcopy_tensor
