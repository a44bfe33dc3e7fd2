"""Errors of methods of containers: those that Python raises, by asking Python.

Where what is known of a container says that a method fails, or where its arguments do not fit, the
method itself is called on a stand-in: a container of the same kind and length.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tc.compiler.capture.breaks import GraphBreak
from tc.compiler.capture.values.base import Args, Kwargs, Lazy, NotConstant, Value

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter

#: what handlers of methods raise when they are given what they do not expect
UNEXPECTED = (TypeError, ValueError, IndexError, KeyError, OverflowError)
SEQUENCES = (list, tuple, collections.deque)


class Opaque:
    """Stands for a value that is no constant; it equals nothing but itself."""


def raise_as_python(t: Interpreter, owner: Value, name: str, args: Args, kwargs: Kwargs) -> None:
    """Raise into the traced code what Python's own method raises, if it does raise."""
    kind = owner.python_type()
    stand_in: Any
    if kind in SEQUENCES:
        slots: Any = getattr(owner, "slots", ())
        stand_in = kind(None if isinstance(slot, Lazy) else _plain(slot) for slot in slots)
    elif kind in (dict, set):
        stand_in = kind()
    else:
        return
    given = [_plain(value) for value in args]
    t.python.fold(getattr(stand_in, name), *given, **{key: _plain(v) for key, v in kwargs.items()})


def call_handler(
    t: Interpreter, function: Any, handler: Callable[..., Value], args: Args, kwargs: Kwargs
) -> Value:
    """Call what stands for a function without side effects; where that fails, as Python does."""
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
