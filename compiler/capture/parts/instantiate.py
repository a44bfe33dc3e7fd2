"""Interprets calls of classes: builtin types, exceptions, named tuples, and Python classes."""

from __future__ import annotations

import collections
import contextlib
import enum
import functools
import types
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import torch

from tc.compiler.capture import breaks
from tc.compiler.capture.guards.facts import is_heap_type, is_library
from tc.compiler.capture.torch_api.lazy_modules import make_parameter
from tc.compiler.capture.torch_api.tensor_classes import TYPED, construct
from tc.compiler.capture.values.base import Args, Kwargs, Value
from tc.compiler.capture.values.builtin_arguments import bound_arguments
from tc.compiler.capture.values.builtins import BUILTINS, builtin, refuse_abstract
from tc.compiler.capture.values.containers import ListValue, TupleValue
from tc.compiler.capture.values.dict_objects import DictObjectValue
from tc.compiler.capture.values.dicts import DICT_KINDS, DictValue
from tc.compiler.capture.values.exceptions import ExceptionValue
from tc.compiler.capture.values.functions import MethodValue
from tc.compiler.capture.values.handlers import handler_of
from tc.compiler.capture.values.list_objects import ListObjectValue
from tc.compiler.capture.values.lookup import (
    MISSING,
    is_struct_sequence,
    is_users_function,
    replaced_slot,
    type_lookup,
)
from tc.compiler.capture.values.nn_modules import NNModuleValue
from tc.compiler.capture.values.objects import ClassValue, ObjectValue
from tc.compiler.capture.values.set_objects import SetObjectValue
from tc.compiler.capture.values.sets import set_from, set_of
from tc.compiler.capture.values.stand_ins import call_handler
from tc.compiler.capture.values.stored_objects import StoredObject
from tc.compiler.capture.values.tuple_objects import tuple_of

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter

FOLDED_BASES = (np.generic, np.dtype)
FOLDED = (
    torch.device,
    torch.finfo,
    torch.iinfo,
    torch.dtype,
    complex,
    bytes,
    np.finfo,
    np.iinfo,
    type(torch.distributions.Categorical.probs),
)


def instantiate(t: Interpreter, cls: ClassValue, args: Args, kwargs: Kwargs) -> Value:
    """Return the value of ``cls(*args, **kwargs)``."""
    kind = cls.obj
    if type_lookup(kind, "__del__") is not MISSING:
        _leave_to_python(t, kind)
    handler = BUILTINS.get(id(kind)) or handler_of(kind)
    if handler is not None:
        args, kwargs = bound_arguments(t, kind, args, kwargs)
        return call_handler(t, cls.obj, handler, args, kwargs)
    if (
        kind in FOLDED
        or isinstance(kind, enum.EnumMeta)
        or issubclass(kind, FOLDED_BASES)
    ):
        if isinstance(kind, enum.EnumMeta) and _looks_up_by_program(cls):
            return _member(t, cls, args, kwargs)
        plain = t.python.concrete_list(args)
        return t.python.folded(kind, *plain, **t.python.concrete_dict(kwargs))
    called = type_lookup(type(kind), "__call__")
    if cls.has_own("__call__") and not cls.past_metaclass:
        return cls.call_special(t, "__call__", args, kwargs)
    if issubclass(kind, OSError) and len(args) > 1:
        raise breaks.GraphBreak(
            breaks.UNSUPPORTED_CALL, "OSError, whose class the number decides"
        )
    if issubclass(kind, BaseException):
        return _exception(t, cls, args, kwargs)
    if kind is types.MethodType and len(args) == 2:
        return MethodValue(args[1], args[0])
    if kind is types.SimpleNamespace and not args:
        return _namespace(t, kwargs)
    if kind is torch.Size:
        sizes = args[0].unpack(t) if args else []
        if any(issubclass(one.python_type(), str | float | tuple) for one in sizes):
            raise breaks.GraphBreak(breaks.OP_FAILED, "torch.Size()")
        return TupleValue([*sizes], kind=torch.Size)
    if is_struct_sequence(kind):
        return TupleValue(list(args[0].unpack(t)), kind=kind)
    if issubclass(kind, torch.Tensor) or isinstance(kind, TYPED):
        if kind in (torch.nn.Parameter, torch.nn.Buffer):
            return make_parameter(t, kind, args, kwargs)
        return construct(t, cls, args, kwargs)
    if isinstance(called, type):  # as `dict`, for a TypedDict
        return t.values.known(called).call(t, args, kwargs)
    if issubclass(kind, dict | list | tuple | set | frozenset) and is_heap_type(kind):
        return _object(t, cls, args, kwargs)
    if issubclass(kind, torch.autograd.Function):
        return ObjectValue(kind)  # the legacy way to call its apply
    if not _is_plain(kind):
        raise breaks.GraphBreak(breaks.UNSUPPORTED_CALL, f"class {kind.__qualname__}")
    return _object(t, cls, args, kwargs)


