"""Constant folding: what Python runs during a capture, and the program's own code never is.

Builtin functions call methods that a program may define: ``len(cls)`` that of a metaclass,
``issubclass`` a ``__subclasshook__``, ``str`` the ``__str__`` of an enumeration's member. During a
capture their reads would leave no guards, and their effects would happen once a capture in place of
once a call. Only the tracer runs such code. Which functions a builtin calls is not known before, so
Python reports the calls while it folds (``sys.setprofile``), and the first of a function of the
program ends the fold.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tc.compiler.capture import breaks
from tc.compiler.capture.guards.facts import is_library

#: builtin functions, and types whose operations run no code of a program
_BUILTIN = (types.BuiltinFunctionType, types.MethodWrapperType)
_PLAIN = frozenset((bool, bytes, complex, float, int, str, type(None)))
#: besides Python's own and PyTorch: what the tracer itself calls
_OWN = frozenset(("tc", "numpy", "sympy"))


def name_of(function: Any) -> str:
    """Return what messages call a function."""
    return str(getattr(function, "__name__", function))


def _is_users(frame: types.FrameType) -> bool:
    """Return whether a frame runs code of the program.

    Python's own library generates the modules of named tuples.
    """
    module = frame.f_globals.get("__name__")
    package = str(module).partition(".")[0]
    generated = package.startswith("namedtuple_")
    return not (generated or package in _OWN or is_library(package))


def without_user_code(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    """Call a function, which may run no function of the program.

    Where a profiler is at work already (there can be but one), calls are not watched.

    Raises:
        GraphBreak: it would.
    """
    operands = (*args, *kwargs.values())
    owner = getattr(function, "__self__", None)
    if not isinstance(owner, types.ModuleType):
        operands = (owner, *operands)
    builtin = isinstance(function, _BUILTIN) or any(function is kind for kind in _PLAIN)
    plain = builtin and all(type(one) in _PLAIN for one in operands)
    if plain or sys.getprofile() is not None:
        return function(*args, **kwargs)
    refused: list[breaks.GraphBreak] = []

    def watch(frame: types.FrameType, event: str, arg: Any) -> None:
        if event == "call" and not refused and _is_users(frame):
            detail = f"{frame.f_code.co_qualname}, which {name_of(function)} calls,"
            refused.append(breaks.GraphBreak(breaks.UNSUPPORTED_CALL, detail))
            raise refused[0]

    sys.setprofile(watch)
    try:
        return function(*args, **kwargs)
    finally:
        sys.setprofile(None)
        # also where the caller has taken it for an answer, as `hasattr` does
        if refused:
            raise refused[0]
