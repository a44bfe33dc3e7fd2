"""Numbers in tensors: known ones, symbols that are put there, and tensors in place of numbers."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeGuard

import torch

from tc.compiler.capture import breaks
from tc.compiler.capture.values.base import Args, Kwargs, Value
from tc.compiler.capture.values.const import ConstValue
from tc.compiler.capture.values.containers import ListValue, SequenceValue, TupleValue
from tc.compiler.capture.values.tensor import (
    METHODS,
    NodeValue,
    SymValue,
    TensorValue,
    decided,
)

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
    def convert(
        t: Interpreter, tensor: TensorValue, args: Args, kwargs: Kwargs
    ) -> Value:
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

    def handler(
        t: Interpreter, tensor: TensorValue, args: Args, kwargs: Kwargs
    ) -> Value:
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


def _with_alpha(name: str) -> Any:
    """Return the handler of ``add`` and its like, whose ``alpha`` may be a tensor of no dimension.

    Eager reads the number in it; so it does where torch would refuse the arguments.
    """

    def handler(
        t: Interpreter, tensor: TensorValue, args: Args, kwargs: Kwargs
    ) -> Value:
        named = dict(kwargs)
        alpha = named.pop("alpha", None)
        others = [*args, *named.values()]
        if len(others) == 1 and _is_real(others[0]) and _is_factor(alpha):
            scaled = t.output.call_torch(torch.mul, [*others, alpha], {})
            args, kwargs = [scaled], {}
        return t.output.call_torch(name, [tensor, *args], kwargs, method=True)

    return handler


def _is_factor(value: Value | None) -> TypeGuard[TensorValue]:
    """Whether torch takes a value as a number though it is a tensor."""
    if not isinstance(value, TensorValue):
        return False
    example = value.example
    if example.dim() or example.requires_grad:
        return False
    return example.dtype.is_floating_point or example.dtype in INTEGERS


def _is_real(value: Value) -> bool:
    return isinstance(value, TensorValue) and value.example.dtype.is_floating_point


def each_lerp(t: Interpreter, args: Args, kwargs: Kwargs) -> Value | None:
    """Trace ``_foreach_lerp_`` with a tensor as its weight; None for other weights."""
    if len(args) != 3 or not isinstance(args[2], TensorValue):
        return None
    starts, ends = args[0].unpack(t), args[1].unpack(t)
    for one, end in zip(starts, ends, strict=True):
        t.output.call_torch("lerp_", [one, end, args[2]], {}, method=True)
    return args[0]


def each_scaled(name: str) -> Callable[[Interpreter, Args, Kwargs], Value | None]:
    """Return the handler of ``_foreach_addcdiv_`` and its like, whose factors may be tensors.

    Eager has numbers there: optimizers leave them in tensors only while their step is compiled.
    """

    def handler(t: Interpreter, args: Args, kwargs: Kwargs) -> Value | None:
        if (
            len(args) != 4
            or kwargs
            or not all(isinstance(a, SequenceValue) for a in args[:3])
        ):
            return None
        factors = _factors(t, args[3])
        lists = [arg.unpack(t) for arg in args[:3]]
        if factors is None or {*map(len, lists)} != {len(factors)}:
            return None  # torch says what is wrong
        results = [
            tensor.method(t, name, [one, other], {"value": factor})
            for tensor, one, other, factor in zip(*lists, factors, strict=True)
        ]
        return args[0] if name.endswith("_") else TupleValue(results)

    return handler


def each_pow(t: Interpreter, args: Args, kwargs: Kwargs) -> Value | None:
    """Trace ``_foreach_pow`` of one base and several exponents; None for other arguments."""
    if len(args) != 2 or not isinstance(args[0], TensorValue):
        return None
    base, exponents = args[0], args[1].unpack(t)
    return TupleValue(
        [t.output.call_torch(torch.pow, [base, e], {}) for e in exponents]
    )


def _factors(t: Interpreter, given: Value) -> list[Value] | None:
    """Return the factors of a list or a tensor; None if they are numbers."""
    if isinstance(given, TensorValue):
        return [*given.unpack_rows(t)] if given.example.dim() == 1 else None
    if not isinstance(given, SequenceValue):
        return None
    factors = given.unpack(t)
    return (
        factors if any(isinstance(factor, TensorValue) for factor in factors) else None
    )


def making(function: Any) -> Callable[[Interpreter, Args, Kwargs], Value]:
    """Return the handler of a function that makes a tensor of numbers: ``torch.tensor``."""

    def handler(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
        found = _of_numbers(t, args, kwargs, tensors=function is torch.tensor)
        return found or t.output.call_torch(
            function, *_without_symbols(t, args, kwargs)
        )

    return handler


def _new_tensor(
    t: Interpreter, tensor: TensorValue, args: Args, kwargs: Kwargs
) -> Value:
    like = {
        "dtype": t.values.known(tensor.example.dtype),
        "device": t.values.known(tensor.example.device),
    }
    found = _of_numbers(t, args, {**like, **kwargs})
    if found is not None:
        return found
    args, kwargs = _without_symbols(t, args, kwargs)
    return t.output.call_torch("new_tensor", [tensor, *args], kwargs, method=True)


def _of_numbers(
    t: Interpreter, args: Args, kwargs: Kwargs, tensors: bool = False
) -> TensorValue | None:
    """Trace the making of a tensor of numbers, some of which are symbols or in tensors.

    torch's own functions read the symbols, as 32 bits. None if there are only constants, or where
    a symbol may not fit into the tensor's type.
    """
    if (
        len(args) != 1
        or not set(kwargs) <= {"dtype", "device"}
        or args[0].is_constant()
    ):
        return None
    leaves = [decided(t, leaf) for leaf in _leaves(t, args[0])]
    kept = [leaf for leaf in leaves if isinstance(leaf, NodeValue)]
    symbols = [leaf for leaf in kept if isinstance(leaf, SymValue)]
    if not kept or not all(map(_is_one_number, leaves)):
        return None
    if len(symbols) < len(kept) and not (tensors and _is_for_cpu(kwargs.get("device"))):
        return None
    given = kwargs.get("dtype")
    dtype = (
        _dtype_of(leaves)
        if given is None or t.python.is_none(given)
        else given.constant()
    )
    if any(_wide(symbol, dtype) is None for symbol in symbols):
        return None
    if is_whole(dtype) and not all(map(_may_be_whole, kept)):
        return None  # eager refuses
    made = _stacked(t, args[0], {**kwargs, "dtype": t.values.known(dtype)})
    return made if isinstance(made, TensorValue) else None


def _without_symbols(t: Interpreter, args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs]:
    """Return arguments with constants in place of symbolic numbers."""

    def plain(value: Value) -> Value:
        if isinstance(value, SymValue):
            return value.specialise(t)
        leaves = _leaves(t, value) if isinstance(value, SequenceValue) else []
        if not any(isinstance(leaf, SymValue) for leaf in leaves):
            return value
        return ListValue([plain(item) for item in value.unpack(t)])

    return [plain(arg) for arg in args], {
        name: plain(arg) for name, arg in kwargs.items()
    }


def _leaves(t: Interpreter, value: Value) -> list[Value]:
    if not isinstance(value, SequenceValue):
        return [value]
    return [leaf for item in value.values(t) for leaf in _leaves(t, item)]


def _is_one_number(leaf: Value) -> bool:
    if isinstance(leaf, TensorValue):
        return bool(leaf.example.dim() == 0 and leaf.example.device.type == "cpu")
    return isinstance(leaf, ConstValue | SymValue)


def _is_for_cpu(device: Value | None) -> bool:
    """Return whether a ``device=`` is left out, or is the CPU."""
    if device is None:
        return True
    return device.is_constant() and str(device.constant()) == "cpu"


def _may_be_whole(leaf: NodeValue) -> bool:
    """Return whether a symbol or a tensor of one number may go into a tensor of whole numbers."""
    if not isinstance(leaf, TensorValue):
        return True
    return is_whole(leaf.example.dtype)


def is_whole(dtype: Any) -> bool:
    """Return whether a type, if it is one, has no fractions."""
    if not isinstance(dtype, torch.dtype):
        return False
    return not (dtype.is_floating_point or dtype.is_complex)


def _dtype_of(leaves: list[Value]) -> torch.dtype:
    """Return the dtype of a new tensor of numbers of these kinds."""
    found = []
    for leaf in leaves:
        if isinstance(leaf, TensorValue):
            found.append(leaf.example.dtype)
        else:
            number = (
                leaf.python_type()(1) if isinstance(leaf, SymValue) else leaf.constant()
            )
            found.append(torch.tensor(number, device="cpu").dtype)
    kind: torch.dtype = functools.reduce(torch.promote_types, found)
    return kind


def _wide(symbol: SymValue, dtype: Any) -> torch.dtype | None:
    """Return the type that has every value of a symbol, and can be made into one of a tensor.

    None where a conversion would not do what making a tensor does: it refuses large numbers.
    """
    if not isinstance(dtype, torch.dtype):
        return None
    if symbol.python_type() is int and dtype is torch.int64:
        return torch.int64
    return torch.float64 if dtype.is_floating_point else None


def _stacked(t: Interpreter, value: Value, options: dict[str, Value]) -> Value:
    if isinstance(value, SequenceValue):
        if not any(isinstance(leaf, NodeValue) for leaf in _leaves(t, value)):
            return t.output.call_torch(torch.tensor, [value], options)
        parts = ListValue([_stacked(t, item, options) for item in value.values(t)])
        return t.output.call_torch(torch.stack, [parts], {})
    if isinstance(value, SymValue):
        dtype = options["dtype"].constant()
        wide = ConstValue(_wide(value, dtype))
        value = t.output.call_torch(
            torch.scalar_tensor, [value], {**options, "dtype": wide}
        )
        if wide.obj is dtype:
            return value
    if isinstance(value, TensorValue):
        detached = t.output.call_torch("detach", [value], {}, method=True)
        return t.output.call_torch("to", [detached, options["dtype"]], {}, method=True)
    return t.output.call_torch(torch.tensor, [value], options)


for _conversion in CONVERSIONS:
    METHODS[_conversion] = _number(_conversion)
METHODS["tolist"] = _tolist
METHODS["new_tensor"] = _new_tensor
for _name, _combine in (("addcmul", torch.mul), ("addcdiv", torch.div)):
    METHODS[_name] = _scaled(_name, _combine)
    METHODS[f"{_name}_"] = _scaled(f"{_name}_", _combine)
for _name in ("add", "add_", "sub", "sub_"):
    METHODS[_name] = _with_alpha(_name)
