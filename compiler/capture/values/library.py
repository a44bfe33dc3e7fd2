"""Immutable objects of libraries: regular expressions, matches, version texts."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any

from tc.compiler.capture import breaks
from tc.compiler.capture.guards.facts import is_library
from tc.compiler.capture.traceable import substitute
from tc.compiler.capture.values.base import Args, Kwargs, Value
from tc.compiler.capture.values.const import (
    METHODS_OF_CONSTANTS,
    ConstValue,
    is_constant_object,
)
from tc.compiler.capture.values.handlers import Handler, handles
from tc.compiler.capture.values.lookup import type_lookup
from tc.compiler.core.sources import Source

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter


def is_unchanging(obj: Any) -> bool:
    """Return whether an object is a pattern, a match, or another immutable object of a library."""
    if issubclass(type(obj), re.Pattern | re.Match) or obj is sys.version_info:
        return True
    cls = type(obj)
    if type(cls).__name__ == "pybind11_type" and hasattr(cls, "__members__"):
        return True  # a member of an enumeration in C++
    return (
        issubclass(type(obj), str)
        and type(obj) is not str
        and is_library(type(obj).__module__)
    )


#: containers whose contents the tracer copies, as `known` does
_COPIED = (list, tuple, dict, set, frozenset)
#: descriptors, which hold functions for as long as they exist
_DESCRIPTORS = (property, classmethod, staticmethod)


def may_change(obj: Any) -> bool:
    """Return whether an object has state, as far as its class shows: it is no value by equality.

    Functions, descriptors, classes, containers that the tracer copies and what `is_unchanging`
    knows have none.
    """
    hashed: Any = type_lookup(type(obj), "__hash__")
    by_equality = hashed is not None and hashed is not object.__hash__
    if by_equality or callable(obj) or isinstance(obj, (*_COPIED, *_DESCRIPTORS)):
        return False
    return not (is_constant_object(obj) or is_unchanging(obj))


def wrap_unchanging(t: Interpreter, obj: Any, source: Source) -> Value:
    """Return the value of an immutable object: a constant, compared by identity."""
    t.guards.add("ID", source, obj)
    return ConstValue(obj, source)


def _folded(function: Any) -> Handler:
    def run(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
        plain = t.python.concrete_list(args)
        named = t.python.concrete_dict(kwargs)
        if any(callable(one) for one in (*plain, *named.values())):
            raise breaks.GraphBreak(breaks.BUILTIN_CALL, f"re.{function.__name__}()")
        return t.python.folded(function, *plain, **named)

    return run


def _substituted(
    t: Interpreter,
    name: str,
    pattern: Any,
    args: Args,
    kwargs: Kwargs,
) -> Value:
    """Return ``pattern.sub(…)`` or ``pattern.subn(…)``; a function in place of a text is traced."""
    given = {**dict(zip(("repl", "string", "count"), args, strict=False)), **kwargs}
    by = given.get("repl")
    if by is None or (by.is_constant() and not callable(by.constant())):
        plain = t.python.concrete_list(args)
        named = t.python.concrete_dict(kwargs)
        return t.python.folded(getattr(pattern, name), *plain, **named)
    found = t.inline_object(substitute, [ConstValue(pattern)], given)
    return found if name == "subn" else found.item(t, ConstValue(0))


def _method_of_pattern(name: str) -> Any:
    return lambda t, obj, args, kwargs: _substituted(t, name, obj, args, kwargs)


def _function_of_pattern(name: str) -> Handler:
    def run(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
        names = ("pattern", "repl", "string", "count", "flags")
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        flags = given.pop("flags", ConstValue(0))
        compiled = [given.pop("pattern", ConstValue("")), flags]
        pattern = t.python.fold(re.compile, *t.python.concrete_list(compiled))
        return _substituted(t, name, pattern, [], given)

    return run


for _name, _substitute in (("sub", re.sub), ("subn", re.subn)):
    METHODS_OF_CONSTANTS[re.Pattern, _name] = _method_of_pattern(_name)
    handles(_substitute)(_function_of_pattern(_name))


for _function in (
    re.compile,
    re.match,
    re.fullmatch,
    re.search,
    re.split,
    re.findall,
    re.escape,
):
    handles(_function)(_folded(_function))
