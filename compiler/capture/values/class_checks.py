"""``isinstance`` and ``issubclass`` of values, guarded if their results can change.

The guard on definitions covers a class, its bases and its attributes. Other results come from the
classes' own rules: abstract classes have a registry, protocols inspect the instance, and
metaclasses may define ``__instancecheck__`` and ``__subclasscheck__``, which are traced.
"""

from __future__ import annotations

import abc
import functools
import itertools
import weakref
from typing import TYPE_CHECKING, Any

import torch

from tc.compiler.capture import breaks
from tc.compiler.capture.guards.rows import Predicate
from tc.compiler.capture.values.base import Args, Kwargs, Raised, Value
from tc.compiler.capture.values.builtins import builtin
from tc.compiler.capture.values.const import ConstValue
from tc.compiler.capture.values.handlers import BY_NAME
from tc.compiler.capture.values.lookup import MISSING, type_lookup, users_slot
from tc.compiler.capture.values.objects import ObjectValue
from tc.compiler.capture.values.tensor import TensorValue
from tc.compiler.core.sources import Source

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter

#: what classes inherit from `type`, whose metaclass has no rules of its own
PLAIN_CHECK = type.__dict__["__instancecheck__"]
PLAIN_SUBCLASS_CHECK = type.__dict__["__subclasscheck__"]


