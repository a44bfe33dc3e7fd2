"""`inspect.signature` under capture: worked out once from the function, not by tracing inspect."""

from __future__ import annotations

import inspect
import types
from typing import TYPE_CHECKING, Any

from tc.compiler.capture import breaks
from tc.compiler.capture.torchfns import handles
from tc.compiler.capture.values.base import Args, Kwargs, Value
from tc.compiler.capture.values.functions import FunctionValue, MethodValue
from tc.compiler.capture.values.objects import ClassValue
from tc.compiler.core.sources import AttrSource

if TYPE_CHECKING:
    from tc.compiler.capture.tracer import Tracer


@handles(inspect.signature)
def _signature(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if kwargs or len(args) != 1:
        raise breaks.GraphBreak(breaks.UNSUPPORTED_CALL, "inspect.signature() with options")
    value, bound = args[0], 0
    while isinstance(value, MethodValue):
        value, bound = value.function, bound + 1
    if isinstance(value, FunctionValue):
        function = _real_function(t, value)
    elif isinstance(value, ClassValue):
        function = value.obj
    else:
        raise breaks.GraphBreak(breaks.UNSUPPORTED_CALL, f"signature of {value.describe()}")
    for _ in range(bound):
        function = types.MethodType(function, None.__class__)
    return t.known(t.fold(inspect.signature, function))


def _real_function(t: Tracer, value: FunctionValue) -> Any:
    """Return the function, or one like it where traced code makes it; guard on its defaults."""
    if value.obj is None:
        made = types.FunctionType(
            value.code,
            value.module_globals,
            value.name,
            tuple(t.concrete(default) for default in value.defaults.values(t)),
            tuple(types.CellType() for _ in value.closure),
        )
        made.__kwdefaults__ = {name: t.concrete(v) for name, v in value.kwdefaults.items()}
        return made
    if value.source is not None and value.source.root not in t.aliases:
        for name in ("__defaults__", "__kwdefaults__"):
            t.guard("ID", AttrSource(value.source, name), getattr(value.obj, name))
    return value.obj