def _looks_up_by_program(cls: ClassValue) -> bool:
    """Return whether functions of the program decide which member an enumeration gives."""
    if cls.has_own("__call__"):
        return True
    missing = type_lookup(cls.obj, "_missing_")
    return isinstance(missing, classmethod) and is_users_function(missing.__func__)


def _member(t: Interpreter, cls: ClassValue, args: Args, kwargs: Kwargs) -> Value:
    """Look a member up by its value; for another value, call what the program defines for it."""
    kind: Any = cls.obj
    if cls.has_own("__call__"):
        return cls.call_special(t, "__call__", args, kwargs)
    if len(args) == 1 and not kwargs:
        value = t.python.concrete(args[0])
        with contextlib.suppress(KeyError, TypeError):  # of no member, or not hashable
            return t.values.known(kind._value2member_map_[value])
        found = t.inline_object(type_lookup(kind, "_missing_").__func__, [cls, *args])
        if isinstance(found.obj, kind):
            return found
    raise breaks.GraphBreak(breaks.UNSUPPORTED_CALL, f"class {kind.__qualname__}")


def _leave_to_python(t: Interpreter, kind: type) -> NoReturn:
    """Leave the function that makes an object with `__del__` to Python; its callers break there.

    An object that is not made is not deleted, one made after the graph is deleted late, and a
    resume function's arguments live until it returns.
    """
    if t.top is None or t.top.depth == 0:
        raise breaks.SkipFrame(
            f"it makes a {kind.__qualname__}, whose __del__ runs where it dies"
        )
    raise breaks.FrameCountBreak(
        breaks.UNSUPPORTED_CALL, f"class {kind.__qualname__} with __del__"
    )


def _is_plain(kind: type) -> bool:
    called = type_lookup(type(kind), "__call__")
    if called is not vars(type)["__call__"] and is_library(kind.__module__):
        return False
    if issubclass(kind, type | dict | list | set | str | int | float):
        return False
    return kind.__module__ != "builtins" and is_heap_type(kind)


def _object(t: Interpreter, cls: ClassValue, args: Args, kwargs: Kwargs) -> Value:
    kind = cls.obj
    maker = type_lookup(kind, "__new__")
    if isinstance(maker, staticmethod):
        maker = maker.__func__
    if isinstance(maker, types.FunctionType):
        made = t.inline_object(maker, [cls, *args], kwargs)
    elif replaced_slot(kind, "__new__") is not MISSING:
        raise breaks.GraphBreak(breaks.UNSUPPORTED_CALL, f"class {kind.__qualname__}")
    elif (stored := _stored(t, kind, args, kwargs)) is not None:
        made = stored
    elif maker is MISSING or maker is object.__new__:
        refuse_abstract(t, kind, args, kwargs)
        made = (NNModuleValue if issubclass(kind, torch.nn.Module) else ObjectValue)(
            kind
        )
    elif maker is tuple.__new__:
        made = t.values.known(maker).call(t, [cls, *args], kwargs)
    else:
        raise breaks.GraphBreak(breaks.UNSUPPORTED_CALL, f"class {kind.__qualname__}")
    if kind not in made.python_type().__mro__:
        return made  # a class may refuse to be asked, or call others its instances
    start = type_lookup(kind, "__init__")
    if made.python_type() is kind and made.has_own("__init__"):
        result = made.call_special(t, "__init__", args, kwargs)
        t.python.slot_result(kind, "__init__", result)
    elif isinstance(start, types.FunctionType):
        t.python.slot_result(
            kind, "__init__", t.inline_object(start, [made, *args], kwargs)
        )
    # which ignores arguments that another `__new__` takes
    elif start is object.__init__:
        if (args or kwargs) and maker is object.__new__:
            t.python.raise_(TypeError, f"{kind.__name__}() takes no arguments")
    elif isinstance(made, StoredObject):
        asked = ("__new__", "__init__")
        named = _keywords(t, kind, made.base, args, kwargs, asked)
        made.base_method("__init__").call(t, args, named)
    else:
        raise breaks.GraphBreak(breaks.UNSUPPORTED_CALL, f"class {kind.__qualname__}")
    return made


