"""What a class defines under a name, and whether reading an attribute runs code of the program."""

from __future__ import annotations

import collections
import types
from collections.abc import Iterable
from typing import Any

import torch

from tc.compiler.capture.guards.facts import is_heap_type, is_library

MISSING: Any = object()
#: methods one of which the class of an iterable has
ITERABLE = ("__iter__", "__getitem__")
#: what a class has for an attribute that C code holds, which may be empty
SLOT_TYPES = (types.MemberDescriptorType, types.GetSetDescriptorType)
#: types of the methods of classes in C
METHODS_OF_C = (
    types.WrapperDescriptorType,
    types.MethodDescriptorType,
    types.ClassMethodDescriptorType,
)
#: what PyTorch's own modules define: the tracer knows what it does
_MODULE_GETATTR = torch.nn.Module.__dict__["__getattr__"]
#: what the class of a named tuple that is written in Python has for each field
FIELD = type(vars(collections.namedtuple("Any", "field"))["field"])


def type_lookup(cls: type, name: str, after: type | None = None) -> Any:
    """Return the raw attribute of a class along its method resolution order, or MISSING."""
    mro = cls.__mro__
    if after is not None:
        mro = mro[mro.index(after) + 1 :]
    for base in mro:
        if name in base.__dict__:
            return base.__dict__[name]
    return MISSING


def python_method(cls: type, name: str) -> types.FunctionType | None:
    """Return a method that a class has if it is written in Python, else None."""
    raw = type_lookup(cls, name)
    return raw if isinstance(raw, types.FunctionType) else None


def _home(cls: type, name: str) -> type | None:
    """Return the class, of those a class inherits from, in which a name is found."""
    return next((base for base in cls.__mro__ if name in base.__dict__), None)


def replaced_slot(cls: type, name: str) -> Any:
    """Return what a class defines under the name of a slot, MISSING if C code's own is left.

    A class may define a special method by any object: ``__setattr__ = dict.__setitem__`` makes
    the attributes of a dict its items, and None refuses what the method is for.
    """
    home = _home(cls, name)
    if home is None or not is_heap_type(home):
        return MISSING
    raw = home.__dict__[name]
    if isinstance(raw, METHODS_OF_C):
        of_c = next(base for base in cls.__mro__ if not is_heap_type(base))
        # A class in C that can be changed has its own, another may name that of its base again.
        if raw.__objclass__ is home or raw is type_lookup(of_c, name):
            return MISSING
    return raw


def users_slot(cls: type, name: str) -> Any:
    """Return what a class of the program defines under the name of a slot, or MISSING."""
    home = _home(cls, name)
    if home is None or is_library(home.__module__):
        return MISSING
    return replaced_slot(cls, name)


def is_users_function(raw: Any) -> bool:
    """Return whether an object is a function of the program, not of a library."""
    return isinstance(raw, types.FunctionType) and not is_library(raw.__module__)


def is_frozen_dataclass(cls: type) -> bool:
    """Return whether a class is a dataclass whose fields never change."""
    params = type_lookup(cls, "__dataclass_params__")
    return params is not MISSING and bool(params.frozen)


def has_any(cls: type, names: tuple[str, ...]) -> bool:
    """Return whether a class defines one of several names."""
    return any(type_lookup(cls, name) is not MISSING for name in names)


#: comparisons, and those that Python asks the other operand for
REFLECTED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}


def methods_of(name: str) -> list[str]:
    """Return the special methods that ``operator.<name>`` asks two operands for."""
    plain = name.rstrip("_")
    bases = [plain, plain.removeprefix("i")]
    other = REFLECTED.get(plain, f"r{bases[-1]}")
    return [f"__{one}__" for one in [*bases, other]]


def inherits(cls: type, base: type, names: Iterable[str]) -> bool:
    """Return whether a class has, under some names, what one of its bases has."""
    return all(type_lookup(cls, name) is type_lookup(base, name) for name in names)


def full_name(cls: type) -> str:
    """Return the name of a class as messages of the interpreter have it, ``numpy.ndarray``."""
    plain = is_heap_type(cls) or cls.__module__ == "builtins"
    return cls.__name__ if plain else f"{cls.__module__}.{cls.__name__}"


def is_data_descriptor(raw: Any) -> bool:
    """Return whether what a class defines is asked where the attribute is stored or deleted."""
    return has_any(type(raw), ("__set__", "__delete__"))


def is_read_first(raw: Any) -> bool:
    """Return whether what a class defines takes precedence over an entry of ``__dict__``."""
    return is_data_descriptor(raw) and has_any(type(raw), ("__get__",))


def is_unset(slot: Any, obj: Any) -> bool:
    """Return whether an object has no value in a slot of its class."""
    try:
        slot.__get__(obj)
    except AttributeError:
        return True
    return False


def read_runs_python(obj: Any, name: str) -> bool:
    """Return whether ``obj.name`` may run functions that are written in Python.

    Nothing but the program itself may run those: neither a capture nor a guard.
    """
    cls = type(obj)
    if replaced_slot(cls, "__getattribute__") is not MISSING:
        return True
    raw = type_lookup(cls, name)
    if raw is MISSING or isinstance(raw, SLOT_TYPES):
        fallback = type_lookup(cls, "__getattr__")
        return fallback is not MISSING and fallback is not _MODULE_GETATTR
    getter = type_lookup(type(raw), "__get__")
    return isinstance(raw, property) or isinstance(getter, types.FunctionType)


def has_opaque_metaclass(cls: Any) -> bool:
    """Return whether the metaclass of a class lets nobody read it, or keep it in a table."""
    kind = type(cls)
    if kind is type or not issubclass(kind, type):
        return False
    reads = users_slot(kind, "__getattribute__") is not MISSING
    hashes = users_slot(kind, "__hash__")
    return reads or not (hashes is MISSING or isinstance(hashes, types.FunctionType))


def is_found_by_name(obj: Any) -> bool:
    """Return whether a method in C is what the class of its object has under its name.

    Functions of pybind11 are bound to records, whose class has nothing there.
    """
    owner = obj.__self__
    raw = type_lookup(type(owner), obj.__name__)
    if raw is MISSING:
        return True
    return isinstance(raw, METHODS_OF_C) and raw.__get__(owner, type(owner)) == obj


def is_struct_sequence(kind: Any) -> bool:
    """Return whether a class is a named tuple of C whose fields are its items, as torch's are."""
    if not issubclass(kind, tuple) or "n_fields" not in vars(kind):
        return False
    # `os.stat_result` has fields beside
    return bool(kind.n_fields == len(kind.__match_args__))


def field_names(kind: Any) -> tuple[str, ...]:
    """Return the field names of a named tuple, be it one of C."""
    if is_struct_sequence(kind):
        return tuple(kind.__match_args__)
    return tuple(getattr(kind, "_fields", ()))


def field_index(kind: Any, name: str) -> int | None:
    """Return which item an attribute of a named tuple reads, or None if it is not a field.

    The class decides: a field may be hidden in a subclass, replaced, or have a second name.
    """
    raw = type_lookup(kind, name)
    if isinstance(raw, FIELD):
        index: int = raw.__reduce__()[1][0]
        return index
    if isinstance(raw, types.MemberDescriptorType) and is_struct_sequence(kind):
        return field_names(kind).index(name) if name in field_names(kind) else None
    return None
