"""Decides whether a call that is left to Python may look at the frames that it is called from.

Such a call needs the frames that eager execution has; any other runs as well in the frame under
capture, of which the inlined frames are parts.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Iterator
from typing import Any

from tc.compiler.capture.bytecode.by_code import cached_by_code
from tc.compiler.capture.values.base import OpaqueMethod, Value
from tc.compiler.capture.values.functions import MethodValue
from tc.compiler.capture.values.lookup import type_lookup

#: names by which code gets at frames of the stack
OF_FRAMES = frozenset(
    ("_getframe", "_getframemodulename", "currentframe", "_current_frames", "f_back")
)
#: functions in C that look at the frame they are called from, or at those above it
BUILTINS = (
    locals,
    vars,
    dir,
    eval,
    exec,
    globals,
    sys._getframe,
    sys._current_frames,
    vars(sys).get("_getframemodulename", sys._getframe),
)
#: how deep calls are followed
DEPTH = 4


def called_object(called: Value) -> Any:
    """Return the object that is called, without its owner; None if there is none yet."""
    while isinstance(called, MethodValue):
        called = called.function
    if isinstance(called, OpaqueMethod):
        return type_lookup(type(called.owner.obj), called.name)
    return called.obj


def may_look(called: Any) -> bool:
    """Return whether a call of an object may look at the frames of its callers.

    This is read off the names in its code, in that of its module, and in what those names are.
    """
    if isinstance(called, types.BuiltinFunctionType):
        return called in BUILTINS
    function = _function_of(called)
    return function is not None and code_may_look(
        function.__code__, function.__globals__
    )


def _function_of(called: Any) -> types.FunctionType | None:
    """Return the Python function that a call runs first, or None."""
    while isinstance(called, functools.partial | types.MethodType):
        called = (
            called.func if isinstance(called, functools.partial) else called.__func__
        )
    if isinstance(called, type):
        made = (vars(one) for one in called.__mro__[:-1])
        found = next(
            (v[n] for v in made for n in ("__new__", "__init__") if n in v), None
        )
        called = found.__func__ if isinstance(found, staticmethod) else found
    elif not isinstance(called, types.FunctionType):
        called = type_lookup(type(called), "__call__")
    if isinstance(called, types.FunctionType):
        inner = vars(called).get("__wrapped__")
        return (
            _function_of(inner) if inner is not None and inner is not called else called
        )
    return None


def code_may_look(
    code: types.CodeType, space: dict[str, Any], depth: int = DEPTH
) -> bool:
    """Return whether code with these globals, or what it calls, may look at frames."""
    if _module_looks(code, space):
        return True
    if depth == 0:
        return False
    called = _named(code, space)
    return any(
        code_may_look(one.__code__, one.__globals__, depth - 1) for one in called
    )


def _named(code: types.CodeType, space: dict[str, Any]) -> Iterator[types.FunctionType]:
    """Yield the functions of other modules that code names: globals, and attributes of modules."""
    names = names_in(code)
    for name in names:
        value = space.get(name)
        if isinstance(value, types.ModuleType):
            found = [vars(value).get(one) for one in names]
        else:
            found = [value]
        for one in found:
            inner = None if one is None else _function_of(one)
            if inner is not None and inner.__globals__ is not space:
                yield inner


def _module_looks(code: types.CodeType, space: dict[str, Any]) -> bool:
    """Return whether code, or any other of its module, names frames."""
    if OF_FRAMES & names_in(code):
        return True
    home = space.get("__name__")
    for value in list(space.values()):
        if (
            not issubclass(type(value), types.FunctionType | type)
            or value.__module__ != home
        ):
            continue
        for one in vars(value).values() if isinstance(value, type) else (value,):
            inner = one.__func__ if isinstance(one, staticmethod | classmethod) else one
            if isinstance(inner, types.FunctionType) and OF_FRAMES & names_in(
                inner.__code__
            ):
                return True
    return False


@cached_by_code(2048)
def names_in(code: types.CodeType) -> frozenset[str]:
    """Return the names of globals and attributes in code and in the functions that it makes."""
    inner = [names_in(one) for one in code.co_consts if isinstance(one, types.CodeType)]
    return frozenset(code.co_names).union(*inner)