@builtin(isinstance)
def _isinstance(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    value = args[0]
    classes = t.python.classes(args[1])
    kind = value.python_type()
    real = value.obj
    own = _checked_by_users(t, value, classes)
    if own is not None:
        return own
    if _reads_as_it_says(value) and not any(map(_has_own_check, _flat(classes))):
        return ConstValue(_is_of(t, value, _flat(classes)))
    followed = isinstance(value, TensorValue | ObjectValue) and real is not None
    # of a tensor that is not followed, too, a mark says whether it is a parameter
    if followed or isinstance(real, torch.Tensor):
        return t.python.folded(isinstance, real, classes)
    if isinstance(value, ConstValue):
        return t.python.folded(isinstance, value.obj, classes)
    if isinstance(value, TensorValue) and any(
        _has_own_check(cls) for cls in _flat(classes)
    ):
        return t.python.folded(isinstance, value.example, classes)
    if kind in weakref.ProxyTypes:  # which say that they are of another class
        value.cannot(breaks.UNSUPPORTED_CALL, f"isinstance() of {value.describe()}")
    return t.python.folded(issubclass, kind, classes)


def _flat(classes: Any) -> tuple[type, ...]:
    """Return the second argument of ``isinstance``, which may have tuples in tuples, as one."""
    if not isinstance(classes, tuple):
        return (classes,)
    parts = map(_flat, classes)
    return tuple(itertools.chain.from_iterable(parts))


def _has_own_check(cls: type) -> bool:
    """Return whether the metaclass of a class overrides ``__instancecheck__``."""
    check = type_lookup(type(cls), "__instancecheck__")
    return check is not PLAIN_CHECK


def _reads_as_it_says(value: Value) -> bool:
    """Return whether the class of an object defines how its attributes are read."""
    kind = value.python_type()
    return users_slot(kind, "__getattribute__") is not MISSING


def _is_of(t: Interpreter, value: Value, classes: tuple[type, ...]) -> bool:
    """Ask an object for its class as Python does where its type is none of the classes."""
    if not set(value.python_type().__mro__).isdisjoint(classes):
        return True
    try:
        named = value.attr(t, "__class__").obj
    except Raised as raised:
        if not issubclass(raised.value.python_type(), AttributeError):
            raise
        return False
    return isinstance(named, type) and not set(named.__mro__).isdisjoint(classes)


def _checked_by_users(t: Interpreter, value: Value, classes: Any) -> Value | None:
    """Return the result of a class's ``__instancecheck__``, or None if it has none in Python.

    The result for an abstract class or a protocol may change, and is guarded here.
    """
    found: bool | None = None
    for cls in _flat(classes):
        if value.python_type() is cls:  # of which Python asks no metaclass
            found = True
            continue
        check = users_slot(type(cls), "__instancecheck__")
        if isinstance(cls, abc.ABCMeta):
            _guard_registered(t, value.python_type(), cls)
        if getattr(cls, "_is_protocol", False) and value.source is not None:
            _ask_protocol_again(t, value, value.source, cls)
        elif check is not MISSING:
            if not found:
                known = t.values.known(cls)
                result = known.call_special(t, "__instancecheck__", [value])
                found = result.truth(t)
        elif isinstance(classes, tuple) and found is False:
            result = _isinstance(t, [value, t.values.known(cls)], {})
            found = result.truth(t)
    return None if found is None else ConstValue(found)


def _guard_registered(t: Interpreter, cls: type, abstract: type) -> None:
    """Guard on whether a class is registered with an abstract class."""
    answer = t.python.fold(issubclass, cls, abstract)
    t.guards.definitions.register(cls, abstract, answer)


def _ask_protocol_again(
    t: Interpreter, value: Value, source: Source, cls: type
) -> None:
    if value.obj is None:
        return
    # A protocol inspects the attributes of the instance.
    if t.effects.attributes_of(value):
        value.cannot(
            breaks.UNSUPPORTED_CALL,
            f"isinstance() of {value.describe()}, changed before",
        )
    result = t.python.fold(isinstance, value.obj, cls)
    text = f"isinstance({{}}, {cls.__qualname__}) is {result}"
    check = Predicate(text, lambda found: isinstance(found, cls) is result)
    t.guards.add("CUSTOM", source, check)


@builtin(issubclass)
def _issubclass(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    classes = t.python.classes(args[1])
    flat = _flat(classes)
    if any(map(_checks_subclasses, flat)):
        # Python asks one class after the other, until one says yes.
        for cls in flat:
            if _is_subclass(t, args[0], cls):
                return ConstValue(True)
        return ConstValue(False)
    subclass = t.python.concrete(args[0])
    for cls in flat:
        if isinstance(cls, abc.ABCMeta):
            _guard_registered(t, subclass, cls)
    return t.python.folded(issubclass, subclass, classes)


def _checks_subclasses(cls: type) -> bool:
    """Return whether the program defines how the subclasses of a class are found."""
    return users_slot(type(cls), "__subclasscheck__") is not MISSING


def _is_subclass(t: Interpreter, subclass: Value, cls: type) -> bool:
    known = t.values.known(cls)
    if _checks_subclasses(cls):
        found = known.call_special(t, "__subclasscheck__", [subclass])
    else:
        found = _issubclass(t, [subclass, known], {})
    return found.truth(t)


@builtin(PLAIN_CHECK)
def _plain_check(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    """Trace ``type.__instancecheck__``, which asks no metaclass."""
    cls, value = args
    kind = t.python.concrete(cls)
    if not isinstance(kind, type):
        t.python.fold(PLAIN_CHECK, kind, None)  # Python's own error
    found = _is_of(t, value, (kind,))
    return ConstValue(found)


@builtin(PLAIN_SUBCLASS_CHECK)
def _plain_subclass_check(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    """Trace ``type.__subclasscheck__``, which asks no metaclass."""
    classes = t.python.concrete_list(args)
    return t.python.folded(PLAIN_SUBCLASS_CHECK, *classes)


# -- generic functions -----------------------------------------------------------------------
def _dispatched(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    """Return the implementation that a generic function has for a class, and guard which it is.

    That is ``dispatch`` of ``functools.singledispatch``, which keeps what it has found.
    """
    called = t.calling
    function: Any = None if called is None else called.obj
    kind = t.python.concrete(args[0]) if len(args) == 1 and not kwargs else None
    if (
        function is None
        or not isinstance(kind, type)
        or id(kind) in t.values.made_inside
    ):
        raise breaks.GraphBreak(breaks.BUILTIN_CALL, "functools.singledispatch()")
    found = t.python.fold(function, kind)
    answer = functools.partial(function, kind)
    name = f"dispatch_{id(function):x}_{id(kind):x}"
    t.guards.ask_process_again(answer, name, found)
    return t.values.known(found)


BY_NAME.add("functools.singledispatch.<locals>.dispatch", _dispatched)
