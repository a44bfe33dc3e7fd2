"""Tensors of user-defined subclasses of `torch.Tensor`, and their overrides.

There are two kinds. Some classes only add Python to a plain tensor: the graph has the plain tensor,
and residual code restores the class of results. Wrappers around other tensors
(``__tensor_flatten__``) are in the graph as they are: ``__torch_dispatch__`` runs with their nodes.
"""

from __future__ import annotations

import operator
import types
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from tc.compiler.capture import breaks
from tc.compiler.capture.guards.facts import is_library
from tc.compiler.capture.values.base import UNBOUND, Args, Kwargs, LambdaValue, Value
from tc.compiler.capture.values.const import ConstValue, is_constant_object
from tc.compiler.capture.values.lookup import (
    MISSING,
    is_read_first,
    replaced_slot,
    type_lookup,
)
from tc.compiler.capture.values.tensor import VIEWS, NodeValue, TensorValue, calling
from tc.compiler.core.sources import AttrSource, DictSource, Source

if TYPE_CHECKING:
    from torch import fx

    from tc.compiler.capture.values.interfaces import Interpreter, ResidualInterface


#: torch's own classes whose tensors are plain in a graph
PLAIN_CLASSES = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
#: which overrides are off: none, those of classes, those of modes too
ON, CLASSES_OFF, OFF = range(3)
#: mark on graphs that are run on fake tensors
FAKED = "tc_faked"
_DISABLED = torch._C._disabled_torch_function_impl


def override_of(cls: type) -> Any:
    """Return the raw ``__torch_function__`` that is traced for a class, or None.

    Wrappers that inherit PyTorch's own code have none: that code runs with the node.
    """
    raw = type_lookup(cls, "__torch_function__")
    if raw is MISSING or raw is _DISABLED or cls in PLAIN_CLASSES:
        return None
    if not issubclass(cls, torch.Tensor):
        return raw
    home = next(base for base in cls.__mro__ if "__torch_function__" in base.__dict__)
    return None if is_wrapper(cls) and is_library(home.__module__) else raw


def is_wrapper(cls: type) -> bool:
    """Return whether instances of a class wrap other tensors."""
    return hasattr(cls, "__tensor_flatten__") and hasattr(cls, "__tensor_unflatten__")


def own_attribute(cls: type, name: str) -> Any:
    """Return the raw attribute of a class or of its bases below torch's own, or MISSING."""
    for base in cls.__mro__:
        if base in PLAIN_CLASSES:
            return MISSING
        if name in base.__dict__:
            return base.__dict__[name]
    return MISSING


def own_method(cls: type, name: str) -> types.FunctionType | None:
    """Return a method written in Python of a class below torch's own, or None."""
    raw = own_attribute(cls, name)
    return raw if isinstance(raw, types.FunctionType) else None


def tensor_value(
    node: fx.Node | None,
    example: torch.Tensor,
    source: Source | None = None,
    obj: torch.Tensor | None = None,
) -> TensorValue:
    """Return the value of a tensor, of the class that its example or the real tensor has.

    Raises:
        GraphBreak: a graph cannot contain tensors of its class.
    """
    kind = type(obj) if obj is not None else type(example)
    if kind is FakeTensor and obj is None:
        kind = torch.Tensor
    if kind in (*PLAIN_CLASSES, FakeTensor):
        return TensorValue(node, example, source, kind, obj)
    if obj is None and not is_traceable_wrapper_subclass(example):
        raise breaks.GraphBreak(
            breaks.UNSUPPORTED_VALUE, f"a {kind.__qualname__} in a graph"
        )
    return SubclassValue(node, example, source, kind, obj)


def twin(value: TensorValue, node: fx.Node, example: torch.Tensor) -> TensorValue:
    """Return the value of another tensor of the same class."""
    if isinstance(value, SubclassValue):
        return SubclassValue(node, example, None, value.kind)
    return TensorValue(node, example, kind=value.kind)


