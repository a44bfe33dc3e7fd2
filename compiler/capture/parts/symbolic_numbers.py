"""Arithmetic of symbolic numbers: where symbols follow Python, and where a number is decided.

A symbolic expression is one of mathematics: sympy has no bounds, no -0.0, no NaN, and truth values
that are no numbers. Python's operators are applied to the current values first. Where the operands
or this result are of a kind that expressions do not follow, the symbols become constants, and the
result is Python's.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from tc.compiler.capture import breaks
from tc.compiler.capture.number_ranges import LARGE, LONGEST, bits_of_symbol
from tc.compiler.capture.values.base import Args, Value
from tc.compiler.capture.values.const import ConstValue
from tc.compiler.capture.values.conversions import symbolic_float
from tc.compiler.capture.values.tensor import SymValue
from tc.compiler.core.symbolic import MATH, hint

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter

Accepts = Callable[[Any], bool]


def _any_number(number: Any) -> bool:
    return not (isinstance(number, float) and math.isnan(number))


def _added(number: Any) -> bool:
    return math.isfinite(number) and (number != 0 or math.copysign(1.0, number) > 0)


def _factor(number: Any) -> bool:
    return math.isfinite(number) and number != 0


COMPARISONS = (
    operator.lt,
    operator.le,
    operator.gt,
    operator.ge,
    operator.eq,
    operator.ne,
)
INTEGERS_ONLY = (
    operator.lshift,
    operator.rshift,
    operator.and_,
    operator.or_,
    operator.xor,
    operator.invert,
)
POWERS = (operator.pow, operator.lshift)
DIVISIONS = (operator.truediv, operator.floordiv, operator.mod)
#: divisions whose results for floats depend on how each step is rounded
WITH_REST = (operator.floordiv, operator.mod)
#: functions of numbers -> which constants expressions with them may have
ACCEPTED: dict[Any, Accepts] = {
    **dict.fromkeys(COMPARISONS, _any_number),
    **dict.fromkeys((operator.add, operator.sub), _added),
    **dict.fromkeys(
        (operator.mul, operator.truediv, operator.floordiv, operator.mod), _factor
    ),
    **dict.fromkeys((operator.neg, operator.pos, operator.abs, operator.pow), _factor),
    **dict.fromkeys(INTEGERS_ONLY, _added),
    **dict.fromkeys((torch.sym_max, torch.sym_min), _added),
    symbolic_float: _added,
    round: _added,
    **dict.fromkeys(MATH.values(), _added),
}
#: functions of torch -> those of Python that they do the work of
OF_PYTHON: dict[Any, Any] = {
    torch.sym_max: max,
    torch.sym_min: min,
    symbolic_float: float,
    **{symbolic: plain for plain, symbolic in MATH.items()},
}
#: functions that a program may call itself, which modes of ``__torch_function__`` are asked for
OVERRIDABLE = (torch.sym_max, torch.sym_min)
#: the integers below have each a float of their own
EXACT_BITS = 53


def are_numbers(target: Any, args: Args) -> bool:
    """Return whether a call is an operation on numbers, of which one is symbolic at least."""
    try:
        known = target in ACCEPTED
    except TypeError:  # not hashable
        return False
    return known and all(isinstance(arg, SymValue | ConstValue) for arg in args)


def apply(
    t: Interpreter, function: Any, args: Args, record: Callable[[], Value]
) -> Value:
    """Apply a function to numbers.

    Args:
        record: records the call in the graph, and returns the symbolic result.
    """
    plain = OF_PYTHON.get(function, function)
    if not _operands_followed(t, function, args) or not _result_followed(plain, args):
        return t.python.folded(plain, *t.python.concrete_list(args))
    if function in DIVISIONS and isinstance(args[1], SymValue):
        divisor = args[1].example  # expressions do not fail: ``0 // n`` is 0 for all n
        if hint(divisor) is not None:
            t.shapes.guarded(bool, divisor != 0)
    result = record()
    if not isinstance(result, SymValue) or isinstance(result.example, torch.SymBool):
        return result
    of_data = hint(result.example) is None  # there is nothing to guard
    if not t.shapes.ranges.is_short(result.example):
        if of_data:
            raise breaks.GraphBreak(
                breaks.DATA_GUARD, f"its expression has over {LONGEST} parts"
            )
        return result.specialise(t)
    if not isinstance(result.example, torch.SymInt):
        return result
    if not of_data and not t.shapes.ranges.fits(result.example):
        limit = 2**LARGE
        for condition in (result.example < limit, result.example >= -limit):
            if not t.shapes.guarded(bool, condition):
                return result.specialise(t)
    return result


def _operands_followed(t: Interpreter, function: Any, args: Args) -> bool:
    accepts = ACCEPTED[function]
    kinds = [arg.python_type() for arg in args]
    if bool in kinds or not set(kinds) <= {int, float}:
        return False
    if (
        function in POWERS
        and isinstance(args[1], SymValue)
        and not _decays(t, function, *args)
    ):
        return False
    if function in WITH_REST and float in kinds:
        return False
    mixed = float in kinds
    for arg in args:
        if isinstance(arg, SymValue):
            whole = isinstance(arg.example, torch.SymInt)
            followed = not (whole and mixed) or t.shapes.ranges.fits(
                arg.example, EXACT_BITS
            )
        elif type(arg.constant()) is int and bits_of_symbol(arg.constant()) is None:
            followed = False
        else:
            followed = not mixed or accepts(arg.constant())
        if not followed:
            return False
    return True


def _decays(t: Interpreter, function: Any, base: Value, exponent: Value) -> bool:
    """Return whether a power with a symbolic exponent has a result whatever the exponent is.

    That of a constant between 0 and 1 and of an integer that is not negative, as optimizers have
    it: Python refuses a result that is too large, and makes one complex. Guards the exponent.
    """
    if function is not operator.pow or not isinstance(exponent, SymValue):
        return False
    if not isinstance(base, ConstValue) or not 0.0 < base.obj < 1.0:
        return False
    whole = (
        isinstance(exponent.example, torch.SymInt)
        and hint(exponent.example) is not None
    )
    return whole and bool(t.shapes.guarded(bool, exponent.example >= 0))


def _result_followed(function: Any, args: Args) -> bool:
    """Return whether expressions follow what Python makes of the current numbers."""
    numbers = [
        hint(arg.example) if isinstance(arg, SymValue) else arg.obj for arg in args
    ]
    if None in numbers:  # data, which nobody knows
        return True
    try:
        found = function(*numbers)
    except Exception:  # Python's own error
        return False
    if type(found) is int:
        return bits_of_symbol(found) is not None
    if type(found) is float:
        return _factor(found)
    return type(found) is bool
