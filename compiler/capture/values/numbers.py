"""Known numbers in tensors, and operations that would call ``item()`` on a tensor argument."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from tc.compiler.capture import breaks
from tc.compiler.capture.values.base import Args, Kwargs, Value
from tc.compiler.capture.values.const import ConstValue
from tc.compiler.capture.values.containers import ListValue, SequenceValue, TupleValue
from tc.compiler.capture.values.tensor import METHODS, TensorValue

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter

INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
CONVERSIONS: dict[str, Callable[[Any], Any]] = {
    "item": lambda number: number,
    "__int__": int,
    "__float__": float,
    "__complex__": complex,
    "__index__": operator.index,
    "__bool__": bool,
}


def known_contents(tensor: TensorValue) -> torch.Tensor | None:
    """Return the contents of a tensor that traced code made of constants and has not changed."""
    return getattr(tensor.example, "constant", None)


def known_number(
    t: Interpreter, tensor: TensorValue, conversion: str = "item"
) -> ConstValue | None:
    """Return the number in a tensor of one element, if known."""
    contents = known_contents(tensor)
    if contents is None or contents.numel() != 1:
        return None
    return ConstValue(t.python.fold(CONVERSIONS[conversion], contents.item()))


def _number(conversion: str) -> Any:
    def convert(t: Interpreter, tensor: TensorValue, args: Args, kwargs: Kwargs) -> Value:
        known = known_number(t, tensor, conversion)
        if known is not None:
            return known
        if conversion in ("__bool__", "__complex__") or not t.sizes.scalars:
            tensor.cannot(breaks.TENSOR_ITEM, f"Tensor.{conversion}()")
        return t.output.call_torch("item", [tensor], {}, method=True)

    return convert


def _tolist(t: Interpreter, tensor: TensorValue, args: Args, kwargs: Kwargs) -> Value:
    contents = known_contents(tensor)
    if contents is not None:
        return t.values.known(contents.tolist())
    if tensor.example.dtype not in INTEGERS and not t.sizes.scalars:
        tensor.cannot(breaks.TENSOR_ITEM, "Tensor.tolist()")
    with t.shapes.scalars_allowed():
        return _items(t, tensor)


def _items(t: Interpreter, tensor: TensorValue) -> Value:
    if tensor.example.dim() == 0:
        return t.output.call_torch("item", [tensor], {}, method=True)
    return t.values.list_of(_items(t, row) for row in tensor.unpack_rows(t))


# -- tensors in the place of numbers -------------------------------------------------------------
def _scaled(name: str, combine: Any) -> Any:
    """Return the handler of ``addcmul`` and its like, whose factor may be a tensor."""

    def handler(t: Interpreter, tensor: TensorValue, args: Args, kwargs: Kwargs) -> Value:
        factor = kwargs.get("value")
        if not isinstance(factor, TensorValue):
            return t.output.call_torch(name, [tensor, *args], kwargs, method=True)
        names = ("tensor1", "tensor2")
        pair = [*args, *(kwargs[key] for key in names if key in kwargs)]
        product = t.output.call_torch(
            torch.mul, [t.output.call_torch(combine, pair, {}), factor], {}
        )
        added = "add_" if name.endswith("_") else "add"
        return t.output.call_torch(added, [tensor, product], {}, method=True)

    return handler


def each_lerp(t: Interpreter, args: Args, kwargs: Kwargs) -> Value | None:
    """Trace ``_foreach_lerp_`` with a tensor as its weight; None for other weights."""
    if len(args) != 3 or not isinstance(args[2], TensorValue):
        return None
    starts, ends = args[0].unpack(t), args[1].unpack(t)
    for one, end in zip(starts, ends, strict=True):
        t.output.call_torch("lerp_", [one, end, args[2]], {}, method=True)
    return args[0]


def each_pow(t: Interpreter, args: Args, kwargs: Kwargs) -> Value | None:
    """Trace ``_foreach_pow`` of one base and several exponents; None for other arguments."""
    if len(args) != 2 or not isinstance(args[0], TensorValue):
        return None
    base, exponents = args[0], args[1].unpack(t)
    return TupleValue([t.output.call_torch(torch.pow, [base, e], {}) for e in exponents])


def tensor_of_tensors(t: Interpreter, args: Args, kwargs: Kwargs) -> Value | None:
    """Trace ``torch.tensor`` of a list with one-element tensors in it; None for other arguments."""
    if len(args) != 1 or not isinstance(args[0], SequenceValue) or set(kwargs) - {"dtype"}:
        return None
    leaves = _leaves(t, args[0])
    tensors = [leaf for leaf in leaves if isinstance(leaf, TensorValue)]
    if not tensors or not all(_is_one_number(leaf) for leaf in leaves):
        return None
    given = kwargs.get("dtype")
    dtype = t.values.known(_dtype_of(leaves)) if given is None or t.python.is_none(given) else given
    return _stacked(t, args[0], {"dtype": dtype})


def _leaves(t: Interpreter, value: Value) -> list[Value]:
    if not isinstance(value, SequenceValue):
        return [value]
    return [leaf for item in value.values(t) for leaf in _leaves(t, item)]


def _is_one_number(leaf: Value) -> bool:
    if isinstance(leaf, TensorValue):
        return bool(leaf.example.dim() == 0 and leaf.example.device.type == "cpu")
    return isinstance(leaf, ConstValue)


def _dtype_of(leaves: list[Value]) -> torch.dtype:
    """Return the dtype of a new tensor of numbers of these kinds."""
    found = [
        leaf.example.dtype
        if isinstance(leaf, TensorValue)
        else torch.tensor(leaf.constant(), device="cpu").dtype
        for leaf in leaves
    ]
    return functools.reduce(torch.promote_types, found)


def _stacked(t: Interpreter, value: Value, dtype: dict[str, Value]) -> Value:
    if isinstance(value, TensorValue):
        detached = t.output.call_torch("detach", [value], {}, method=True)
        return t.output.call_torch("to", [detached], dtype, method=True)
    if not isinstance(value, SequenceValue):
        return t.output.call_torch(torch.tensor, [value], dtype)
    parts = ListValue([_stacked(t, item, dtype) for item in value.values(t)])
    return t.output.call_torch(torch.stack, [parts], {})


for _conversion in CONVERSIONS:
    METHODS[_conversion] = _number(_conversion)
METHODS["tolist"] = _tolist
for _name, _combine in (("addcmul", torch.mul), ("addcdiv", torch.div)):
    METHODS[_name] = _scaled(_name, _combine)
    METHODS[f"{_name}_"] = _scaled(f"{_name}_", _combine)