class SubclassValue(TensorValue):
    """A tensor of a derived class.

    Attributes:
        wraps: whether it is a wrapper, in the graph too; else the graph has a plain tensor.
        overrides: whether its ``__torch_function__`` overrides operations on it.
    """

    noun = "a tensor of a derived class"

    def __init__(
        self,
        node: fx.Node | None,
        example: torch.Tensor,
        source: Source | None,
        kind: type,
        obj: torch.Tensor | None = None,
    ) -> None:
        super().__init__(node, example, source, kind, obj)
        self.wraps = is_wrapper(kind)
        self.overrides = override_of(kind) is not None
        self.reloadable = self.wraps

    def node(self, t: Interpreter) -> fx.Node:
        t.output.derived.meet(self)
        return super().node(t)

    # -- attributes ------------------------------------------------------------------------
    def attr(self, t: Interpreter, name: str) -> Value:
        if name == "__class__":
            return t.values.known(self.kind)
        raw = own_attribute(self.kind, name)
        found = self._stored(t, name)
        if found is not None:
            return found
        if raw is MISSING and hasattr(torch.Tensor, name):
            return self._tensor_attr(t, name)
        if raw is MISSING:
            return self._missing(t, name)
        if self.wraps and is_library(self.kind.__module__) and callable(raw):
            return LambdaValue(
                lambda t, args, kwargs: t.output.call_torch(
                    name, [self, *args], kwargs, method=True
                ),
                f"{self.kind.__name__}.{name}",
            )
        return t.attributes.bind_descriptor(self, self.kind, raw, name)

    def _tensor_attr(self, t: Interpreter, name: str) -> Value:
        if callable(getattr(torch.Tensor, name)):
            return super().attr(t, name)
        return self.base_attr(t, name)

    def _stored(self, t: Interpreter, name: str) -> Value | None:
        """Return an instance attribute of the tensor, or None; descriptors take precedence."""
        if is_read_first(type_lookup(self.kind, name)):
            return None
        pending = t.effects.attribute(self, name)
        if pending is not None:
            return None if pending is UNBOUND else pending
        if self.source is not None:
            own = getattr(self.obj, "__dict__", {})
            if name in own:
                return t.values.wrap(own[name], AttrSource(self.source, name))
            t.guards.add("NOT_CONTAINS", DictSource(self.source), name)
            return None
        own = getattr(self.example, "__dict__", {}) if self.wraps else {}
        return self._part(t, name, own[name]) if name in own else None

    def _part(self, t: Interpreter, name: str, held: Any) -> Value:
        """Return an attribute of a wrapper that was made inside the graph."""
        known = t.output.derived.held(held)
        if known is not None:
            return known
        if isinstance(held, torch.Tensor | torch.SymInt):
            return t.output.call_torch(getattr, [self, ConstValue(name)], {})
        if is_constant_object(held) or isinstance(held, type):
            return t.values.known(held)
        self.cannot(breaks.UNSUPPORTED_ATTR, f"{self.kind.__name__}.{name}")

    def own_special(self, name: str) -> Any:
        raw = own_attribute(self.kind, name)
        return raw if raw is MISSING else replaced_slot(self.kind, name)

    def _missing(self, t: Interpreter, name: str) -> Value:
        fallback = own_method(self.kind, "__getattr__")
        if fallback is not None:
            return t.inline_object(fallback, [self, ConstValue(name)])
        text = f"'{self.kind.__name__}' object has no attribute '{name}'"
        return t.python.raise_(AttributeError, text)

    def set_attr(self, t: Interpreter, name: str, value: Value) -> None:
        raw = own_attribute(self.kind, name)
        if isinstance(raw, property) and raw.fset is not None:
            t.inline_object(raw.fset, [self, value])
            return
        if hasattr(type(raw), "__set__") or hasattr(torch.Tensor, name) or self.wraps:
            super().set_attr(t, name, value)
        t.effects.store_attribute(self, name, value)

    def base_attr(self, t: Interpreter, name: str) -> Value:
        found = t.intercept(getattr, [self, ConstValue(name)])
        if found is not None:
            return found
        if name in VIEWS and own_attribute(self.kind, name) is not MISSING:
            return t.output.call_torch(tensor_attribute, [self, ConstValue(name)], {})
        return super().attr(t, name)

    # -- operations ------------------------------------------------------------------------
    def method(self, t: Interpreter, name: str, args: Args, kwargs: Kwargs) -> Value:
        stored = self._stored(t, name)
        if stored is not None:
            return stored.call(t, args, kwargs)
        if own_attribute(self.kind, name) is not MISSING or not hasattr(
            torch.Tensor, name
        ):
            return self.attr(t, name).call(t, args, kwargs)
        return self.base_method(t, name, args, kwargs)

    def base_method(
        self, t: Interpreter, name: str, args: Args, kwargs: Kwargs
    ) -> Value:
        found = t.intercept(calling(name), [self, *args], kwargs)
        if found is not None:
            return found
        # a graph must not call this method
        if own_attribute(self.kind, name) is not MISSING:
            return t.output.call_torch(
                getattr(torch.Tensor, name), [self, *args], kwargs
            )
        return super().base_method(t, name, args, kwargs)

    def _special(
        self, t: Interpreter, operation: Any, name: str, args: Args
    ) -> Value | None:
        raw = own_attribute(self.kind, name)
        if raw is not MISSING:
            method = t.attributes.bind_descriptor(self, self.kind, raw, name)
            return method.call(t, args, {})
        return t.intercept(operation, [self, *args])

    def item(self, t: Interpreter, key: Value) -> Value:
        found = self._special(t, operator.getitem, "__getitem__", [key])
        return found if found is not None else super().item(t, key)

    def set_item(self, t: Interpreter, key: Value, value: Value) -> None:
        if self._special(t, operator.setitem, "__setitem__", [key, value]) is None:
            super().set_item(t, key, value)

    def truth(self, t: Interpreter) -> bool:
        found = self._special(t, bool, "__bool__", [])
        if found is None:
            return super().truth(t)
        return t.python.slot_result(self.kind, "__bool__", found).truth(t)

    def length(self, t: Interpreter) -> Value:
        found = self._special(t, len, "__len__", [])
        if found is None:
            return super().length(t)
        return t.python.slot_result(self.kind, "__len__", found)

    def iterate(self, t: Interpreter) -> Value:
        raw = own_attribute(self.kind, "__iter__")
        if raw is not MISSING:
            method = t.attributes.bind_descriptor(self, self.kind, raw, "__iter__")
            return t.python.slot_result(self.kind, "__iter__", method.call(t, [], {}))
        # as torch.Tensor does, through an operation that can be overridden
        if self.overrides:
            self.method(t, "dim", [], {})
            return self.method(t, "unbind", [ConstValue(0)], {}).iterate(t)
        return super().iterate(t)

    # -- the way back ----------------------------------------------------------------------
    def rebuild(self, r: ResidualInterface) -> None:
        if self.wraps:
            super().rebuild(r)
            return
        r.load_callable(as_subclass)
        r.load_output(self)
        r.load_object(self.kind)
        r.e.call(2)


