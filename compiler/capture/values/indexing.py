"""Tensors under an index: where numbers in it are symbolic, the view there is taken first.

So it is where an index is a tensor of one number, which eager takes as a number too.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from tc.compiler.capture.values.base import Args, Kwargs, Value
from tc.compiler.capture.values.const import ConstValue
from tc.compiler.capture.values.containers import TupleValue
from tc.compiler.capture.values.numbers import known_number
from tc.compiler.capture.values.slices import SliceValue
from tc.compiler.capture.values.tensor import METHODS, SymValue, TensorValue

#: types of an index: numbers of the others are masks, or none
NUMBERS = (torch.int8, torch.int16, torch.int32, torch.int64)

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter


def _get_item(t: Interpreter, tensor: TensorValue, args: Args, kwargs: Kwargs) -> Value:
    view = _at_numbers(t, tensor, args[0])
    if view is not None:
        return view
    return t.output.call_torch(operator.getitem, [tensor, args[0]], {})


def _set_item(t: Interpreter, tensor: TensorValue, args: Args, kwargs: Kwargs) -> Value:
    view = _at_numbers(t, tensor, args[0])
    place = [tensor, args[0]] if view is None else [view, ConstValue(...)]
    t.output.call_torch(operator.setitem, [*place, args[1]], {})
    return ConstValue(None)


def _at_numbers(t: Interpreter, tensor: TensorValue, key: Value) -> Value | None:
    """Return the view at an index that has numbers which only the call knows; None for others.

    torch's indexing makes constants of symbolic numbers; its `select` does not.
    """
    keys: Sequence[Value] = [key]
    if isinstance(key, TupleValue) and key.kind is tuple:
        keys = key.values(t)
    places = [at for at, one in enumerate(keys) if _is_number(one)]
    plain = tensor.kind in (torch.Tensor, torch.nn.Parameter)
    if not places or not plain or t.overrides.modes:
        return None
    if not _is_basic(keys):
        return None
    view: Value = tensor
    if len(places) < len(keys):
        others = list(keys)
        for at in places:
            others[at] = _whole()
        rest = t.values.new_tuple(others)
        view = t.output.call_torch(operator.getitem, [view, rest], {})
    for at in reversed(places):
        dim = ConstValue(_dimension_of(keys, at))
        number = keys[at]
        if isinstance(number, TensorValue):
            number = known_number(t, number) or _number_in(t, number)
        view = t.output.call_torch("select", [view, dim, number], {}, method=True)
    return view


def _number_in(t: Interpreter, tensor: TensorValue) -> Value:
    with t.shapes.scalars_allowed():
        return t.output.call_torch("item", [tensor], {}, method=True)


def _whole() -> Value:
    return SliceValue([ConstValue(None)] * 3)


def _is_number(value: Value) -> bool:
    """Return whether a part of an index is a symbol, or a tensor that eager reads as a number."""
    if not isinstance(value, TensorValue):
        return isinstance(value, SymValue) and value.python_type() is int
    one = value.example
    # its number is not one number
    wrapped = torch._C._functorch.is_functorch_wrapped_tensor(one)
    return one.dim() == 0 and one.dtype in NUMBERS and not wrapped


def _is_basic(keys: Sequence[Value]) -> bool:
    """Return whether an index has only numbers, slices, None and one ellipsis at most.

    A tensor of one number is a number.
    """
    constants = [one.obj for one in keys if isinstance(one, ConstValue)]
    if constants.count(...) > 1:
        return False
    known = all(one is None or one is ... or type(one) is int for one in constants)
    return known and all(
        isinstance(one, ConstValue | SliceValue) or _is_number(one) for one in keys
    )


def _dimension_of(keys: Sequence[Value], at: int) -> int:
    """Return which dimension a number is for, once other parts of the index are taken.

    Behind an ellipsis dimensions are counted from the end, without those of later numbers.
    """
    before, after = keys[:at], keys[at + 1 :]
    if not any(_is_constant(one, ...) for one in before):
        return sum(not _is_known(one) for one in before)
    return -1 - sum(not _is_known(one) and not _is_number(one) for one in after)


def _is_known(value: Value) -> bool:
    """Return whether a part of an index is a constant number, which leaves no dimension."""
    return isinstance(value, ConstValue) and type(value.obj) is int


def _is_constant(value: Value, constant: Any) -> bool:
    return isinstance(value, ConstValue) and value.obj is constant


METHODS["__getitem__"] = _get_item
METHODS["__setitem__"] = _set_item
