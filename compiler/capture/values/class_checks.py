"""``isinstance`` and ``issubclass`` of values, guarded if their results can change.

The guard on definitions covers a class, its bases and its attributes. Other results come from the
classes' own rules: abstract classes have a registry, protocols inspect the instance, and
metaclasses may define ``__instancecheck__``, which is traced.
"""

from __future__ import annotations

import abc
import types
from typing import TYPE_CHECKING, Any

from tc.compiler.capture.guards.rows import Predicate
from tc.compiler.capture.values.base import Args, Kwargs, Value
from tc.compiler.capture.values.builtins import builtin
from tc.compiler.capture.values.const import ConstValue
from tc.compiler.capture.values.objects import ObjectValue, is_library, type_lookup
from tc.compiler.capture.values.tensor import TensorValue
from tc.compiler.core.sources import Source

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter

PLAIN_CHECK = type.__dict__["__instancecheck__"]


@builtin(isinstance)
def _isinstance(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    classes = t.python.classes(args[1])
    kind = args[0].python_type()
    real = args[0].obj
    own = _checked_by_users(t, args[0], classes)
    if own is not None:
        return own
    if isinstance(args[0], TensorValue | ObjectValue) and real is not None:
        return t.python.folded(isinstance, real, classes)
    if isinstance(args[0], ConstValue):
        return t.python.folded(isinstance, args[0].obj, classes)
    flat = classes if isinstance(classes, tuple) else (classes,)
    own_check = any(type_lookup(type(c), "__instancecheck__") is not PLAIN_CHECK for c in flat)
    if own_check and isinstance(args[0], TensorValue):
        return t.python.folded(isinstance, args[0].example, classes)
    return t.python.folded(issubclass, kind, classes)


def _checked_by_users(t: Interpreter, value: Value, classes: Any) -> Value | None:
    """Return the result of a class's ``__instancecheck__``, or None if it has none in Python.

    The result for an abstract class or a protocol may change, and is guarded here.
    """
    found: bool | None = None
    for cls in classes if isinstance(classes, tuple) else (classes,):
        check = type_lookup(type(cls), "__instancecheck__")
        if isinstance(cls, abc.ABCMeta):
            t.guards.definitions.register(value.python_type(), cls)
        if getattr(cls, "_is_protocol", False) and value.source is not None:
            _ask_protocol_again(t, value, value.source, cls)
        elif isinstance(check, types.FunctionType) and not is_library(check.__module__):
            found = bool(found) or t.inline_object(check, [t.values.known(cls), value]).truth(t)
        elif isinstance(classes, tuple) and found is not None:
            found = found or _isinstance(t, [value, t.values.known(cls)], {}).truth(t)
    return None if found is None else ConstValue(found)


def _ask_protocol_again(t: Interpreter, value: Value, source: Source, cls: type) -> None:
    real = value.obj
    if real is not None:  # a protocol inspects the attributes of the instance
        answer = isinstance(real, cls)
        text = f"isinstance({{}}, {cls.__qualname__}) is {answer}"
        check = Predicate(text, lambda found: isinstance(found, cls) is answer)
        t.guards.add("CUSTOM", source, check)


@builtin(issubclass)
def _issubclass(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    classes = t.python.classes(args[1])
    for cls in classes if isinstance(classes, tuple) else (classes,):
        if isinstance(cls, abc.ABCMeta):
            t.guards.definitions.register(t.python.concrete(args[0]), cls)
    return t.python.folded(issubclass, t.python.concrete(args[0]), t.python.classes(args[1]))