class DerivedTensors:
    """The derived tensors of a graph, which determine how it has to be run.

    Attributes:
        native: whether overrides that are PyTorch's own code run with the graph's nodes.
        below: whether overrides were traced, so that the nodes must not run them again.
    """

    def __init__(self) -> None:
        self.native = False
        self.below = False
        self.making = False
        self._native_now = False
        self._held: dict[int, tuple[Any, Value]] = {}

    def hold(self, pairs: Iterable[tuple[Value, Any]]) -> None:
        """Record values that a wrapper may hold from now on, each with the object in its fake."""
        self._held.update((id(fake), (fake, value)) for value, fake in pairs)

    def held(self, fake: Any) -> Value | None:
        """Return the value of a part of a wrapper's fake, if it was recorded."""
        known = self._held.get(id(fake))
        return known[1] if known is not None else None

    def forget(self, making: bool = False) -> None:
        """Begin a new call.

        ``making``: it is a call of a class, whose object holds the arguments.
        """
        self._native_now = False
        self.making = making

    def meet(self, value: NodeValue) -> None:
        """Record an argument of the call."""
        if not isinstance(value, SubclassValue):
            return
        if value.wraps and not value.overrides:
            self._native_now = True
        elif value.wraps or value.source is not None:
            self.below |= value.overrides

    @contextmanager
    def as_below(self, level: int) -> Iterator[None]:
        """Enable overrides in the block if they will run with the call's node."""
        if not self._native_now:
            yield
        elif level == ON:
            self.native = True
            with torch._C._EnableTorchFunction():
                yield
        else:
            self.below = True
            yield


def tensor_attribute(tensor: torch.Tensor, name: str) -> Any:
    """Return an attribute as ``torch.Tensor`` itself has it; called from graphs."""
    return getattr(torch.Tensor, name).__get__(tensor)


def as_subclass(tensor: torch.Tensor, kind: type) -> torch.Tensor:
    """Return a plain tensor as one of a derived class; called from residual code."""
    with torch._C.DisableTorchFunctionSubclass():
        return tensor.as_subclass(kind)


def with_class(t: Interpreter, value: NodeValue, kind: type) -> Value:
    """Return the value of ``value.as_subclass(kind)``.

    Raises:
        GraphBreak: the class holds more than a tensor.
    """
    if is_wrapper(kind) or (isinstance(value, SubclassValue) and value.wraps):
        raise breaks.GraphBreak(
            breaks.UNSUPPORTED_CALL, f"as_subclass({kind.__qualname__})"
        )
    dispatch = getattr(kind, "__torch_dispatch__", None)
    if dispatch is not torch.Tensor.__torch_dispatch__:
        raise breaks.GraphBreak(
            breaks.UNSUPPORTED_CALL, f"as_subclass({kind.__qualname__})"
        )
    if kind is torch.Tensor:
        if value.source is None:
            return TensorValue(value.node(t), value.example)
        with t.overrides.at_least(CLASSES_OFF):
            return t.output.call_torch(torch.ops.aten.alias.default, [value], {})
    return SubclassValue(value.node(t), value.example, None, kind)
