"""numpy arrays and scalars as operands of torch: which a tensor is the equal of, and which not."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from tc.compiler.capture import breaks
from tc.compiler.capture.values.arrays import ArrayValue
from tc.compiler.capture.values.base import Slot, Value
from tc.compiler.capture.values.containers import ListValue, SequenceValue
from tc.compiler.capture.values.known_arrays import GivenScalar
from tc.compiler.capture.values.tensor import TensorValue

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter

OPERATORS = frozenset(one for one in vars(operator).values() if callable(one))
#: what reads and writes elements of a tensor
INDEXED = frozenset(("getitem", "setitem"))
#: scalars that these take for indices and elements
NUMBERS = (np.integer, float, complex)
#: operators to which a tensor without dimensions is what a number is
LINEAR = frozenset(("add", "sub", "mul", "truediv", "iadd", "isub", "imul", "itruediv"))
#: options of ``torch.tensor`` that `tensor_copy` has
COPY_OPTIONS = frozenset(("dtype", "device", "requires_grad"))


def unboxed(t: Interpreter, value: Value) -> Value:
    """Return a value with tensors in the place of arrays, for functions that make tensors."""
    if isinstance(value, ArrayValue):
        return value.tensor
    if isinstance(value, SequenceValue):
        items = value.values(t)
        found: list[Slot] = [unboxed(t, item) for item in items]
        if any(a is not b for a, b in zip(items, found, strict=True)):
            return ListValue(found)
    return value


def _rank(dtype: torch.dtype) -> int:
    """Return the place of a type among the kinds of numbers that decide the type of a result."""
    if dtype.is_complex or dtype.is_floating_point:
        return 3 if dtype.is_complex else 2
    return int(dtype != torch.bool)


def operand(name: str, value: Value, beside: Value) -> Value:
    """Return an operand of an operator of tensors: a given scalar as a tensor where that is alike.

    Beside a tensor with dimensions of a type that holds scalars as they are computed with, it makes
    no difference, and the graph needs no guard on the scalar's value.
    """
    if not isinstance(value, GivenScalar) or not isinstance(beside, TensorValue):
        return value
    alike = (
        beside.example.dtype in (torch.float32, torch.float64)
        and beside.example.dim() > 0
    )
    return (
        value.tensor
        if alike and name in LINEAR and value.dtype.kind in "iuf"
        else value
    )


def refuse_arrays(operands: Sequence[Value], target: Any, text: str) -> None:
    """Break the graph where torch raises: operators take arrays for tensors, functions do not.

    Raises:
        GraphBreak: an array with dimensions is given to a function or method of torch.
    """
    if isinstance(target, str) or target not in OPERATORS:
        lists = [one.slots for one in operands if isinstance(one, SequenceValue)]
        for one in (*operands, *itertools.chain.from_iterable(lists)):
            if isinstance(one, ArrayValue) and not one.scalar:
                one.cannot(breaks.UNSUPPORTED_CALL, f"{text}() of a numpy array")


def refuse_scalars(t: Interpreter, operands: Sequence[Value], text: str) -> None:
    """Break the graph where a call of torch sees that a numpy scalar is no tensor.

    To torch, a numpy scalar is a Python number: next to a tensor with dimensions of its kind, or of
    a higher one, the result is the same as with a tensor without dimensions, which is what the
    graph has of a scalar that it computes. Elsewhere the result's type could be another one.

    Raises:
        GraphBreak: the graph would have to hold the number itself.
    """
    arrays = [one for one in operands if isinstance(one, ArrayValue)]
    if (
        text == "setitem"
        and arrays
        and arrays[-1] is operands[-1]
        and not arrays[-1].scalar
    ):
        arrays[-1].cannot(breaks.UNSUPPORTED_CALL, "setitem with a numpy array")
    for scalar in (one for one in arrays if one.scalar):
        if text in INDEXED and not issubclass(scalar.python_type(), NUMBERS):
            scalar.cannot(
                breaks.UNSUPPORTED_CALL, f"{text} with {scalar.python_type().__name__}"
            )
        if scalar.number(t) is None:
            dtype = scalar.tensor.example.dtype
            # True is 1.0 to torch
            rank = _rank(torch.float32 if dtype == torch.bool else dtype)
            tensors = [one.example for one in operands if isinstance(one, TensorValue)]
            if (
                max((_rank(one.dtype) for one in tensors if one.dim()), default=-1)
                < rank
            ):
                scalar.cannot(breaks.TENSOR_ITEM, f"{text}() of a numpy scalar")
