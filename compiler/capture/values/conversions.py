"""Handlers of the builtin functions of numbers and text."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from tc.compiler.capture import breaks
from tc.compiler.capture.values.arrays import ArrayValue
from tc.compiler.capture.values.base import Args, Kwargs, Value
from tc.compiler.capture.values.builtins import BUILTINS, Handler, builtin
from tc.compiler.capture.values.const import ConstValue
from tc.compiler.capture.values.lookup import MISSING, type_lookup
from tc.compiler.capture.values.objects import ObjectValue
from tc.compiler.capture.values.tensor import SymValue, TensorValue
from tc.compiler.capture.values.texts import written

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter


@builtin(bool)
def _bool(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    """Return the truth of a value; of a symbolic number a symbol."""
    if args and isinstance(args[0], SymValue):
        return t.output.call_torch(operator.ne, [args[0], ConstValue(0)], {})
    return ConstValue(args[0].truth(t) if args else False)


def _number(kind: type) -> Handler:
    """Return the handler of ``int`` or ``float``."""

    def convert(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
        if not args:
            return ConstValue(kind())
        value = args[0]
        if len(args) > 1:
            return t.python.folded(kind, *t.python.concrete_list(args))
        if isinstance(value, TensorValue | ArrayValue):
            value = value.method(t, f"__{kind.__name__}__", [], {})
        if isinstance(value, SymValue):
            if value.python_type() is kind:
                return value
            convert_symbol = symbolic_float if kind is float else math.trunc
            return t.output.call_torch(convert_symbol, [value], {})
        if isinstance(value, ObjectValue):
            names = [f"__{kind.__name__}__", "__index__"]
            if kind is int:
                names.append("__trunc__")
            lacking = [n for n in names if type_lookup(value.cls, n) is MISSING]
            name = next((n for n in names if n not in lacking), None)
            if name is None:
                if _has_bytes(value.obj):  # which may be digits
                    value.cannot(breaks.UNSUPPORTED_OP, f"{kind.__name__}()")
                # Python's error
                return t.python.folded(kind, type(value.cls.__name__, (), {})())
            returned = value.method(t, name, [], {})
            found = t.python.slot_result(value.cls, name, returned)
            return convert(t, [found], {})
        for name in (f"__{kind.__name__}__", "__index__"):
            if (own := value.call_own(t, name)) is not None:
                return convert(t, [own], {})
            if type_lookup(value.python_type(), name) is not MISSING:
                break
        return t.python.folded(kind, *t.python.concrete_list(args))

    return convert


def _has_bytes(obj: Any) -> bool:
    try:
        memoryview(obj)
    except TypeError:
        return False
    return True


def symbolic_float(number: Any) -> Any:
    """Return a symbolic number as a float; a function that graphs can name."""
    return torch.sym_float(number)  # type: ignore[no-untyped-call]


BUILTINS.add(id(int), _number(int))
BUILTINS.add(id(float), _number(float))


def _text(function: Callable[[Any], str]) -> Handler:
    """Return the handler of ``str``, ``repr`` or ``ascii``."""

    def convert(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
        if len(args) + len(kwargs) > 1:  # bytes, and how to decode them
            plain = t.python.concrete_list(args)
            return t.python.folded(function, *plain, **t.python.concrete_dict(kwargs))
        return t.python.convert_text(function, args[0]) if args else ConstValue("")

    return convert


for _converter in (str, repr, ascii):
    BUILTINS.add(id(_converter), _text(_converter))


def _digits(function: Callable[[Any], str]) -> Handler:
    """Return the handler of ``bin``, ``hex`` or ``oct``."""

    def convert(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
        if isinstance(args[0], SymValue):
            return written(t, function, args[0])
        if args[0].has_own("__index__"):
            return t.python.folded(function, t.python.concrete(t.python.index(args[0])))
        return t.python.folded(function, t.python.concrete(args[0]))

    return convert


for _writer in (bin, hex, oct):
    BUILTINS.add(id(_writer), _digits(_writer))


@builtin(math.prod)
def _prod(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    """Multiply one after the other: factors may be symbols or tensors."""
    total = kwargs.get("start", ConstValue(1))
    for item in args[0].each(t):
        total = t.python.binary("mul", total, item)
    return total


@builtin(math.fsum)
def _fsum(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    """Add numbers, which may be those of an iterator."""
    items = args[0].unpack(t)
    return t.python.folded(math.fsum, t.python.concrete_list(items))


@builtin(divmod)
def _divmod(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    """Return quotient and rest."""
    if any(isinstance(arg, TensorValue) for arg in args):  # tensors do not define it
        kinds = " and ".join(f"'{arg.python_type().__name__}'" for arg in args)
        t.python.raise_(TypeError, f"unsupported operand type(s) for divmod(): {kinds}")
    return t.python.divmod(*args)


@builtin(hash)
def _hash(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    """Return a hash, for which a class may have a method."""
    if len(args) == 1 and not kwargs:
        return t.python.hashed(args[0])
    given = t.python.concrete_list(args)
    named = t.python.concrete_dict(kwargs)
    return t.python.folded(hash, *given, **named)


@builtin(abs)
def _abs(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    """Apply the operator that ``abs`` is."""
    return t.python.unary("abs", args[0])


@builtin(pow)
def _pow(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    """Return a power; one with a modulus is decided."""
    if len(args) == 3:
        return t.python.folded(pow, *t.python.concrete_list(args))
    return t.python.binary("pow", args[0], args[1])


@builtin(round)
def _round(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    """Round; a symbolic number only to a whole one."""
    if isinstance(args[0], TensorValue):
        name = args[0].python_type().__name__
        t.python.raise_(TypeError, f"type {name} doesn't define __round__ method")
    if args[0].has_own("__round__"):
        return args[0].call_special(t, "__round__", args[1:], kwargs)
    if isinstance(args[0], SymValue) and len(args) == 1 and not kwargs:
        return t.output.call_torch(round, list(args), {})
    return t.python.folded(round, *t.python.concrete_list(args))


@builtin(format)
def _format(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    """Format a value by a specification, which is decided."""
    value, *rest = args
    spec = t.python.concrete(rest[0]) if rest else ""
    return t.python.format(value, spec)
