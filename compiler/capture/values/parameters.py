"""Matches the arguments of a call with the parameters of a function that is traced."""

from __future__ import annotations

import inspect
from itertools import islice
from typing import TYPE_CHECKING, Any

from tc.compiler.capture.values.base import Args, Kwargs, Value
from tc.compiler.capture.values.containers import TupleValue

if TYPE_CHECKING:
    from tc.compiler.capture.values.functions import FunctionValue
    from tc.compiler.capture.values.interfaces import Interpreter


def bind(t: Interpreter, function: FunctionValue, args: Args, kwargs: Kwargs) -> dict[str, Value]:
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
            if name not in function.kwdefaults:
                _raise_refusal(t, function, args, kwargs)
            found[name] = function.kwdefaults[name]
    if has_rest:
        found[names[count + kwonly]] = TupleValue(list(args[count:]))
    if has_named:
        found[names[count + kwonly + has_rest]] = t.values.dict_of(extra.items())
    return found


def _raise_refusal(t: Interpreter, function: FunctionValue, args: Args, kwargs: Kwargs) -> None:
    """Raise the TypeError of a call that does not match, in Python's words for that function."""
    code = function.code
    count, kwonly = code.co_argcount, code.co_kwonlyargcount
    names = iter(code.co_varnames)
    required = count - len(function.defaults.slots)
    parts: list[str] = []
    for index in range(count):
        parts.append(next(names) + "=0" * (index >= required))
        if index + 1 == code.co_posonlyargcount:
            parts.append("/")
    keyword_only = [f"{n}=0" if n in function.kwdefaults else n for n in islice(names, kwonly)]
    if code.co_flags & inspect.CO_VARARGS:
        parts.append(f"*{next(names)}")
    elif keyword_only:
        parts.append("*")
    parts += keyword_only
    if code.co_flags & inspect.CO_VARKEYWORDS:
        parts.append(f"**{next(names)}")
    stand_in: Any = eval(f"lambda {', '.join(parts)}: None")
    stand_in.__qualname__ = function.name
    t.python.fold(stand_in, *(None for _ in args), **dict.fromkeys(kwargs))
