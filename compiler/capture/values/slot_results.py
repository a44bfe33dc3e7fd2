"""What Python makes of the results of special methods that are written in Python.

A type's slots do not pass on what such a method returns: a negative length, a truth that is no
bool, a hash that is no int, an "iterator" without ``__next__`` are errors, and a hash is reduced
(the data model of Python's reference, "Special method names"). Python itself is asked, of a class
whose method returns the same.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tc.compiler.capture import breaks
from tc.compiler.capture.values.base import NotConstant, Value
from tc.compiler.capture.values.const import ConstValue
from tc.compiler.capture.values.lookup import MISSING, type_lookup
from tc.compiler.capture.values.tensor import SymValue
from tc.compiler.capture.values.texts import TextValue

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter

#: special method -> what calls it, and the type that its result must have
SLOTS: dict[str, tuple[Callable[[Any], Any], type]] = {
    "__bool__": (bool, bool),
    "__bytes__": (bytes, bytes),
    "__complex__": (complex, complex),
    "__float__": (float, float),
    "__format__": (format, str),
    "__fspath__": (os.fspath, str),
    "__hash__": (hash, int),
    "__index__": (operator.index, int),
    "__init__": (lambda made: None, type(None)),
    "__int__": (int, int),
    "__len__": (len, int),
    "__length_hint__": (operator.length_hint, int),
    "__repr__": (repr, str),
    "__str__": (str, str),
    "__trunc__": (int, int),
}


def slot_result(t: Interpreter, kind: type, name: str, result: Value) -> Value:
    """Return what Python makes of the result of a class's special method, or raise its error."""
    if name == "__iter__":
        if type_lookup(result.python_type(), "__next__") is MISSING:
            found = result.python_type().__name__
            t.python.raise_(
                TypeError, f"iter() returned non-iterator of type '{found}'"
            )
        return result
    if name not in SLOTS:
        return result
    use, wanted = SLOTS[name]
    if wanted is str and isinstance(result, TextValue):
        return result
    if name == "__len__":
        result = t.python.index(result)
    try:
        returned = result.constant()
    except NotConstant:
        returned = result.python_type()
        if isinstance(result, SymValue) and returned is wanted and name != "__hash__":
            negative = name == "__len__" and t.python.binary(
                "lt", result, ConstValue(0)
            ).truth(t)
            if not negative:
                return result
            returned = -1
        elif issubclass(returned, wanted):
            result.cannot(breaks.UNSUPPORTED_OP, f"{result.describe()} from {name}")
        else:
            returned = type(returned.__name__, (), {})()
    made = type(kind.__name__, (), {name: lambda *args: returned})
    return t.python.folded(lambda: use(made()))
