"""Errors of container methods, found by calling the real method on a stand-in.

If a method of a known container fails, or its arguments are invalid, the method is called on a
stand-in, a container of the same kind and length, so that Python's own error is raised.
"""

from __future__ import annotations

import collections
import functools
import re
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tc.compiler.capture.breaks import GraphBreak
from tc.compiler.capture.values.base import Args, Kwargs, Lazy, NotConstant, Value

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter

#: exceptions of handlers that get unexpected arguments
UNEXPECTED = (TypeError, ValueError, IndexError, KeyError, OverflowError)
SEQUENCES = (list, tuple, collections.deque)


#: a fresh object of each kind whose methods handlers implement
EMPTY: dict[type, Callable[[], Any]] = {
    **{
        kind: kind
        for kind in (list, tuple, dict, set, frozenset, str, bytes, int, float)
    },
    **{kind: kind for kind in (collections.deque, collections.OrderedDict)},
    collections.defaultdict: collections.defaultdict,
    range: lambda: range(0),
}
#: how Python refuses the number of arguments, or keywords
_REFUSAL = re.compile(
    r"(takes|expected) .*argument.*(given|got|keyword)|no keyword arguments"
    r"|missing required argument|invalid keyword argument"
)


@functools.cache
def refusal(kind: type, name: str, count: int, named: tuple[str, ...]) -> str | None:
    """Return what Python says of a method that is called with so many arguments; None: nothing.

    Python's own method is asked, of a fresh object and with objects that are good for nothing.
    """
    base = next((base for base in kind.__mro__ if base in EMPTY), object)
    if name not in dir(base) or base is object:
        return None
    try:
        getattr(EMPTY[base](), name)(
            *[object()] * count, **{key: object() for key in named}
        )
    except TypeError as error:
        return str(error) if _REFUSAL.search(str(error)) else None
    except Exception:
        return None  # it took them
    return None


class Opaque:
    """A stand-in for a value that is no constant; it equals only itself."""


def raise_as_python(
    t: Interpreter, owner: Value, name: str, args: Args, kwargs: Kwargs
) -> None:
    """Raise the error of Python's own method, if any, into the traced code."""
    kind = owner.python_type()
    stand_in: Any
    if kind in SEQUENCES:
        slots: Any = getattr(owner, "slots", ())
        stand_in = kind(
            None if isinstance(slot, Lazy) else _plain(slot) for slot in slots
        )
    elif kind in (dict, set):
        stand_in = kind()
    else:
        return
    method = getattr(stand_in, name)
    given = [_plain(value) for value in args]
    named = {key: _plain(value) for key, value in kwargs.items()}
    t.python.fold(method, *given, **named)


def call_handler(
    t: Interpreter,
    function: Any,
    handler: Callable[..., Value],
    args: Args,
    kwargs: Kwargs,
) -> Value:
    """Call the handler of a function without side effects.

    If it fails, raise Python's own error.
    """
    try:
        return handler(t, args, kwargs)
    except UNEXPECTED:
        with suppress(GraphBreak):  # not all arguments are constants
            plain = t.python.concrete_list(args)
            t.python.fold(function, *plain, **t.python.concrete_dict(kwargs))
        raise


def _plain(value: Value) -> Any:
    try:
        return value.constant()
    except NotConstant:
        return Opaque()
