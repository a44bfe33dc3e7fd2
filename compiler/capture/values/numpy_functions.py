"""Functions of numpy that capture puts into the graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tc.compiler.capture import breaks
from tc.compiler.capture.values.array_calls import numpy_call
from tc.compiler.capture.values.arrays import (
    ArrayValue,
    NumpyCall,
    arguments,
    record,
)
from tc.compiler.capture.values.base import Args, KnownObject, Kwargs, Value
from tc.compiler.capture.values.const import ConstValue
from tc.compiler.core.sources import Source

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter, ResidualInterface

#: functions that return an array even if the result has no dimension
MAKERS = frozenset(
    (
        "array",
        "asarray",
        "ascontiguousarray",
        "zeros",
        "ones",
        "empty",
        "full",
        "reshape",
        "copy",
    )
)
#: functions that accept types in place of arrays
ON_TYPES = frozenset(
    (
        "issubdtype",
        "can_cast",
        "promote_types",
        "result_type",
        "min_scalar_type",
        "isscalar",
    )
)
#: functions that write to their first operand
FILLS = frozenset(("copyto", "fill_diagonal", "place", "put", "putmask"))


class NumpyFunctionValue(KnownObject):
    """A function of numpy that ``torch._numpy`` implements on tensors."""

    noun = "a numpy function"

    def __init__(self, obj: Any, name: str, source: Source | None) -> None:
        super().__init__(obj, source)
        self.name = name

    def describe(self) -> str:
        return f"numpy.{self.name}"

    def attr(self, t: Interpreter, name: str) -> Value:
        return t.python.folded(getattr, self.obj, name)

    def call(self, t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
        if self.name.startswith("random."):
            self.cannot(breaks.of_call(f"numpy.{self.name}"), f"numpy.{self.name}()")
        operands = (*args, *kwargs.values())
        if self.name in ON_TYPES and all(one.is_constant() for one in operands):
            plain = t.python.concrete_list(args)
            named = t.python.concrete_dict(kwargs)
            return t.python.folded(self.obj, *plain, **named)
        given = arguments(t, args, kwargs)
        out = kwargs.get("out")
        written = [out]
        if self.name in FILLS:
            written += args[:1]
        arrays = (one for one in written if isinstance(one, ArrayValue))
        if not all(one.writeable for one in arrays):
            self.cannot(
                breaks.UNSUPPORTED_CALL, f"numpy.{self.name} into a read-only array"
            )
        t.guards.aliasing_matters |= out is not None
        call = NumpyCall(self.obj, args, kwargs, f"numpy.{self.name}")
        found = record(
            t, numpy_call, (self.name, *given), self.name not in MAKERS, call
        )
        if self.name in FILLS:
            return ConstValue(None)
        return out if isinstance(out, ArrayValue) else found

    def rebuild(self, r: ResidualInterface) -> None:
        r.load_object(self.obj)
