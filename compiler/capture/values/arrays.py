"""numpy arrays: calls of numpy become nodes that run the same function on tensors.

PyTorch's own numpy over tensors (``torch._numpy``) does the work, so types are promoted and errors
raised as numpy does; arrays enter the graph as tensors that share their memory.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from tc.compiler.capture import breaks
from tc.compiler.capture.array_memory import as_number, as_tensor
from tc.compiler.capture.values.base import Args, Kwargs, Slot, Value
from tc.compiler.capture.values.const import ConstValue
from tc.compiler.capture.values.containers import ListValue, SequenceValue, TupleValue
from tc.compiler.capture.values.dicts import DictValue
from tc.compiler.capture.values.slices import SliceValue
from tc.compiler.capture.values.subclasses import OFF
from tc.compiler.capture.values.tensor import METHODS, SymValue, TensorValue
from tc.compiler.core.sources import CallSource, Source

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter, ResidualInterface

#: functions that return an array even if the result has no dimension
MAKERS = frozenset(
    ("array", "asarray", "ascontiguousarray", "zeros", "ones", "empty", "full", "reshape", "copy")
)
#: functions that accept types in place of arrays
ON_TYPES = frozenset(
    ("issubdtype", "can_cast", "promote_types", "result_type", "min_scalar_type", "isscalar")
)
#: functions whose results differ from numpy's in shape or type
DIFFERENT = frozenset(("median", "percentile", "quantile", "corrcoef", "cov", "histogram"))
TO_PYTHON = frozenset(("item", "tolist", "tobytes", "__bool__", "__int__", "__float__"))
#: functions that make an array of lists of arrays
STACKING = frozenset(("array", "asarray"))
#: methods that write into the array
WRITES = frozenset(("__setitem__", "sort", "fill", "resize", "partition", "put", "itemset"))
#: what reads and writes elements of a tensor
INDEXED = frozenset(("getitem", "setitem"))
#: scalars that these take for indices and elements
NUMBERS = (np.integer, float, complex)
#: operators to which a tensor without dimensions is what a number is
LINEAR = frozenset(("add", "sub", "mul", "truediv", "iadd", "isub", "imul", "itruediv"))
#: options of ``torch.tensor`` that `tensor_copy` has
COPY_OPTIONS = frozenset(("dtype", "device", "requires_grad"))
FIELDS = frozenset(("T", "real", "imag", "flat"))


# -- run time --------------------------------------------------------------------------------
@functools.cache
def tensor_numpy() -> Any:
    """Return PyTorch's numpy over tensors."""
    import torch._numpy as tensor_numpy

    return tensor_numpy


def numpy_call(name: str, args: Any, kwargs: Any) -> Any:
    """Call a numpy function on tensors; called from graphs."""
    found = tensor_numpy()
    for part in name.split("."):
        found = getattr(found, part)
    if name in STACKING and args and isinstance(args[0], list | tuple):
        args = (_stacked(args[0]), *args[1:])
    return _tensors(found(*_arrays(args), **_arrays(kwargs)))


def _stacked(items: Any) -> Any:
    """Return nested lists of arrays as one array if all items are arrays of one shape."""
    parts = [_stacked(item) if isinstance(item, list | tuple) else item for item in items]
    if not parts or not all(isinstance(part, torch.Tensor) for part in parts):
        return items
    if len({part.dtype for part in parts}) != 1:
        return items  # numpy's type promotion differs from torch's
    return torch.stack(parts)


def numpy_method(name: str, owner: Any, args: Any, kwargs: Any) -> Any:
    """Call a method of an array, given as a tensor; called from graphs."""
    array = tensor_numpy().ndarray(owner)
    return _tensors(getattr(array, name)(*_arrays(args), **_arrays(kwargs)))


def numpy_attribute(name: str, owner: Any) -> Any:
    """Read an attribute of an array, given as a tensor; called from graphs."""
    return _tensors(getattr(tensor_numpy().ndarray(owner), name))


