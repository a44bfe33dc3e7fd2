"""Traces the construction of tensors of derived classes."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

import torch

from tc.compiler.capture import breaks
from tc.compiler.capture.values.array_calls import tensor_copy
from tc.compiler.capture.values.arrays import ArrayValue
from tc.compiler.capture.values.base import Args, Kwargs, Value
from tc.compiler.capture.values.const import ConstValue
from tc.compiler.capture.values.containers import SequenceValue
from tc.compiler.capture.values.handlers import handles
from tc.compiler.capture.values.lookup import type_lookup
from tc.compiler.capture.values.objects import ClassValue
from tc.compiler.capture.values.subclasses import (
    CLASSES_OFF,
    is_wrapper,
    own_attribute,
    with_class,
)
from tc.compiler.capture.values.tensor import METHODS, TensorValue

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter

#: class of the constructors of one type of elements each, as `torch.LongTensor`
TYPED: Any = type(torch.FloatTensor)
_NEW = torch._C.TensorBase.__dict__["__new__"]


def construct(t: Interpreter, cls: ClassValue, args: Args, kwargs: Kwargs) -> Value:
    """Return the value of a call of a class of tensors."""
    kind = cls.obj
    if kind is torch.Tensor and not kwargs:
        if len(args) == 1 and isinstance(args[0], ArrayValue) and not args[0].scalar:
            dtype = ConstValue(torch.get_default_dtype())
            return t.output.call_torch(tensor_copy, [args[0].tensor], {"dtype": dtype})
        return _by_sizes_or_numbers(t, kind, args)
    if isinstance(kind, TYPED) and not kwargs:
        return _by_sizes_or_numbers(t, kind, args)
    if is_wrapper(kind):
        return t.output.call_torch(kind, args, kwargs)
    maker = own_attribute(kind, "__new__")
    if isinstance(maker, staticmethod):
        maker = maker.__func__
    if isinstance(maker, types.FunctionType):
        made = t.inline_object(maker, [cls, *args], kwargs)
    elif type_lookup(kind, "__new__") is _NEW:
        made = _new(t, [cls, *args], kwargs)
    else:
        raise breaks.GraphBreak(breaks.UNSUPPORTED_CALL, f"{kind.__qualname__}()")
    if issubclass(made.python_type(), kind) and made.has_own("__init__"):
        result = made.call_special(t, "__init__", args, kwargs)
        t.python.slot_result(kind, "__init__", result)
    return made


def _by_sizes_or_numbers(t: Interpreter, kind: Any, args: Args) -> Value:
    """Call a class whose instances are made of sizes, of a shape, or of a sequence of numbers.

    A shape is a tuple in a graph, which such a class would take for numbers.
    """
    shape = len(args) == 1 and args[0].python_type() is torch.Size
    if not shape and not (len(args) == 1 and isinstance(args[0], SequenceValue)):
        return t.output.call_torch(kind, args, {})
    of_type = isinstance(kind, TYPED)
    device = torch.device("cuda" if of_type and kind.is_cuda else "cpu")
    dtype = kind.dtype if of_type else torch.get_default_dtype()
    named: dict[str, Value] = {"dtype": ConstValue(dtype), "device": ConstValue(device)}
    if shape:
        return t.output.call_torch(
            torch.empty, [t.values.new_tuple(args[0].unpack(t))], named
        )
    return t.values.known(torch.tensor).call(t, args, named)


@handles(_NEW)
def _new(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    """Trace ``torch.Tensor.__new__``: a tensor viewed as another class, or a new tensor."""
    kind: Any = t.python.concrete(args[0])
    if kwargs or is_wrapper(kind):
        raise breaks.GraphBreak(breaks.UNSUPPORTED_CALL, f"{kind.__qualname__}()")
    if len(args) == 2 and isinstance(args[1], TensorValue):
        return with_class(t, args[1], kind)
    made = _by_sizes_or_numbers(t, torch.Tensor, args[1:])
    assert isinstance(made, TensorValue)
    return with_class(t, made, kind)


@handles(torch.Tensor._make_subclass)
def _make_subclass(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    kind: Any = t.python.concrete(args[0])
    plain = isinstance(args[1], TensorValue) and len(args) == 2 and not kwargs
    if not plain:
        raise breaks.GraphBreak(
            breaks.UNSUPPORTED_CALL, f"_make_subclass({kind.__qualname__})"
        )
    with t.overrides.at_least(CLASSES_OFF):
        data = args[1].method(t, "detach", [], {})
    assert isinstance(data, TensorValue)
    return with_class(t, data, kind)


def _as_subclass(
    t: Interpreter, tensor: TensorValue, args: Args, kwargs: Kwargs
) -> Value:
    cls = [*args, *kwargs.values()][0]
    return with_class(t, tensor, t.python.concrete(cls))


METHODS["as_subclass"] = _as_subclass
