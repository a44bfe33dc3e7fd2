"""Objects of user-defined classes, their classes, Python modules, and modules of torch.nn."""

from __future__ import annotations

import functools
import operator
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from tc.compiler.capture import breaks
from tc.compiler.capture.guards.facts import is_library
from tc.compiler.capture.values.base import (
    UNBOUND,
    Args,
    KnownObject,
    Kwargs,
    Raised,
    Value,
)
from tc.compiler.capture.values.const import ConstValue
from tc.compiler.capture.values.lookup import (
    MISSING,
    SLOT_TYPES,
    full_name,
    has_any,
    is_data_descriptor,
    is_read_first,
    is_unset,
    is_users_function,
    python_method,
    read_runs_python,
    replaced_slot,
    type_lookup,
    users_slot,
)
from tc.compiler.core.modes import MODES
from tc.compiler.core.sources import (
    AttrSource,
    CallSource,
    DictSource,
    ItemSource,
    Source,
    instance_dict,
)

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter, ResidualInterface


#: what an autograd.Function saved, as its ``ctx`` has it
_SAVED = ("saved_tensors", "saved_variables")


def _unpacks_by_hooks(context: Any) -> bool:
    """Return whether reading what was saved runs hooks of the program, or raises."""
    try:
        return any(one.unpack_hook is not None for one in context._raw_saved_tensors)
    except RuntimeError:  # it is freed
        return True


