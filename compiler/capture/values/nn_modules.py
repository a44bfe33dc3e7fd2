"""Modules of torch.nn: their parameters, buffers, submodules and hooks."""

from __future__ import annotations

import functools
import types
from typing import TYPE_CHECKING

import torch

from tc.compiler.capture import breaks
from tc.compiler.capture.values.base import Args, Kwargs, Value
from tc.compiler.capture.values.const import ConstValue
from tc.compiler.capture.values.dicts import DictValue
from tc.compiler.capture.values.lookup import type_lookup
from tc.compiler.capture.values.objects import ObjectValue
from tc.compiler.core.sources import DictSource, ItemSource

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter

# Torch's own definitions, read now because a program may replace them later.
_MODULE_CALL = torch.nn.Module.__dict__["__call__"]
_MODULE_GETATTR = torch.nn.Module.__dict__["__getattr__"]
_MODULE_SETATTR = torch.nn.Module.__dict__["__setattr__"]
#: hooks of one module
HOOKS = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
)
#: hooks that run for modules of every kind
GLOBAL_HOOKS = (
    "_global_forward_hooks",
    "_global_forward_pre_hooks",
    "_global_backward_hooks",
    "_global_backward_pre_hooks",
)
#: classes whose instances a module keeps in a table when they are stored to an attribute
REGISTERED = (
    torch.nn.Parameter,
    torch.nn.Buffer,
    torch.nn.parameter.UninitializedBuffer,
    torch.nn.Module,
)


class NNModuleValue(ObjectValue):
    """An nn.Module: parameters, buffers and submodules are looked up in its own tables."""

    noun = "a module"
    TABLES = ("_parameters", "_buffers", "_modules")

    def _registered(self, t: Interpreter, name: str) -> Value | None:
        """Return a parameter, buffer or submodule of that name, or None."""
        for table in self.TABLES:
            now = self._table_now(t, table)
            if now is not None:
                if t.python.contains(now, ConstValue(name)).truth(t):
                    return now.item(t, ConstValue(name))
            elif self.obj is not None and self.source is not None:
                own = self.obj.__dict__
                where = ItemSource(DictSource(self.source), table)
                if table not in own:
                    t.guards.add("NOT_CONTAINS", DictSource(self.source), table)
                    continue
                t.guards.identities.reads(own[table], where, name)
                if name in own[table]:
                    return t.values.wrap(own[table][name], ItemSource(where, name))
                t.guards.add("NOT_CONTAINS", where, name)
        return None

    def _table_now(self, t: Interpreter, name: str) -> Value | None:
        """Return a table of parameters, buffers or modules that traced code changed, or None."""
        stored = t.effects.attribute(self, name)
        if stored is not None:
            return stored
        if self.obj is None:
            return None
        held = self.obj.__dict__.get(name)
        known = t.values.find(held)
        if not isinstance(known, DictValue) or not t.effects.was_changed(known):
            return None
        if self.source is None:
            return known
        return t.values.wrap(held, ItemSource(DictSource(self.source), name))

    def find(self, t: Interpreter, name: str) -> Value | None:
        found = super().find(t, name)
        return found if found is not None else self._registered(t, name)

    def generic_attr(self, t: Interpreter, name: str) -> Value:
        found = self._unless_absent(functools.partial(self.find, t, name))
        if found is not None:
            return found
        if self.own_special("__getattr__") is not _MODULE_GETATTR:
            return self.call_special(t, "__getattr__", [ConstValue(name)])
        return t.python.raise_(
            AttributeError, f"'{self.cls.__name__}' object has no attribute '{name}'"
        )

    def set_attr(self, t: Interpreter, name: str, value: Value) -> None:
        made = self.source is None
        own = self.own_special("__setattr__") is not _MODULE_SETATTR
        if own or made or self._changes_tables(t, name, value):
            self.call_special(t, "__setattr__", [ConstValue(name), value])
            return
        if isinstance(value, NNModuleValue) and value.source is None:
            self.cannot(breaks.UNSUPPORTED_STORE, f"{self.describe()}.{name}")
        self.generic_set_attr(t, name, value)

    def _changes_tables(self, t: Interpreter, name: str, value: Value) -> bool:
        """Return whether ``self.name = value`` has to be seen by what lists parameters."""
        kind, obj = value.python_type(), getattr(value, "obj", None)
        if issubclass(kind, REGISTERED) or isinstance(obj, REGISTERED):
            return True
        if issubclass(kind, torch.Tensor) and kind is not torch.Tensor:
            return True  # a mark on the tensor says whether it is a parameter
        if any(self._table_now(t, table) is not None for table in self.TABLES):
            return True
        held = vars(self.obj) if self.obj is not None else {}
        return any(name in held.get(table, ()) for table in self.TABLES)

    def call(self, t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
        plain = type_lookup(self.cls, "__call__") is _MODULE_CALL
        if not plain and not isinstance(self.obj, torch.fx.GraphModule):
            return super().call(t, args, kwargs)
        t.initialise_lazy(self, args, kwargs)
        hooks = self._has_hooks(t) or _global_hooks(t)
        name = "_call_impl" if hooks else "forward"
        return self.attr(t, name).call(t, args, kwargs)

    def tail_call_codes(self) -> tuple[types.CodeType, ...]:
        if type_lookup(self.cls, "__call__") is not _MODULE_CALL:
            return super().tail_call_codes()
        forward = getattr(type_lookup(self.cls, "forward"), "__code__", None)
        implementation = torch.nn.Module._call_impl.__code__
        return (implementation,) if forward is None else (forward, implementation)

    def _has_hooks(self, t: Interpreter) -> bool:
        return any(self._has_hooks_in(t, name) for name in HOOKS)

    def _has_hooks_in(self, t: Interpreter, name: str) -> bool:
        stored = t.effects.attribute(self, name)
        if stored is not None or self.obj is None:
            return self.attr(t, name).truth(t)
        own = self.obj.__dict__[name]
        if self.source is not None:
            t.guards.add("LENGTH", ItemSource(DictSource(self.source), name), own)
        return bool(own)

    def describe(self) -> str:
        return self.source.pretty if self.source else f"module {self.cls.__qualname__}"


def _global_hooks(t: Interpreter) -> bool:
    """Return whether hooks for all modules are installed."""
    module = torch.nn.modules.module
    held = [getattr(module, name) for name in GLOBAL_HOOKS]
    for hooks_of_all in held:
        t.guards.definitions.count(hooks_of_all)
    return any(held)