@functools.cache
def _refusal(base: Any, *own: str) -> str | None:
    """Return how Python refuses a keyword to a class with these methods that derives from a base.

    Versions of Python differ in which methods of a class may take keywords.
    """
    makers: dict[str, Any] = {
        "__new__": lambda cls, *_, **named: base.__new__(cls),
        "__init__": lambda self, *_, **named: None,
    }
    try:
        type(base)("Derived", (base,), {name: makers[name] for name in own})(keyword=0)
    except TypeError as error:
        return str(error)
    return None


def _keywords(
    t: Interpreter,
    kind: type,
    base: Any,
    args: Args,
    kwargs: Kwargs,
    asked: tuple[str, ...] = ("__init__",),
) -> Kwargs:
    """Return the keywords that a container in C takes when an object of a class is made.

    Arguments that it refuses raise Python's error.

    Args:
        asked: which methods of the class let the container ignore keywords.
    """
    if len(args) > 1 and not issubclass(base, collections.defaultdict):
        bare: Any = type(kind.__name__, (base,), {})
        t.python.fold(bare, *(None for _ in args))
    if not kwargs or issubclass(base, dict):
        return kwargs
    own = [
        name for name in asked if type_lookup(kind, name) is not type_lookup(base, name)
    ]
    text = _refusal(base, *own)
    if text is not None:
        t.python.raise_(TypeError, text)
    return {}


def _stored(t: Interpreter, kind: type, args: Args, kwargs: Kwargs) -> Value | None:
    """Return a new object of a class that derives from a container in C; None for others."""
    if issubclass(kind, frozenset):
        _keywords(t, kind, frozenset, args, kwargs)
        items = set_from(t, args[0], frozenset) if args else set_of(t, [], frozenset)
        return SetObjectValue(kind, items=items.items, table=items.table)
    for one in (DictObjectValue, ListObjectValue, SetObjectValue):
        if issubclass(kind, one.bases):
            return one(kind)
    return None


def _namespace(t: Interpreter, attributes: Kwargs) -> Value:
    made = ObjectValue(types.SimpleNamespace)
    for name, value in attributes.items():
        made.set_attr(t, name, value)
    return made


def _exception(t: Interpreter, cls: ClassValue, args: Args, kwargs: Kwargs) -> Value:
    made = ExceptionValue(cls.obj, list(args))
    starts = made.has_own("__init__")
    refused = issubclass(cls.obj, BaseExceptionGroup) and not _is_plain_group(
        t, cls.obj, args, kwargs
    )
    # `name` of an ImportError
    if made.has_own("__new__") or (kwargs and not starts) or refused:
        raise breaks.GraphBreak(
            breaks.UNSUPPORTED_CALL, f"class {cls.obj.__qualname__}"
        )
    if starts:
        result = made.call_special(t, "__init__", args, kwargs)
        t.python.slot_result(cls.obj, "__init__", result)
    return made


def _is_plain_group(t: Interpreter, kind: type, args: Args, kwargs: Kwargs) -> bool:
    """Return whether a group of these exceptions is of the class that is called for it."""
    if not issubclass(kind, ExceptionGroup) or len(args) != 2 or kwargs:
        return False
    text, members = args
    if text.python_type() is not str or members.python_type() not in (list, tuple):
        return False
    kinds = [member.python_type() for member in members.unpack(t)]
    return bool(kinds) and all(issubclass(one, Exception) for one in kinds)


# -- what makes an object of a given class --------------------------------------------------
@builtin(tuple.__new__)
def _tuple_new(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    cls, *contents = args
    kind = t.python.concrete(cls)
    _keywords(t, kind, tuple, contents, kwargs)
    items = contents[0].unpack(t) if contents else []
    return tuple_of([*items], kind)


@builtin(list.__new__)
def _list_new(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    kind = t.python.concrete(args[0])
    return ListValue([]) if kind is list else ListObjectValue(kind)


@builtin(set.__new__)
def _set_new(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    kind = t.python.concrete(args[0])
    return set_of(t, []) if kind is set else SetObjectValue(kind)


@builtin(frozenset.__new__)
def _frozenset_new(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    kind, *items = args
    made = _stored(t, t.python.concrete(kind), items, kwargs)
    assert isinstance(made, SetObjectValue)
    return made if made.cls is not frozenset else made.container()


@builtin(dict.__new__)
def _dict_new(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    kind = t.python.concrete(args[0])
    if kind in DICT_KINDS:
        return DictValue({}, kind=kind)
    return DictObjectValue(kind)