class Attributed(Value):
    """Base of instances that may have attributes of their own.

    Attributes:
        cls: the class, which is written in Python.
    """

    cls: type

    def attr(self, t: Interpreter, name: str) -> Value:
        if replaced_slot(self.cls, "__getattribute__") is MISSING:
            return self.generic_attr(t, name)
        asked = [ConstValue(name)]
        own = functools.partial(self.call_special, t, "__getattribute__", asked)
        found = self._unless_absent(own)
        if found is not None:
            return found
        return self.call_special(t, "__getattr__", asked)

    def _falls_back(self) -> bool:
        return replaced_slot(self.cls, "__getattr__") is not MISSING

    def _unless_absent(self, look: Callable[[], Value | None]) -> Value | None:
        """Look an attribute up; return None for an AttributeError that `__getattr__` follows."""
        try:
            return look()
        except Raised as raised:
            absent = issubclass(raised.value.python_type(), AttributeError)
            if not absent or not self._falls_back():
                raise
        return None

    def generic_attr(self, t: Interpreter, name: str) -> Value:
        """Look an attribute up as `object.__getattribute__` and then `__getattr__` do."""
        found = self._unless_absent(functools.partial(self.find, t, name))
        if found is not None:
            return found
        if self._falls_back():
            return self.call_special(t, "__getattr__", [ConstValue(name)])
        return t.python.raise_(
            AttributeError, f"'{full_name(self.cls)}' object has no attribute '{name}'"
        )

    def find(self, t: Interpreter, name: str) -> Value | None:
        """Return an attribute found without `__getattr__`, or None."""
        if name == "__dict__" and self.cls.__dictoffset__:
            return self.dictionary(t)
        if name == "__class__":
            return t.values.known(self.cls)
        raw = type_lookup(self.cls, name)
        t.guards.definitions.meet(raw)  # its class may come to define __set__
        if raw is not MISSING and is_read_first(raw):
            return self._data_descriptor(t, raw, name)
        stored = self.stored(t, name) or t.effects.class_attribute(
            self.cls.__mro__, name
        )
        if stored is not None:
            return stored
        if raw is MISSING:
            return None
        if name == "_validate_args" and issubclass(
            self.cls, torch.distributions.Distribution
        ):
            asked = _validates_arguments  # which a function of the library sets
            t.guards.ask_process_again(asked, asked.__name__, asked())
            if not t.output.may_assume:
                # a check that reads the data, omitted rather than break
                return ConstValue(False)
            if t.top is not None:
                t.output.distribution_checks.append(t.top.code)
        return t.attributes.bind_descriptor(self, self.cls, raw, name)

    def _data_descriptor(self, t: Interpreter, raw: Any, name: str) -> Value | None:
        if isinstance(raw, SLOT_TYPES):
            stored = self.stored(t, name)
            gone = t.effects.attribute(self, name) is UNBOUND
            if stored is not None or self.obj is None or gone:
                return stored
            return self._held_in_slot(t, raw, name)
        return t.attributes.bind_descriptor(self, self.cls, raw, name)

    def _held_in_slot(self, t: Interpreter, slot: Any, name: str) -> Value | None:
        """Return what C code holds for an existing object, or None.

        Where the class defines how attributes are read, only the descriptor itself may be asked:
        what an empty slot leads to is code of the program.
        """
        if name in _SAVED and issubclass(self.cls, torch.autograd.graph.Node):
            if _unpacks_by_hooks(self.obj):
                self.cannot(breaks.UNSUPPORTED_ATTR, f"{self.describe()}.{name}")
            asked = CallSource(
                self.source or Source(), _unpacks_by_hooks, "unpacks({})"
            )
            t.guards.add("BOOL", asked, False)
        source = self.source or Source()
        value: Any
        place: AttrSource | CallSource
        if not self.has_own("__getattr__", "__getattribute__"):
            value, place = getattr(self.obj, name, MISSING), AttrSource(source, name)
        else:
            text = f"{self.cls.__name__}.{name}"
            value = MISSING if is_unset(slot, self.obj) else slot.__get__(self.obj)
            place = CallSource(source, slot.__get__, f"{text}.__get__({{}})")
        if value is not MISSING:
            return t.values.wrap(value, place)
        if self.source is not None and isinstance(place, CallSource):
            empty = CallSource(
                source, functools.partial(is_unset, slot), f"is_unset({text}, {{}})"
            )
            t.guards.add("BOOL", empty, True)
        elif self.source is not None:
            t.guards.add("NO_ATTR", self.source, name)
        return None

    def stored(self, t: Interpreter, name: str) -> Value | None:
        """Return an attribute that the instance itself holds, or None."""
        pending = t.effects.attribute(self, name)
        if pending is not None:
            return None if pending is UNBOUND else pending
        own = instance_dict(self.obj) if self.obj is not None else None
        if own is not None and name in own:
            return t.values.wrap(own[name], self._attr_source(name))
        if self.source is not None:
            t.guards.absent(self, name)
        return None

    def _attr_source(self, name: str) -> Source:
        """Return the source of an instance attribute, bypassing descriptors of the class.

        Where the attribute is gone, a guard must not run what computes it in the program.
        """
        source = self.source or Source()
        hidden = is_data_descriptor(type_lookup(self.cls, name))
        if hidden or read_runs_python(self.obj, name):
            return ItemSource(DictSource(source), name)
        return AttrSource(source, name)

    def dictionary(self, t: Interpreter) -> Value:
        """Return the value of ``vars(self)``."""
        return t.attributes.attributes_of(self)

    def set_attr(self, t: Interpreter, name: str, value: Value) -> None:
        if replaced_slot(self.cls, "__setattr__") is not MISSING:
            self.call_special(t, "__setattr__", [ConstValue(name), value])
            return
        self.generic_set_attr(t, name, value)

    def generic_set_attr(self, t: Interpreter, name: str, value: Value) -> None:
        """Store an attribute as `object.__setattr__` does."""
        raw = type_lookup(self.cls, name)
        if isinstance(raw, property) and raw.fset is None:
            self._raise_lacking(t, name, "setter")
        if _set_by_descriptor(t, self, raw, value):
            return
        self._refuse_slot_of_c(raw, name)
        ordinary = type_lookup(self.cls, "__setattr__") is object.__setattr__
        if ordinary and not self.cls.__dictoffset__ and not isinstance(raw, SLOT_TYPES):
            absent = f"has no attribute '{name}'"
            reason = absent if raw is MISSING else f"attribute '{name}' is read-only"
            t.python.raise_(AttributeError, f"'{self.cls.__name__}' object {reason}")
        t.effects.store_attribute(self, name, value)

    def _refuse_slot_of_c(self, raw: Any, name: str) -> None:
        """Break at a store to what C code computes, ``__class__`` or ``__dict__``.

        Such a store changes what other names of the object mean: it can't wait for the residual
        code while traced code reads on.
        """
        if isinstance(raw, types.GetSetDescriptorType):
            self.cannot(breaks.UNSUPPORTED_STORE, f"{self.describe()}.{name}")

    def _raise_lacking(self, t: Interpreter, name: str, part: str) -> None:
        """Raise the error of a property without a setter or deleter."""
        owner = self.cls.__qualname__
        t.python.raise_(
            AttributeError, f"property {name!r} of {owner!r} object has no {part}"
        )

    def del_attr(self, t: Interpreter, name: str) -> None:
        if replaced_slot(self.cls, "__delattr__") is not MISSING:
            self.call_special(t, "__delattr__", [ConstValue(name)])
            return
        self.generic_del_attr(t, name)

    def generic_del_attr(self, t: Interpreter, name: str) -> None:
        """Delete an attribute as `object.__delattr__` does."""
        raw = type_lookup(self.cls, name)
        if isinstance(raw, property):
            if raw.fdel is None:
                self._raise_lacking(t, name, "deleter")
            t.inline_object(raw.fdel, [self])
            return
        deleter = descriptor_method(t, raw, "__delete__")
        if deleter is not None:
            deleter.call(t, [self], {})
            return
        self._refuse_slot_of_c(raw, name)
        slot = isinstance(raw, SLOT_TYPES)
        if (
            self._data_descriptor(t, raw, name) if slot else self.stored(t, name)
        ) is None:
            message = f"'{full_name(self.cls)}' object has no attribute '{name}'"
            t.python.raise_(AttributeError, name if slot else message)
        t.effects.store_attribute(self, name, UNBOUND)


