"""Tensors under an index: where numbers in it are symbolic, the view there is taken first."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from tc.compiler.capture.values.base import Args, Kwargs, Value
from tc.compiler.capture.values.const import ConstValue
from tc.compiler.capture.values.containers import TupleValue
from tc.compiler.capture.values.slices import SliceValue
from tc.compiler.capture.values.tensor import METHODS, SymValue, TensorValue

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter


def _get_item(t: Interpreter, tensor: TensorValue, args: Args, kwargs: Kwargs) -> Value:
    view, rest = _at_symbols(t, tensor, args[0])
    return view if rest is None else t.output.call_torch(operator.getitem, [view, rest], {})


def _set_item(t: Interpreter, tensor: TensorValue, args: Args, kwargs: Kwargs) -> Value:
    view, rest = _at_symbols(t, tensor, args[0])
    if rest is None:
        rest = ConstValue(...)
    t.output.call_torch(operator.setitem, [view, rest, args[1]], {})
    return ConstValue(None)


def _at_symbols(t: Interpreter, tensor: TensorValue, key: Value) -> tuple[Value, Value | None]:
    """Return the view at the symbolic numbers of an index, and the rest of the index.

    torch's indexing makes constants of symbolic numbers; its `select` does not. The rest is None
    where nothing is left of the index.
    """
    keys = key.values(t) if isinstance(key, TupleValue) and key.kind is tuple else [key]
    symbolic = [isinstance(one, SymValue) and one.python_type() is int for one in keys]
    plain = tensor.kind in (torch.Tensor, torch.nn.Parameter) and not t.overrides.modes
    if not plain or not any(symbolic) or not _is_basic(keys):
        return tensor, key
    view: Value = tensor
    for at in reversed([i for i, one in enumerate(symbolic) if one]):
        dim = ConstValue(_dimension_of(keys, at))
        view = t.output.call_torch("select", [view, dim, keys[at]], {}, method=True)
    left = [one for one, taken in zip(keys, symbolic, strict=True) if not taken]
    return view, t.values.new_tuple(left) if left else None


def _is_basic(keys: Sequence[Value]) -> bool:
    """Return whether an index has only numbers, slices, None and one ellipsis at most."""
    constants = [one.obj for one in keys if isinstance(one, ConstValue)]
    known = all(one is None or one is ... or type(one) is int for one in constants)
    kinds = all(isinstance(one, ConstValue | SliceValue | SymValue) for one in keys)
    return known and kinds and constants.count(...) <= 1


def _dimension_of(keys: Sequence[Value], at: int) -> int:
    """Return the dimension that a symbolic number in an index is for.

    Behind an ellipsis dimensions are counted from the end, without those of later symbolic numbers.
    """
    before, after = keys[:at], keys[at + 1 :]
    if not any(_is_constant(one, ...) for one in before):
        return sum(not _is_constant(one, None) for one in before)
    return -1 - sum(not _is_constant(one, None) and not isinstance(one, SymValue) for one in after)


def _is_constant(value: Value, constant: Any) -> bool:
    return isinstance(value, ConstValue) and value.obj is constant


METHODS["__getitem__"] = _get_item
METHODS["__setitem__"] = _set_item