def tensor_copy(
    array: torch.Tensor,
    dtype: torch.dtype | None = None,
    device: Any = None,
    requires_grad: bool = False,
) -> torch.Tensor:
    """Do what ``torch.tensor`` does with an array, given as a tensor; called from graphs.

    With a tensor, ``torch.tensor`` itself would warn.
    """
    place = torch.get_default_device() if device is None else device
    made = array.detach().to(device=place, dtype=dtype or array.dtype, copy=True)
    return made.requires_grad_() if requires_grad else made


def _arrays(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return tensor_numpy().ndarray(value)
    if isinstance(value, tuple | list):
        return type(value)(_arrays(item) for item in value)
    if isinstance(value, dict):
        return {key: _arrays(item) for key, item in value.items()}
    return value


def _tensors(value: Any) -> Any:
    if isinstance(value, tensor_numpy().ndarray):
        return value.tensor
    if isinstance(value, tuple | list):
        return type(value)(_tensors(item) for item in value)
    return value


# -- values ----------------------------------------------------------------------------------
class ArrayValue(Value):
    """A numpy array, or a numpy scalar if `scalar`, represented by a tensor.

    Attributes:
        tensor: the tensor that represents it in the graph.
    """

    noun = "a numpy array"

    def __init__(
        self, tensor: TensorValue, scalar: bool = False, source: Source | None = None
    ) -> None:
        self.tensor = tensor
        self.scalar = scalar
        self.source = source

    @property
    def dtype(self) -> Any:
        """The array's numpy dtype."""
        empty = torch.empty(0, dtype=self.tensor.example.dtype, device="cpu")
        return empty.numpy().dtype

    def python_type(self) -> type:
        return self.dtype.type if self.scalar else np.ndarray

    def number(self, t: Interpreter) -> Value | None:
        """Return the Python number that a scalar is to torch, or None where only runs know it."""
        return None

    def key(self, t: Interpreter) -> Any:
        """Return the scalar itself, as a key, after guarding its value."""
        self.cannot(breaks.TENSOR_ITEM, "hash()")

    def attr(self, t: Interpreter, name: str) -> Value:
        if name == "shape":
            return TupleValue(list(t.output.tensor_size(self.tensor).values(t)))
        if name in ("ndim", "itemsize"):
            return ConstValue(getattr(self.tensor.example, name))
        if name == "size":
            return METHODS["numel"](t, self.tensor, [], {})
        if name == "dtype":
            return ConstValue(self.dtype)
        if name in ("strides", "nbytes"):
            size = ConstValue(self.tensor.example.itemsize)
            if name == "nbytes":
                count = METHODS["numel"](t, self.tensor, [], {})
                return t.python.binary("mul", count, size)
            strides = METHODS["stride"](t, self.tensor, [], {}).unpack(t)
            return TupleValue([t.python.binary("mul", stride, size) for stride in strides])
        if name in FIELDS:
            return _record(t, numpy_attribute, (name, self.tensor), scalars=False)
        if not hasattr(np.ndarray, name):
            text = f"'numpy.ndarray' object has no attribute '{name}'"
            return t.python.raise_(AttributeError, text)
        if not callable(getattr(np.ndarray, name)):
            self.cannot(breaks.UNSUPPORTED_ATTR, f"ndarray.{name}")
        return t.attributes.builtin_method(self, name)

    def method(self, t: Interpreter, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name == "tolist" and not args and not kwargs:
            return self.tensor.method(t, "tolist", [], {})
        if name in TO_PYTHON:
            self.cannot(breaks.TENSOR_ITEM, f"{name}()")
        if not hasattr(tensor_numpy().ndarray, name):
            self.cannot(breaks.UNSUPPORTED_CALL, f"ndarray.{name}")
        t.guards.aliasing_matters |= name in WRITES or name.startswith("__i")
        given = t.values.new_tuple([_argument(t, a) for a in args]), _named(t, kwargs)
        scalars = name not in ("reshape", "copy", "astype", "view", "transpose")
        found = _record(t, numpy_method, (name, self.tensor, *given), scalars)
        return ConstValue(None) if name == "__setitem__" else found

    def truth(self, t: Interpreter) -> bool:
        return self.cannot(breaks.DATA_BRANCH, "")

    def length(self, t: Interpreter) -> Value:
        return self.tensor.length(t)

    def iterate(self, t: Interpreter) -> Value:
        rows = self.tensor.unpack_rows(t)
        arrays = [ArrayValue(row, row.example.dim() == 0) for row in rows]
        return t.values.list_of(arrays).iterate(t)

    def children(self, t: Interpreter) -> list[Value]:
        return [self.tensor]

    def rebuild(self, r: ResidualInterface) -> None:
        r.load_callable(_to_scalar if self.scalar else _to_array)
        r.push(self.tensor)
        r.e.call(1)


class KnownScalar(ArrayValue):
    """A numpy scalar that exists while the program is captured; its tensor is made on demand."""

    def __init__(
        self, obj: np.generic, make: Callable[[], TensorValue], source: Source | None = None
    ) -> None:
        self.obj = obj
        self.scalar = True
        self.source = source
        self._make = make

    @functools.cached_property
    def tensor(self) -> TensorValue:  # type: ignore[override]
        """The tensor that represents it in the graph."""
        return self._make()

    @property
    def dtype(self) -> Any:
        return self.obj.dtype

    def children(self, t: Interpreter) -> list[Value]:
        return []


class FixedScalar(KnownScalar):
    """A numpy scalar that traced code made of constants."""

    def number(self, t: Interpreter) -> Value:
        return ConstValue(as_number(self.obj))

    def key(self, t: Interpreter) -> Any:
        return self.obj

    def constant(self) -> Any:
        return self.obj

    def method(self, t: Interpreter, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name in TO_PYTHON and all(a.is_constant() for a in args):
            return t.python.folded(getattr(self.obj, name), *t.python.concrete_list(args))
        return super().method(t, name, args, kwargs)

    def truth(self, t: Interpreter) -> bool:
        return bool(t.python.fold(bool, self.obj))

    def rebuild(self, r: ResidualInterface) -> None:
        r.load_object(self.obj)


class GivenScalar(KnownScalar):
    """A numpy scalar that the program is given: a tensor to numpy, a guarded number to torch."""

    source: Source

    def __init__(self, obj: np.generic, make: Callable[[], TensorValue], source: Source) -> None:
        super().__init__(obj, make, source)
        self._read_before: dict[str, Value] = {}

    def number(self, t: Interpreter) -> Value:
        return self._read(t, as_number, "as_number({})")

    def key(self, t: Interpreter) -> Any:
        t.python.concrete(self._read(t, *READ_AS["item"]))
        return self.obj

    def method(self, t: Interpreter, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name in READ_AS and not args and not kwargs:
            return self._read(t, *READ_AS[name])
        return super().method(t, name, args, kwargs)

    def truth(self, t: Interpreter) -> bool:
        return self._read(t, bool, "bool({})").truth(t)

    def _read(self, t: Interpreter, read: Callable[[Any], Any], text: str) -> Value:
        if text not in self._read_before:  # one symbol, however often it is used
            source = CallSource(self.source, read, text)
            self._read_before[text] = t.values.wrap(read(self.obj), source)
        return self._read_before[text]


def _to_array(tensor: torch.Tensor) -> Any:
    return tensor.numpy(force=True)


def _to_scalar(tensor: torch.Tensor) -> Any:
    return tensor.numpy(force=True)[()]


def _item(scalar: np.generic) -> Any:
    return scalar.item()


#: how a method of a scalar is read off it: the function, and how its source is printed
READ_AS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "item": (_item, "{}.item()"),
    "tolist": (_item, "{}.item()"),
    "__bool__": (bool, "bool({})"),
    "__int__": (int, "int({})"),
    "__float__": (float, "float({})"),
}


class NumpyFunctionValue(Value):
    """A function of numpy that ``torch._numpy`` implements on tensors."""

    noun = "a numpy function"

    def __init__(self, obj: Any, name: str, source: Source | None) -> None:
        self.obj = obj
        self.name = name
        self.source = source

    def python_type(self) -> type:
        return type(self.obj)

    def constant(self) -> Any:
        return self.obj

    def describe(self) -> str:
        return f"numpy.{self.name}"

    def attr(self, t: Interpreter, name: str) -> Value:
        return t.python.folded(getattr, self.obj, name)

    def call(self, t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
        if self.name.startswith("random."):
            self.cannot(breaks.BUILTIN_CALL, f"numpy.{self.name}()")
        operands = (*args, *kwargs.values())
        if self.name in ON_TYPES and all(one.is_constant() for one in operands):
            plain = t.python.concrete_list(args)
            named = t.python.concrete_dict(kwargs)
            return t.python.folded(self.obj, *plain, **named)
        given = t.values.new_tuple([_argument(t, a) for a in args]), _named(t, kwargs)
        out = kwargs.get("out")
        t.guards.aliasing_matters |= out is not None
        found = _record(t, numpy_call, (self.name, *given), self.name not in MAKERS)
        return out if isinstance(out, ArrayValue) else found

    def rebuild(self, r: ResidualInterface) -> None:
        r.load_object(self.obj)


def _record(
    t: Interpreter, target: Callable[..., Any], args: tuple[Any, ...], scalars: bool
) -> Value:
    values = [a if isinstance(a, Value) else ConstValue(a) for a in args]
    with t.overrides.at_least(OFF):  # the program does not call torch here, so no override applies
        return _as_arrays(t, t.output.call_torch(target, values, {}), scalars)


def _as_arrays(t: Interpreter, value: Value, scalars: bool) -> Value:
    if isinstance(value, TensorValue):
        return ArrayValue(value, scalars and value.example.dim() == 0)
    if isinstance(value, TupleValue):
        return TupleValue([_as_arrays(t, v, scalars) for v in value.values(t)])
    if isinstance(value, ListValue):
        return ListValue([_as_arrays(t, v, scalars) for v in value.values(t)])
    return value


def _named(t: Interpreter, kwargs: Kwargs) -> DictValue:
    return t.values.dict_of((key, _argument(t, value)) for key, value in kwargs.items())


def unboxed(t: Interpreter, value: Value) -> Value:
    """Return a value with tensors in the place of arrays, for functions that make tensors."""
    if isinstance(value, ArrayValue):
        return value.tensor
    if isinstance(value, SequenceValue):
        items = value.values(t)
        found: list[Slot] = [unboxed(t, item) for item in items]
        if any(a is not b for a, b in zip(items, found, strict=True)):
            return ListValue(found)
    return value


def _argument(t: Interpreter, value: Value) -> Value:
    """Return numpy's argument as a node's argument: dtypes by name, arrays as tensors."""
    if isinstance(value, ArrayValue):
        return value.tensor
    if isinstance(value, TensorValue | SymValue):
        return value
    if isinstance(value, TupleValue):
        return TupleValue([_argument(t, v) for v in value.values(t)])
    if isinstance(value, SequenceValue):
        return ListValue([_argument(t, v) for v in value.values(t)])
    if isinstance(value, SliceValue):
        return SliceValue([_argument(t, part) for part in value.parts])
    constant = value.constant() if value.is_constant() else None
    if isinstance(constant, np.dtype) or (isinstance(constant, type) and _is_dtype(constant)):
        return ConstValue(np.dtype(constant).name)
    return value


def _is_dtype(kind: type) -> bool:
    abstract = bool(kind.__subclasses__())  # numpy.integer: no array has it
    return (issubclass(kind, np.generic) and not abstract) or kind in (bool, int, float, complex)


# -- operands of torch -----------------------------------------------------------------------
def _rank(dtype: torch.dtype) -> int:
    """Return the place of a type among the kinds of numbers that decide the type of a result."""
    if dtype.is_complex or dtype.is_floating_point:
        return 3 if dtype.is_complex else 2
    return int(dtype != torch.bool)


def operand(name: str, value: Value, beside: Value) -> Value:
    """Return an operand of an operator of tensors: a given scalar as a tensor where that is alike.

    Beside a tensor with dimensions of a type that holds scalars as they are computed with, it makes
    no difference, and the graph needs no guard on the scalar's value.
    """
    if not isinstance(value, GivenScalar) or not isinstance(beside, TensorValue):
        return value
    alike = beside.example.dtype in (torch.float32, torch.float64) and beside.example.dim() > 0
    return value.tensor if alike and name in LINEAR and value.dtype.kind in "iuf" else value


def refuse_scalars(t: Interpreter, operands: Sequence[Value], text: str) -> None:
    """Break the graph where a call of torch sees that a numpy scalar is no tensor.

    To torch, a numpy scalar is a Python number: next to a tensor with dimensions of its kind, or of
    a higher one, the result is the same as with a tensor without dimensions, which is what the
    graph has of a scalar that it computes. Elsewhere the result's type could be another one.

    Raises:
        GraphBreak: the graph would have to hold the number itself.
    """
    arrays = [one for one in operands if isinstance(one, ArrayValue)]
    if text == "setitem" and arrays and arrays[-1] is operands[-1] and not arrays[-1].scalar:
        arrays[-1].cannot(breaks.UNSUPPORTED_CALL, "setitem with a numpy array")
    for scalar in (one for one in arrays if one.scalar):
        if text in INDEXED and not issubclass(scalar.python_type(), NUMBERS):
            scalar.cannot(breaks.UNSUPPORTED_CALL, f"{text} with {scalar.python_type().__name__}")
        if scalar.number(t) is None:
            dtype = scalar.tensor.example.dtype
            rank = _rank(torch.float32 if dtype == torch.bool else dtype)  # True is 1.0 to torch
            tensors = [one.example for one in operands if isinstance(one, TensorValue)]
            if max((_rank(one.dtype) for one in tensors if one.dim()), default=-1) < rank:
                scalar.cannot(breaks.TENSOR_ITEM, f"{text}() of a numpy scalar")


# -- from Python -----------------------------------------------------------------------------
def is_array(obj: Any) -> bool:
    """Return whether an object is an array or scalar that a tensor can represent."""
    return type(obj) is np.ndarray or isinstance(obj, np.generic)


def wrap_array(t: Interpreter, obj: Any, source: Source) -> Value | None:
    """Return the value of a live array, or None if torch has no such dtype."""
    try:
        tensor = as_tensor(obj)
    except (TypeError, ValueError, RuntimeError):
        return None

    def constant() -> TensorValue:
        plain, dtype = ConstValue(obj.item()), ConstValue(tensor.dtype)
        with t.overrides.at_least(OFF):
            made = t.output.call_torch(torch.tensor, [plain], {"dtype": dtype})
        assert isinstance(made, TensorValue)
        return made

    def given() -> TensorValue:
        t.values.keep(tensor)
        return t.values.wrap_tensor(tensor, CallSource(source, as_tensor, "as_tensor({})"))

    if isinstance(obj, np.generic) and source in t.values.aliases:
        return FixedScalar(obj, constant)
    t.guards.add("TYPE", source, type(obj))
    if isinstance(obj, np.generic):
        return GivenScalar(obj, given, source)
    return ArrayValue(given(), False, source)


def numpy_name(obj: Any) -> str | None:
    """Return the name of a numpy function in ``torch._numpy``, or None."""
    if isinstance(obj, type | types.ModuleType) or not callable(obj):
        return None
    module = getattr(obj, "__module__", None) or ("numpy" if isinstance(obj, np.ufunc) else "")
    name = getattr(obj, "__name__", "")
    if not module.startswith("numpy"):
        return None
    for prefix in ("linalg", "fft", "random"):
        if module.startswith(f"numpy.{prefix}"):
            home = getattr(tensor_numpy(), prefix, None)
            return f"{prefix}.{name}" if hasattr(home, name) else None
    same = getattr(np, name, None) is obj and name not in DIFFERENT
    return name if same and hasattr(tensor_numpy(), name) else None


def array_of(t: Interpreter, tensor: TensorValue, args: Args, kwargs: Kwargs) -> Value:
    """Return the value of ``tensor.numpy(force=...)``."""
    force = [*args, *kwargs.values()]
    forced = bool(force) and force[0].truth(t)
    if tensor.example.requires_grad and not forced:
        text = (
            "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead."
        )
        t.python.raise_(RuntimeError, text)
    found = t.output.call_torch("detach", [tensor], {}, method=True)
    if forced and (tensor.example.is_conj() or tensor.example.is_neg()):
        found = t.output.call_torch("clone", [found], {}, method=True)
    assert isinstance(found, TensorValue)
    return ArrayValue(found)


METHODS["numpy"] = array_of