def descriptor_method(t: Interpreter, raw: Any, name: str) -> Value | None:
    """Return what the class of a class attribute defines for a method of descriptors, bound."""
    kind = type(raw)
    own = replaced_slot(kind, name)
    if own is MISSING:
        return None
    owner = t.values.known(raw)
    return t.attributes.bind_descriptor(owner, kind, own, name, inherited=True)


def _validates_arguments() -> bool:
    """Return whether distributions check their arguments by default."""
    return bool(torch.distributions.Distribution._validate_args)


class ObjectValue(Attributed):
    """An instance of a class written in Python: an existing one, or one made by traced code."""

    noun = "an object"

    def __init__(
        self, cls: type, obj: Any = None, source: Source | None = None
    ) -> None:
        self.cls = cls
        self.obj = obj
        self.source = source
        self.creation_index = self.next_creation_index()

    def python_type(self) -> type:
        return self.cls

    def describe(self) -> str:
        return (
            self.source.pretty if self.source else f"a {self.cls.__qualname__} object"
        )

    # -- dunder methods --------------------------------------------------------------------
    def own_special(self, name: str) -> Any:
        return replaced_slot(self.cls, name)

    def dunder(self, t: Interpreter, name: str) -> Value | None:
        """Return the bound special method, looked up on the class, or None."""
        raw = type_lookup(self.cls, name)
        if raw is MISSING or raw is None:
            return None
        return t.attributes.bind_descriptor(self, self.cls, raw, name, inherited=True)

    def call(self, t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
        if self.has_own("__call__"):
            return self.call_special(t, "__call__", args, kwargs)
        method = self.dunder(t, "__call__")  # of a class in C
        if method is not None:
            return method.call(t, args, kwargs)
        return t.python.raise_(
            TypeError, f"'{self.cls.__name__}' object is not callable"
        )

    def tail_call_codes(self) -> tuple[types.CodeType, ...]:
        method = python_method(self.cls, "__call__")
        return (method.__code__,) if method is not None else ()

    def length(self, t: Interpreter) -> Value:
        return t.python.slot_result(self.cls, "__len__", super().length(t))

    def special(self, t: Interpreter, name: str, args: Args, refusal: str) -> Value:
        method = self.dunder(t, name)
        if method is None:
            return t.python.raise_(TypeError, refusal.format(full_name(self.cls)))
        return method.call(t, args, {})

    def truth(self, t: Interpreter) -> bool:
        return self.truth_by_class(t)

    def iterate(self, t: Interpreter) -> Value:
        method = self.dunder(t, "__iter__")
        if method is not None:
            return t.python.slot_result(self.cls, "__iter__", method.call(t, [], {}))
        refuses = type_lookup(self.cls, "__iter__") is None
        if not refuses and self.dunder(t, "__getitem__") is not None:
            return t.python.iterate_by_index(self)
        return t.python.raise_(
            TypeError, f"'{self.cls.__name__}' object is not iterable"
        )

    def advance(self, t: Interpreter) -> Value:
        refusal = "'{}' object is not an iterator"
        return t.python.advance_by_next(
            lambda: self.special(t, "__next__", [], refusal)
        )

    # -- the way back ----------------------------------------------------------------------
    def children(self, t: Interpreter) -> list[Value]:
        attributes = self._at_once(t)
        return list(attributes.values())

    def _at_once(self, t: Interpreter) -> dict[str, Value]:
        """Return the attributes to make it with; others are set once everything is made."""
        if not self.is_hashed or self.source is not None:
            return {}
        return t.effects.attributes_of(self)

    def rebuild(self, r: ResidualInterface) -> None:
        if self.is_hashed:
            attributes = self._at_once(r.t)
            names = tuple(attributes)
            r.load_callable(object_with)
            r.load_object(self.cls)
            r.load_object(names)
            for value in attributes.values():
                r.push(value)
            r.e.call(2 + len(names))
            return
        if self.cls is types.SimpleNamespace:  # which defines __new__
            r.load_callable(self.cls)
            r.e.call(0)
            return
        r.load_callable(object.__new__)
        r.load_object(self.cls)
        r.e.call(1)


def object_with(cls: type, names: tuple[str, ...], *values: Any) -> Any:
    """Return an object with attributes, past its class's own ``__init__`` and ``__setattr__``."""
    made: Any = object.__new__(cls)
    for name, value in zip(names, values, strict=True):
        object.__setattr__(made, name, value)
    return made


class ClassValue(KnownObject):
    """A class."""

    noun = "a class"
    obj: type
    #: whether a call makes an object though the metaclass has a ``__call__``, which asks for that
    past_metaclass = False

    def describe(self) -> str:
        return self.obj.__qualname__

    def truth(self, t: Interpreter) -> bool:
        return self.truth_by_class(t)

    def attr(self, t: Interpreter, name: str) -> Value:
        if name in ("__mro__", "__bases__"):  # the guard on definitions holds them
            return t.values.known(getattr(self.obj, name))
        if name in ("__name__", "__qualname__", "__module__", "__doc__"):
            return t.values.wrap(
                getattr(self.obj, name), AttrSource(t.values.source_of(self), name)
            )
        if name == "__dict__":
            source = AttrSource(t.values.source_of(self), name)
            return t.values.wrap(self.obj.__dict__, source)
        stored = t.effects.class_attribute(self.obj.__mro__, name)
        if stored is not None:
            return stored
        raw = type_lookup(self.obj, name)
        # A property of the metaclass, or `__class__`, takes precedence over the class's own.
        of_metaclass = type_lookup(type(self.obj), name)
        if raw is MISSING or is_read_first(of_metaclass):
            found = self._attr_of_metaclass(t, name)
            if found is not None:
                return found
            if hasattr(self.obj, name):
                return t.values.wrap(
                    getattr(self.obj, name), AttrSource(t.values.source_of(self), name)
                )
            return t.python.folded(getattr, self.obj, name)  # Python's own error
        return t.attributes.bind_class_attr(self, raw, name)

    def _attr_of_metaclass(self, t: Interpreter, name: str) -> Value | None:
        """Return what a property or the ``__getattr__`` of a metaclass gives, traced."""
        kind = type(self.obj)
        if is_library(kind.__module__) or not read_runs_python(self.obj, name):
            return None
        raw = type_lookup(kind, name)
        if isinstance(raw, property) and isinstance(raw.fget, types.FunctionType):
            return t.inline_object(raw.fget, [self])
        if raw is MISSING and self.has_own("__getattr__"):
            return self.call_special(t, "__getattr__", [ConstValue(name)])
        self.cannot(breaks.UNSUPPORTED_ATTR, f"{self.describe()}.{name}")

    def set_attr(self, t: Interpreter, name: str, value: Value) -> None:
        fixed = id(self.obj) in t.values.made_inside or is_library(self.obj.__module__)
        setter = type_lookup(type(self.obj), "__setattr__")
        special = name.startswith("__") or setter is not type.__setattr__
        held = (type_lookup(type(self.obj), name), type_lookup(self.obj, name))
        bound = any(has_any(type(raw), ("__get__",)) for raw in held)
        if fixed or special or bound or hasattr(value.python_type(), "__get__"):
            self.cannot(breaks.UNSUPPORTED_STORE, f"{self.obj.__qualname__}.{name}")
        t.effects.store_class_attribute(
            ClassValue(self.obj, t.values.source_of(self)), name, value
        )

    def call(self, t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
        return t.instantiate(self, args, kwargs)

    def own_special(self, name: str) -> Any:
        return users_slot(type(self.obj), name)

    def item(self, t: Interpreter, key: Value) -> Value:
        if (own := self.call_own(t, "__getitem__", key)) is not None:
            return own
        raw = replaced_slot(self.obj, "__class_getitem__")
        generic = isinstance(raw, classmethod) and not is_users_function(raw.__func__)
        # enumerations have one in their metaclass
        known = type_lookup(type(self.obj), "__getitem__") is not MISSING
        if not (raw is MISSING or generic or known):
            return self.attr(t, "__class_getitem__").call(t, [key], {})
        return t.python.folded(operator.getitem, self.obj, t.python.concrete(key))

    def iterate(self, t: Interpreter) -> Value:
        return self.call_own(t, "__iter__") or t.python.folded(list, self.obj).iterate(
            t
        )

    def length(self, t: Interpreter) -> Value:
        return self.call_own(t, "__len__") or t.python.folded(len, self.obj)

    def method(self, t: Interpreter, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name.startswith("__") and self.has_own(name):
            return self.call_special(t, name, args, kwargs)
        return super().method(t, name, args, kwargs)

    def rebuild(self, r: ResidualInterface) -> None:
        r.load_object(self.obj)


def _set_by_descriptor(t: Interpreter, owner: Value, raw: Any, value: Value) -> bool:
    """Store an attribute by what the class has under its name; return False if it has no setter."""
    if isinstance(raw, property):
        t.inline_object(raw.fset, [owner, value])
        return True
    setter = descriptor_method(t, raw, "__set__")
    if setter is not None:
        setter.call(t, [owner, value], {})
    return setter is not None


def _changes_modes(t: Interpreter) -> bool:
    """Return whether a mode of torch is another than at the start of the frame."""
    return any(mode.read() != t.modes.value_before(name) for name, mode in MODES.rows())


class PythonModuleValue(KnownObject):
    """A Python module: attributes are read from it and guarded one by one."""

    noun = "a Python module"
    obj: types.ModuleType

    def describe(self) -> str:
        return self.obj.__name__

    def own_special(self, name: str) -> Any:
        return users_slot(type(self.obj), name)

    def truth(self, t: Interpreter) -> bool:
        return self.truth_by_class(t)

    def attr(self, t: Interpreter, name: str) -> Value:
        pending = t.effects.global_value(vars(self.obj), name)
        if pending is not None:
            return pending
        raw = type_lookup(type(self.obj), name)
        if isinstance(raw, property) or (
            is_data_descriptor(raw) and _changes_modes(t)  # it may read one of them
        ):
            return t.attributes.bind_descriptor(self, type(self.obj), raw, name)
        source: Source = AttrSource(t.values.source_of(self), name)
        fallback = vars(self.obj).get("__getattr__")
        if self._runs_program(fallback) and name not in dir(types.ModuleType):
            # Neither a capture nor a guard may run it.
            held = DictSource(t.values.source_of(self))
            source = ItemSource(held, name)
            t.guards.look_up(vars(self.obj), name, source)
            if name in vars(self.obj):
                return t.values.wrap(vars(self.obj)[name], source)
            t.guards.add("NOT_CONTAINS", held, name)
            function = t.values.wrap(fallback, ItemSource(held, "__getattr__"))
            return function.call(t, [ConstValue(name)], {})
        t.guards.look_up(vars(self.obj), name, source)
        try:
            found = getattr(self.obj, name)
        except AttributeError as error:
            return t.python.raise_(AttributeError, str(error))
        return t.values.wrap(found, source)

    @staticmethod
    def _runs_program(fallback: Any) -> bool:
        """Return whether the `__getattr__` of a module is code of the program, not of tc."""
        return (
            is_users_function(fallback)
            and (fallback.__module__ or "").partition(".")[0] != "tc"
        )

    def set_attr(self, t: Interpreter, name: str, value: Value) -> None:
        """Store an attribute; settings of torch are descriptors of their modules' classes."""
        kind = type(self.obj)
        raw = type_lookup(kind, name)
        own = replaced_slot(kind, "__setattr__") is not MISSING
        if own and not is_library(kind.__module__):
            self.cannot(breaks.UNSUPPORTED_STORE, f"{self.describe()}.{name}")
        if isinstance(raw, property) and raw.fset is None:
            self.cannot(breaks.UNSUPPORTED_STORE, f"{self.describe()}.{name}")
        if not _set_by_descriptor(t, self, raw, value):
            t.effects.store_global(vars(self.obj), name, value)

    def rebuild(self, r: ResidualInterface) -> None:
        r.load_object(self.obj)
