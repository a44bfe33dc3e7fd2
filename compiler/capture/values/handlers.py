"""The table of functions that the tracer handles itself, by identity or by name."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tc.compiler.capture.values.base import Args, Kwargs, Value
from tc.compiler.core.table import Table

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter

Handler = Callable[["Interpreter", Args, Kwargs], Value]
#: function, by identity -> handler
HANDLERS: Table[int, Handler] = Table("torch functions")
#: functions of torch._dynamo that PyTorch's own code calls; it is not imported for them
BY_NAME: Table[str, Handler] = Table("torch functions by name")
_KEPT: list[Any] = []


def handles(*functions: Any) -> Callable[[Handler], Handler]:
    """Register a handler for functions."""

    def register(handler: Handler) -> Handler:
        for function in functions:
            if function is not None and id(function) not in HANDLERS:
                HANDLERS.add(id(function), handler)
                _KEPT.append(function)
        return handler

    return register


def recorded(function: Any) -> Handler:
    """Return the handler of a function of which the graph gets a call as it is."""
    return lambda t, args, kwargs: t.output.call_torch(function, args, kwargs)


def handler_of(obj: Any) -> Handler | None:
    """Return the handler of a function, if it has one."""
    found = HANDLERS.get(id(obj))
    if found is None and isinstance(obj, types.FunctionType):
        found = BY_NAME.get(f"{obj.__module__}.{obj.__qualname__}")
    return found
