"""What numpy makes of arrays that are known: texts, and results of functions without a rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tc.compiler.capture import breaks
from tc.compiler.capture.array_memory import as_tensor
from tc.compiler.capture.values.arrays import ArrayValue, NumpyCall, constant_array
from tc.compiler.capture.values.base import Args, Kwargs, Value
from tc.compiler.capture.values.const import ConstValue, is_constant_object
from tc.compiler.capture.values.context_vars import TokenValue
from tc.compiler.capture.values.known_arrays import KnownScalar
from tc.compiler.capture.values.numpy_functions import NumpyFunctionValue
from tc.compiler.core.sources import Source

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter

#: the type of most functions of numpy
_DISPATCHER: Any = type(np.sum)
#: beginnings of names of functions that read or write files
_OF_FILES = ("load", "save", "from", "gen", "mem")


def is_foldable(obj: Any) -> bool:
    """Return whether an object is a function of numpy without effects, but on arrays."""
    kind: Any = type(obj)
    if kind not in (_DISPATCHER, np.ufunc):
        return False
    name = str(obj.__name__)
    return not name.startswith(_OF_FILES) and getattr(np, name, None) is obj


class FoldedFunctionValue(NumpyFunctionValue):
    """A function of numpy that is called on known arrays and constants only."""

    def call(self, t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
        call = NumpyCall(self.obj, args, kwargs, f"numpy.{self.name}")
        plain = all(map(_is_plain, call.operands()))
        if not plain or "out" in kwargs or not call.is_fixed(t):
            kind = f"{type(self.obj).__module__}.{type(self.obj).__qualname__}"
            self.cannot(breaks.UNSUPPORTED_CALL, f"np.{self.name} ({kind})")
        held: list[ArrayValue] = []
        said = call.ask(t, held)
        if said is None:  # numpy refuses these operands, or there is no example
            self.cannot(breaks.BUILTIN_CALL, f"{call.text}(), which refuses")
        copies = [np.array(one.known(t)) for one in held]
        for before, after in zip(copies, said.arrays, strict=True):
            if not np.array_equal(before, after, equal_nan=before.dtype.kind in "fc"):
                self.cannot(breaks.BUILTIN_CALL, f"{call.text}(), which writes")
        return self._value(t, said.result, said.views)

    def _value(
        self,
        t: Interpreter,
        result: Any,
        views: Callable[[Any], list[int]],
    ) -> Value:
        if isinstance(result, tuple | list) and type(result) in (tuple, list):
            items = [self._value(t, one, views) for one in result]
            return (
                t.values.new_tuple(items)
                if type(result) is tuple
                else t.values.list_of(items)
            )
        if not isinstance(result, np.ndarray):
            return t.python.folded(_given, result)
        try:
            as_tensor(result)
        except (TypeError, ValueError, RuntimeError):
            self.cannot(
                breaks.BUILTIN_CALL, f"numpy.{self.name}(), an array without a tensor"
            )
        if views(result) or type(result) is not np.ndarray:
            self.cannot(breaks.BUILTIN_CALL, f"numpy.{self.name}(), a view")
        return constant_array(t, result)


def wrap_foldable(t: Interpreter, obj: Any, source: Source) -> Value:
    """Return the value of a function that `is_foldable` accepts."""
    t.guards.add("ID", source, obj)
    return FoldedFunctionValue(obj, obj.__name__, source)


def _given(result: Any) -> Any:
    return result


def _is_plain(value: Value) -> bool:
    """Return whether an operand is an array, a number, a text or a type: no code of the program."""
    if isinstance(value, ArrayValue):
        return True
    return isinstance(value, ConstValue) and is_constant_object(value.constant())


def text_of(
    t: Interpreter, function: Callable[[Any], str], value: Value
) -> Value | None:
    """Return the text of a known array as numpy is set to print it; None for other values."""
    array = isinstance(value, ArrayValue) and not isinstance(value, KnownScalar)
    known = value.known(t) if array and isinstance(value, ArrayValue) else None
    if known is None:
        return None
    if any(isinstance(one, TokenValue) for one in t.effects.demanded):
        # perhaps of those that numpy's options are in, where they are as they were before
        value.cannot(
            breaks.UNSUPPORTED_CALL, "the text of an array in a changed context"
        )
    t.guards.ask_process_again(
        np.get_printoptions, "get_printoptions", np.get_printoptions()
    )
    return t.python.folded(function, known)
