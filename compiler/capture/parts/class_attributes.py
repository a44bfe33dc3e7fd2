"""Looks up class attributes and binds them to objects."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from tc.compiler.capture import breaks
from tc.compiler.capture.torch_api import autograd_functions
from tc.compiler.capture.torch_api.opaque_call import is_apply
from tc.compiler.capture.values.attributes import AttributesValue
from tc.compiler.capture.values.base import Args, Kwargs, LambdaValue, Value
from tc.compiler.capture.values.binding import bind_class_attr, bind_descriptor
from tc.compiler.capture.values.builtins import slot_method
from tc.compiler.capture.values.const import LITERALS
from tc.compiler.capture.values.lookup import MISSING, full_name, type_lookup
from tc.compiler.capture.values.objects import (
    Attributed,
    ClassValue,
)
from tc.compiler.capture.values.stand_ins import UNEXPECTED, raise_as_python, refusal
from tc.compiler.core.sources import instance_dict

if TYPE_CHECKING:
    from tc.compiler.capture.values.dicts import DictValue
    from tc.compiler.capture.values.interfaces import Interpreter


class ClassAttributes:
    """Reads attributes of classes, through objects and through the classes themselves."""

    def __init__(self, t: Interpreter) -> None:
        self.t = t
        self._attributes: dict[int, AttributesValue] = {}

    def builtin_method(self, owner: Value, name: str) -> Value:
        """Return a bound method of a list, dict, set … as a value."""
        kind = owner.python_type()
        found = type_lookup(kind, name)
        if name == "__class__":
            return self.t.values.known(kind)
        # ``__hash__`` of a list, ``__doc__``
        if found is None or isinstance(found, LITERALS):
            return self.t.values.known(found)
        if isinstance(found, types.GetSetDescriptorType | types.MemberDescriptorType):
            owner.cannot(breaks.UNSUPPORTED_ATTR, f"{owner.describe()}.{name}")
        if found is MISSING:
            self.t.python.raise_(
                AttributeError, f"'{full_name(kind)}' object has no attribute '{name}'"
            )

        def run(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
            refused = refusal(kind, name, len(args), tuple(kwargs))
            if refused is not None:
                t.python.raise_(TypeError, refused)
            try:
                return owner.method(t, name, args, kwargs)
            except UNEXPECTED:
                raise_as_python(t, owner, name, args, kwargs)
                raise

        def rebuild(r: Any) -> None:
            r.push(owner)
            r.e.load_attr(name)

        return LambdaValue(
            run, f"{kind.__name__}.{name}", rebuild, (owner,), calls_method_of=owner
        )

    def bind_descriptor(
        self,
        owner: Value,
        cls: type,
        raw: Any,
        name: str,
        inherited: bool = False,
    ) -> Value:
        """Read a class attribute through an instance."""
        if is_apply(cls, name):
            return autograd_functions.ApplyValue(ClassValue(cls))
        return bind_descriptor(self.t, owner, cls, raw, name, inherited)

    def bind_class_attr(self, owner: ClassValue, raw: Any, name: str) -> Value:
        """Read a class attribute through the class."""
        if is_apply(owner.obj, name):
            return autograd_functions.ApplyValue(owner)
        return bind_class_attr(self.t, owner, raw, name)

    def class_attr(self, owner: Value, cls: type, name: str) -> Value | None:
        """Read an attribute of an instance's class, or return None."""
        for base in cls.__mro__:
            if name in base.__dict__:
                return bind_descriptor(self.t, owner, cls, base.__dict__[name], name)
        return None

    def attributes_of(self, owner: Attributed | DictValue) -> Value:
        """Return ``vars(owner)``, the same value each time."""
        held = instance_dict(owner.obj)
        first = self.t.values.owners.get(id(held))
        if held is not None and first is not None and first[0] is not owner.obj:
            text = f"the __dict__ of {owner.describe()} is another object's as well"
            raise breaks.SkipFrame(text)
        if id(owner) not in self._attributes:
            self._attributes[id(owner)] = AttributesValue(owner)
        return self._attributes[id(owner)]

    def slot_method(self, owner: Value, raw: Any) -> Value:
        """Return a method of a builtin type bound to an object."""
        return slot_method(self.t, owner, raw)
