"""Matches the arguments of a call with the parameters of a function that is traced."""

from __future__ import annotations

import inspect
import types
from typing import TYPE_CHECKING

from tc.compiler.capture.values.base import Args, Kwargs, Value
from tc.compiler.capture.values.const import ConstValue
from tc.compiler.capture.values.containers import TupleValue

if TYPE_CHECKING:
    from tc.compiler.capture.values.functions import FunctionValue
    from tc.compiler.capture.values.interfaces import Interpreter


def bind(
    t: Interpreter, function: FunctionValue, args: Args, kwargs: Kwargs
) -> dict[str, Value]:
    """Match arguments with parameters, as a call does; raises TypeError into the traced code."""
    code = function.code
    count, kwonly = code.co_argcount, code.co_kwonlyargcount
    names = code.co_varnames
    positional, keyword_only = names[:count], names[count : count + kwonly]
    has_rest = bool(code.co_flags & inspect.CO_VARARGS)
    has_named = bool(code.co_flags & inspect.CO_VARKEYWORDS)
    found: dict[str, Value] = dict(zip(positional, args, strict=False))
    if len(args) > count and not has_rest:
        _raise_refusal(t, function, args, kwargs)
    extra: dict[str, Value] = {}
    for name, value in kwargs.items():
        accepted = name in positional[code.co_posonlyargcount :] or name in keyword_only
        if accepted and name not in found:
            found[name] = value
        elif accepted or not has_named:
            _raise_refusal(t, function, args, kwargs)
        else:
            extra[name] = value
    defaults = function.defaults
    first_default = count - len(defaults.slots)
    for index, name in enumerate(positional):
        if name not in found:
            if index < first_default:
                _raise_refusal(t, function, args, kwargs)
            found[name] = defaults.at(t, index - first_default)
    for name in keyword_only:
        if name not in found:
            named, key = function.kwdefaults, ConstValue(name)
            if named is None or not named.has(t, key):
                _raise_refusal(t, function, args, kwargs)
            else:
                found[name] = named.at(t, name)
    if has_rest:
        found[names[count + kwonly]] = TupleValue(list(args[count:]))
    if has_named:
        found[names[count + kwonly + has_rest]] = t.values.dict_of(extra.items())
    return found


def _raise_refusal(
    t: Interpreter, function: FunctionValue, args: Args, kwargs: Kwargs
) -> None:
    """Raise Python's TypeError of a call that does not match, before the code would run."""
    code = function.code
    defaults = tuple(None for _ in function.defaults.slots)
    cells = tuple(types.CellType() for _ in code.co_freevars)
    stand_in = types.FunctionType(code, {}, function.name, defaults, cells)
    named = function.kwdefaults
    if named is not None:
        stand_in.__kwdefaults__ = dict.fromkeys(t.python.concrete_list(named.keys(t)))
    stand_in.__qualname__ = function.name
    t.python.fold(stand_in, *(None for _ in args), **dict.fromkeys(kwargs))
