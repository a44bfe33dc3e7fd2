"""Tensors and symbolic numbers: values that are nodes of the graph, with a fake as example."""

from __future__ import annotations

import copy
import math
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from tc.compiler.capture import breaks
from tc.compiler.capture.values.base import UNBOUND, Args, Kwargs, NotConstant, Value
from tc.compiler.capture.values.const import ConstValue
from tc.compiler.capture.values.lookup import MISSING, python_method, type_lookup
from tc.compiler.core.memory import (
    REPLACED,
    layout,
    note_replaced,
    same_memory,
    takes_data,
)
from tc.compiler.core.sources import AttrSource, Source

if TYPE_CHECKING:
    from torch import fx

    from tc.compiler.capture.values.interfaces import Interpreter, ResidualInterface


#: Attributes that are read from the fake tensor, without a node.
METADATA = frozenset(
    [
        "dtype",
        "device",
        "layout",
        "ndim",
        "requires_grad",
        "is_cuda",
        "is_cpu",
        "is_sparse",
        "is_quantized",
        "is_leaf",
        "is_mps",
        "is_xpu",
        "is_meta",
        "is_nested",
        "itemsize",
        "names",
        "is_mkldnn",
        "is_vulkan",
        "is_mtia",
        "is_ipu",
        "is_xla",
        "is_ort",
        "is_maia",
        "is_sparse_csr",
        "retains_grad",
        "output_nr",
    ]
).intersection(dir(torch.Tensor))  # not all versions of torch have all of them
#: attributes that fake tensors do not copy from real ones
REAL = frozenset(("output_nr", "retains_grad"))
VIEWS = frozenset(("T", "mT", "H", "mH", "real", "imag", "data"))
REFUSED = frozenset(
    [
        "data_ptr",
        "const_data_ptr",
        "mutable_data_ptr",
        "__str__",
        "__format__",
        "untyped_storage",
        "storage",
        "resize_",
        "share_memory_",
        "retain_grad",
        "__reduce_ex__",
        "__array__",
    ]
)
CONSTANT_METHODS = frozenset(
    [
        "dim",
        "ndimension",
        "is_floating_point",
        "is_complex",
        "is_contiguous",
        "element_size",
        "get_device",
        "is_signed",
        "is_conj",
        "is_neg",
        "is_shared",
        "is_pinned",
        "type_as",
    ]
)


class NodeValue(Value):
    """A value that a node of the graph computes (or that is an input of the graph).

    Attributes:
        node: the node; made on first use for graph inputs.
        example: fake tensor or symbolic number.
    """

    example: Any
    #: whether the graph's output is the object itself
    reloadable = True

    def __init__(
        self, node: fx.Node | None, example: Any, source: Source | None = None
    ) -> None:
        self._node = node
        self.example = example
        self.source = source

    def node(self, t: Interpreter) -> fx.Node:
        """Return the graph node, making the input for it on first use."""
        if self._node is None:
            assert self.source is not None, "an unsourced value has a node"
            self._node = t.output.add_input(self)
        return t.output.in_scope(self._node, self.example)

    def rebuild(self, r: ResidualInterface) -> None:
        r.load_output(self)


class TensorValue(NodeValue):
    """A tensor.

    Attributes:
        kind: its class (torch.Tensor or torch.nn.Parameter).
        obj: the real tensor of a sourced value, for attributes users put on it.
    """

    noun = "a tensor"

    def __init__(
        self,
        node: fx.Node | None,
        example: torch.Tensor,
        source: Source | None = None,
        kind: type = torch.Tensor,
        obj: torch.Tensor | None = None,
    ) -> None:
        super().__init__(node, example, source)
        self.kind = kind
        self.obj: torch.Tensor | None = obj
        #: the tensor before a store to its ``.data``, if it is differentiable
        self.before: TensorValue | None = None
        #: whether `take` gave it other memory
        self.was_set = False

    def python_type(self) -> type:
        return self.kind

    def node(self, t: Interpreter) -> fx.Node:
        if self.before is not None and torch.is_grad_enabled():
            return self._with_history(t, self.before).node(t)
        return super().node(t)

    def _with_history(self, t: Interpreter, before: TensorValue) -> TensorValue:
        """Return a tensor with the data that was stored, and the gradient of this one."""
        made = before.method(t, "clone", [], {})
        assert isinstance(made, TensorValue)
        if layout(made.example) != layout(self.example):
            self.cannot(
                breaks.UNSUPPORTED_STORE, f"{self.describe()}.data, before a use of it"
            )
        memory = made.method(t, "detach", [], {})
        memory.method(t, "copy_", [self.attr(t, "data")], {})
        return made

    def attr(self, t: Interpreter, name: str) -> Value:
        stored = t.effects.attribute(self, name)
        if stored is not None and stored is not UNBOUND:
            return stored.attr(t, name) if name == "data" else stored
        if t.overrides.modes and isinstance(getattr(torch.Tensor, name, None), GETTERS):
            found = t.intercept(getattr, [self, ConstValue(name)])
            if found is not None:
                return found
        if name == "shape":
            return t.output.tensor_size(self)
        if name in METADATA:
            t.guards.tensor_property(self, name)
            real = name in REAL and self.obj is not None and self.source is not None
            return t.values.known(getattr(self.obj if real else self.example, name))
        if name == "nbytes" and self.example.layout is torch.strided:
            size = ConstValue(self.example.itemsize)
            return t.python.binary("mul", self.method(t, "numel", [], {}), size)
        if name in VIEWS:
            return t.output.call_torch(getattr, [self, ConstValue(name)], {})
        if name == "__class__":
            return t.values.known(self.kind)
        if name in ("grad", "grad_fn", "_base"):
            return self._foreign_attr(t, name)
        if name == "_version":
            return self._writes(t)
        if self.obj is not None and name in getattr(self.obj, "__dict__", {}):
            return self._foreign_attr(t, name)
        member = getattr(torch.Tensor, name, None)
        if callable(member):
            return TensorMethod(self, name)
        if member is None and not hasattr(torch.Tensor, name):
            if self.source is not None:
                t.guards.add("NO_ATTR", self.source, name)
            return t.python.raise_(
                AttributeError,
                f"'{self.kind.__name__}' object has no attribute '{name}'",
            )
        self.cannot(breaks.UNSUPPORTED_ATTR, f"Tensor.{name}")

    def _writes(self, t: Interpreter) -> Value:
        """Return how often the tensor's memory was written to: before the frame, and by it."""
        stored = t.effects.attribute(self, "data") is not None
        inference = t.modes.inference or self.example.is_inference()
        if stored or self.was_set or inference or not t.output.counts_writes:
            self.cannot(breaks.UNSUPPORTED_ATTR, "Tensor._version")
        inside = ConstValue(self.example._version)  # that of a new fake is 0
        if self.obj is None or self.source is None:
            return inside
        source = AttrSource(self.source, "_version")
        before = t.values.wrap(self.obj._version, source)
        return t.python.binary("add", before, inside) if inside.obj else before

    def _foreign_attr(self, t: Interpreter, name: str) -> Value:
        if self.obj is None or self.source is None:
            if name == "grad" or (name == "grad_fn" and self.example.grad_fn is None):
                return ConstValue(None)
            self.cannot(breaks.UNSUPPORTED_ATTR, f"Tensor.{name}")
        return t.values.wrap(getattr(self.obj, name), AttrSource(self.source, name))

    def set_attr(self, t: Interpreter, name: str, value: Value) -> None:
        gradient = name == "grad" and (
            t.python.is_none(value) or isinstance(value, TensorValue)
        )
        outside = len(t.output.scopes) == 1
        plain = not hasattr(torch.Tensor, name) and outside
        data = name == "data" and outside and self._takes_data_of(t, value)
        if not plain and not ((gradient or data) and self.source is not None):
            self.cannot(breaks.UNSUPPORTED_STORE, f"{self.describe()}.{name}")
        if data and self._take_data(t, value.attr(t, "data")):
            return
        if gradient:
            name_of = f"{self.describe()}.grad"
            t.effects.stored_data.add(name_of, self.example, of_data=False)
        t.effects.store_attribute(self, name, value)

    def _take_data(self, t: Interpreter, now: Value) -> bool:
        """Have the graph use another tensor's memory from here on; the store follows the graph.

        Returns:
            Whether it is the memory that the tensor has already.
        """
        assert isinstance(now, TensorValue)
        one = self.example
        other = now.example
        if same_memory(one, other):
            return True
        node = now.node(t)
        if note_replaced(self._node):
            t.output.marks.add(REPLACED)
        if one.requires_grad:
            self.before = self.before or copy.copy(self)
            with t.shapes.mode:
                other = other.detach().requires_grad_()
        self._node = node
        self.example = other
        t.effects.stored_data.add(f"{self.describe()}.data", other, of_data=True)
        return False

    def take(self, t: Interpreter, other: TensorValue) -> None:
        """Have the memory and the sizes of another tensor, as after ``set_``."""
        self._node = other.node(t)
        self.example = other.example
        self.was_set = True

    def _takes_data_of(self, t: Interpreter, value: Value) -> bool:
        """Return whether a plain tensor accepts another's data, whatever its shape."""
        if t.overrides.modes or not isinstance(value, TensorValue):
            return False
        plain = {self.kind, value.kind} <= {torch.Tensor, torch.nn.Parameter}
        return plain and takes_data(self.example, value.example)

    def base_attr(self, t: Interpreter, name: str) -> Value:
        """Return an attribute of ``torch.Tensor`` itself, bypassing derived classes."""
        return self.attr(t, name)

    def method(self, t: Interpreter, name: str, args: Args, kwargs: Kwargs) -> Value:
        return self.base_method(t, name, args, kwargs)

    def base_method(
        self, t: Interpreter, name: str, args: Args, kwargs: Kwargs
    ) -> Value:
        """Call a method of ``torch.Tensor`` itself, bypassing derived classes."""
        if t.overrides.modes:
            found = t.intercept(calling(name), [self, *args], kwargs)
            if found is not None:
                return found
        special = METHODS.get(name)
        if special is not None:
            return breaks.call_handler(f"Tensor.{name}", special, t, self, args, kwargs)
        if name in REFUSED or not hasattr(torch.Tensor, name):
            self.cannot(breaks.UNSUPPORTED_CALL, f"Tensor.{name}")
        return t.output.call_torch(name, [self, *args], kwargs, method=True)

    def call(self, t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
        return t.python.raise_(TypeError, "'Tensor' object is not callable")

    def item(self, t: Interpreter, key: Value) -> Value:
        if t.item_of_tensor is not None:
            found = t.item_of_tensor(t, self, key)
            if found is not None:
                return found
        return METHODS["__getitem__"](t, self, [key], {})

    def set_item(self, t: Interpreter, key: Value, value: Value) -> None:
        METHODS["__setitem__"](t, self, [key, value], {})

    def truth(self, t: Interpreter) -> bool:
        # known where made of constants
        contents = getattr(self.example, "constant", None)
        if contents is None:
            self.cannot(breaks.DATA_BRANCH, "")
        return bool(t.python.fold(bool, contents))

    def length(self, t: Interpreter) -> Value:
        found = t.intercept(len, [self]) if t.overrides.modes else None
        if found is not None:
            return found
        if self.example.dim() == 0:
            return t.python.raise_(TypeError, "len() of a 0-d tensor")
        return t.output.tensor_size(self).item(t, ConstValue(0))

    def iterate(self, t: Interpreter) -> Value:
        if t.overrides.modes:  # `Tensor.__iter__` asks it
            self.method(t, "dim", [], {})
        if self.example.dim() == 0:
            return t.python.raise_(TypeError, "iteration over a 0-d tensor")
        return self.method(t, "unbind", [ConstValue(0)], {}).iterate(t)

    def unpack_rows(self, t: Interpreter) -> list[TensorValue]:
        """Return the rows of the tensor."""
        return [row for row in self.unpack(t) if isinstance(row, TensorValue)]


def calling(name: str) -> Callable[..., Any]:
    """Return the function that calls a method of its first argument."""
    return lambda owner, *args, **kwargs: getattr(owner, name)(*args, **kwargs)


#: names in torch.Tensor that are attributes, not methods
GETTERS = (types.GetSetDescriptorType, property)


class TensorMethod(Value):
    """A bound method of a tensor."""

    def __init__(self, owner: TensorValue, name: str) -> None:
        self.owner = owner
        self.name = name

    def describe(self) -> str:
        return f"Tensor.{self.name}"

    def python_type(self) -> type:
        in_python = python_method(torch.Tensor, self.name) is not None
        return types.MethodType if in_python else types.BuiltinMethodType

    def call(self, t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
        return self.owner.method(t, self.name, args, kwargs)

    def children(self, t: Interpreter) -> list[Value]:
        return [self.owner]

    def rebuild(self, r: ResidualInterface) -> None:
        r.push(self.owner)
        r.e.load_attr(self.name)


class SymValue(NodeValue):
    """A symbolic int, float or bool: a size that may differ from call to call."""

    noun = "a size"

    def python_type(self) -> type:
        kinds = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}
        return kinds[type(self.example)]

    def truth(self, t: Interpreter) -> bool:
        return bool(t.shapes.guarded(bool, self.example))

    def specialise(self, t: Interpreter) -> ConstValue:
        """Return the current value as a constant, and guard it."""
        return ConstValue(t.shapes.guarded(self.python_type(), self.example))

    def attr(self, t: Interpreter, name: str) -> Value:
        kind = self.python_type()
        found = type_lookup(kind, name)
        if name == "__class__":
            return t.values.known(kind)
        if found is MISSING:
            t.python.fold(getattr, kind(1), name)  # Python's own error
        if isinstance(found, types.MethodDescriptorType | types.WrapperDescriptorType):
            return t.attributes.builtin_method(self, name)
        if kind is not bool and name in PARTS_OF_NUMBERS:
            part = PARTS_OF_NUMBERS[name]
            return self if part is None else ConstValue(kind(part))
        return self.specialise(t).attr(t, name)

    def method(self, t: Interpreter, name: str, args: Args, kwargs: Kwargs) -> Value:
        kind = self.python_type()
        if len(args) == 1 and not kwargs and kind is not bool:
            if name in OF_NUMBERS and args[0].python_type() is kind:
                function, reflected = OF_NUMBERS[name]
                pair = (args[0], self) if reflected else (self, args[0])
                return t.python.binary(function, *pair)
            if name == "__divmod__":
                return t.python.divmod(self, args[0])
        if not args and not kwargs and kind is not bool:
            own = self._of_itself(t, kind, name)
            if own is not None:
                return own
        return self.specialise(t).method(t, name, args, kwargs)

    def _of_itself(self, t: Interpreter, kind: type, name: str) -> Value | None:
        """Return the result of a method without arguments; None if it decides the number."""
        if name in UNARY:
            return t.python.unary(UNARY[name], self)
        if name == "conjugate" or (kind is int and name in TO_WHOLE):
            return self
        if name in TO_WHOLE and TO_WHOLE[name] is not None:
            return t.output.call_torch(TO_WHOLE[name], [self], {})
        if name in ("__str__", "__repr__"):
            return t.python.convert_text(repr, self)
        return None


def decided(t: Interpreter, value: Value) -> Value:
    """Return a value; of a symbolic bool the constant that it is now, guarded.

    To Python a bool is one of two objects, and a number; a symbolic one is neither. It can be
    branched on and given to functions of the graph; whatever else looks at it gets the constant.
    """
    if isinstance(value, SymValue) and isinstance(value.example, torch.SymBool):
        return value.specialise(t)
    return value


#: attributes of numbers -> what they are; None: the number itself
PARTS_OF_NUMBERS = {"real": None, "imag": 0, "numerator": None, "denominator": 1}
#: methods of numbers -> the operator that they implement
UNARY = {"__neg__": "neg", "__pos__": "pos", "__abs__": "abs", "__invert__": "invert"}
#: methods that make a number whole -> what does so with floats, if it need not know the number
TO_WHOLE: dict[str, Any] = {
    "__int__": math.trunc,
    "__index__": None,
    "__trunc__": math.trunc,
    "__floor__": math.floor,
    "__ceil__": math.ceil,
    "__round__": None,
}
#: operators of numbers that also have a reflected method
ARITHMETIC = (
    "add",
    "sub",
    "mul",
    "truediv",
    "floordiv",
    "mod",
)
OF_WHOLE = (
    "pow",
    "lshift",
    "rshift",
    "and_",
    "or_",
    "xor",
)
COMPARISONS = (
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
)
#: special methods of numbers -> the operator that they implement, and whether operands are swapped
OF_NUMBERS = {
    **{f"__{name}__": (name, False) for name in (*ARITHMETIC, *COMPARISONS)},
    **{f"__r{name}__": (name, True) for name in ARITHMETIC},
    **{f"__{name.rstrip('_')}__": (name, False) for name in OF_WHOLE},
}


def _size(t: Interpreter, tensor: TensorValue, args: Args, kwargs: Kwargs) -> Value:
    size = t.output.tensor_size(tensor)
    dims = [one for one in (*args, *kwargs.values()) if not t.python.is_none(one)]
    if not dims:
        return size
    count, dim = tensor.example.dim(), t.python.concrete(dims[0])
    if not -count <= dim < count:
        raise IndexError(f"dimension {dim} of {count}")
    return size.item(t, ConstValue(dim))


def _numel(t: Interpreter, tensor: TensorValue, args: Args, kwargs: Kwargs) -> Value:
    return t.output.number_from(tensor, "numel", tensor.example.numel())


def _stride(t: Interpreter, tensor: TensorValue, args: Args, kwargs: Kwargs) -> Value:
    strides = [
        t.output.number_from(tensor, "stride", s, dim)
        for dim, s in enumerate(tensor.example.stride())
    ]
    dims = [one for one in (*args, *kwargs.values()) if not t.python.is_none(one)]
    return strides[t.python.concrete(dims[0])] if dims else t.values.new_tuple(strides)


def _type(t: Interpreter, tensor: TensorValue, args: Args, kwargs: Kwargs) -> Value:
    if args and args[0].is_constant() and isinstance(args[0].constant(), type):
        # torch.FloatTensor prints in a graph only as its name
        kind = args[0].constant()
        args = [ConstValue(f"{kind.__module__}.{kind.__name__}"), *args[1:]]
    if args or kwargs:
        return t.output.call_torch("type", [tensor, *args], kwargs, method=True)
    return t.values.known(tensor.example.type())


def _new(t: Interpreter, tensor: TensorValue, args: Args, kwargs: Kwargs) -> Value:
    if len(args) == 1 and args[0].python_type() is torch.Size:
        sizes = t.values.new_tuple(
            args[0].unpack(t)
        )  # new() of a tuple makes a tensor of its numbers
        return t.output.call_torch("new_empty", [tensor, sizes], {}, method=True)
    return t.output.call_torch("new", [tensor, *args], kwargs, method=True)


def _constant(name: str) -> Any:
    def handler(
        t: Interpreter, tensor: TensorValue, args: Args, kwargs: Kwargs
    ) -> Value:
        try:
            plain = [a.constant() for a in args]
            named = {k: v.constant() for k, v in kwargs.items()}
        except NotConstant:
            return t.output.call_torch(name, [tensor, *args], kwargs, method=True)
        t.guards.tensor_property(tensor, name, method=True)
        real = name in ("is_shared", "is_pinned") and tensor.obj is not None
        owner = tensor.obj if real and tensor.source is not None else tensor.example
        return t.python.folded(getattr(owner, name), *plain, **named)

    return handler


METHODS: dict[str, Callable[[Interpreter, TensorValue, Args, Kwargs], Value]] = {
    "size": _size,
    "numel": _numel,
    "nelement": _numel,
    "stride": _stride,
    "type": _type,
    "new": _new,
    "__getitem__": lambda t, x, args, kwargs: TensorValue.item(x, t, args[0]),
    "__len__": lambda t, x, args, kwargs: TensorValue.length(x, t),
    "__iter__": lambda t, x, args, kwargs: TensorValue.iterate(x, t),
    **{name: _constant(name) for name in CONSTANT_METHODS - {"type_as"}},
}
