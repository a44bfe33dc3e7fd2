"""numpy arrays: calls of numpy become nodes that run the same function on tensors.

PyTorch's own numpy over tensors (``torch._numpy``) does the work, so types are promoted and errors
raised as numpy does; arrays enter the graph as tensors that share their memory.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import torch

from tc.compiler.capture import breaks
from tc.compiler.capture.array_memory import as_number, as_tensor
from tc.compiler.capture.values.array_calls import (
    numpy_attribute,
    numpy_call,
    numpy_method,
    tensor_numpy,
)
from tc.compiler.capture.values.array_samples import (
    NoSample,
    Sampled,
    sample_array,
    sampled,
)
from tc.compiler.capture.values.base import Args, Kwargs, Value
from tc.compiler.capture.values.const import ConstValue
from tc.compiler.capture.values.containers import ListValue, SequenceValue, TupleValue
from tc.compiler.capture.values.slices import SliceValue
from tc.compiler.capture.values.subclasses import OFF
from tc.compiler.capture.values.tensor import METHODS, SymValue, TensorValue
from tc.compiler.core.memory import share_storage
from tc.compiler.core.sources import AttrSource, CallSource, Source
from tc.compiler.core.symbolic import hint

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter, ResidualInterface

#: functions that return an array even if the result has no dimension
MAKERS = frozenset(
    (
        "array",
        "asarray",
        "ascontiguousarray",
        "zeros",
        "ones",
        "empty",
        "full",
        "reshape",
        "copy",
    )
)
#: functions that accept types in place of arrays
ON_TYPES = frozenset(
    (
        "issubdtype",
        "can_cast",
        "promote_types",
        "result_type",
        "min_scalar_type",
        "isscalar",
    )
)
TO_PYTHON = frozenset(("item", "tolist", "tobytes", "__bool__", "__int__", "__float__"))
#: methods that write into the array
WRITES = frozenset(
    ("__setitem__", "sort", "fill", "resize", "partition", "put", "itemset")
)
FIELDS = frozenset(("T", "real", "imag", "flat"))


# -- values ----------------------------------------------------------------------------------
class ArrayValue(Value):
    """A numpy array, or a numpy scalar if `scalar`, represented by a tensor.

    Attributes:
        tensor: the tensor that represents it in the graph.
        writeable: whether the program may write to it.
    """

    noun = "a numpy array"
    writeable = True

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
        self.cannot(breaks.TENSOR_ITEM, "hash() of an array")

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
            return TupleValue(
                [t.python.binary("mul", stride, size) for stride in strides]
            )
        if name in FIELDS:
            call = _Call(getattr, (self, ConstValue(name)), {}, name)
            return _record(t, numpy_attribute, (name, self.tensor), False, call)
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
            self.cannot(breaks.TENSOR_ITEM, f"ndarray.{name}()")
        if not hasattr(tensor_numpy().ndarray, name):
            self.cannot(breaks.UNSUPPORTED_CALL, f"ndarray.{name}")
        writes = name in WRITES or name.startswith("__i")
        if writes and not self.writeable:
            self.cannot(breaks.UNSUPPORTED_CALL, f"ndarray.{name} of a read-only array")
        t.guards.aliasing_matters |= writes
        given = _arguments(t, args, kwargs)
        scalars = name not in ("reshape", "copy", "astype", "view", "transpose")
        call = _Call(
            _call_method, (self, ConstValue(name), *args), kwargs, f"ndarray.{name}"
        )
        found = _record(t, numpy_method, (name, self.tensor, *given), scalars, call)
        return ConstValue(None) if name == "__setitem__" else found

    def truth(self, t: Interpreter) -> bool:
        return self.cannot(breaks.DATA_BRANCH, "")

    def length(self, t: Interpreter) -> Value:
        return self.tensor.length(t)

    def iterate(self, t: Interpreter) -> Value:
        rows = self.tensor.unpack_rows(t)
        arrays = [_row(t, row) for row in rows]
        return t.values.list_of(arrays).iterate(t)

    def children(self, t: Interpreter) -> list[Value]:
        return [self.tensor]

    def rebuild(self, r: ResidualInterface) -> None:
        array = _to_array if self.writeable else _to_read_only
        r.load_callable(_to_scalar if self.scalar else array)
        r.push(self.tensor)
        r.e.call(1)


class KnownScalar(ArrayValue):
    """A numpy scalar that exists while the program is captured; its tensor is made on demand."""

    def __init__(
        self,
        obj: np.generic,
        make: Callable[[], TensorValue],
        source: Source | None = None,
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
            return t.python.folded(
                getattr(self.obj, name), *t.python.concrete_list(args)
            )
        return super().method(t, name, args, kwargs)

    def truth(self, t: Interpreter) -> bool:
        return bool(t.python.fold(bool, self.obj))

    def rebuild(self, r: ResidualInterface) -> None:
        r.load_object(self.obj)


class GivenScalar(KnownScalar):
    """A numpy scalar that the program is given: a tensor to numpy, a guarded number to torch."""

    source: Source

    def __init__(
        self, obj: np.generic, make: Callable[[], TensorValue], source: Source
    ) -> None:
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


def _to_read_only(tensor: torch.Tensor) -> Any:
    array = _to_array(tensor)
    array.flags.writeable = False
    return array


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


#: functions that write to their first operand
FILLS = frozenset(("copyto", "fill_diagonal", "place", "put", "putmask"))


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
            self.cannot(breaks.of_call(f"numpy.{self.name}"), f"numpy.{self.name}()")
        operands = (*args, *kwargs.values())
        if self.name in ON_TYPES and all(one.is_constant() for one in operands):
            plain = t.python.concrete_list(args)
            named = t.python.concrete_dict(kwargs)
            return t.python.folded(self.obj, *plain, **named)
        given = _arguments(t, args, kwargs)
        out = kwargs.get("out")
        written = [out]
        if self.name in FILLS:
            written += args[:1]
        arrays = (one for one in written if isinstance(one, ArrayValue))
        if not all(one.writeable for one in arrays):
            self.cannot(
                breaks.UNSUPPORTED_CALL, f"numpy.{self.name} into a read-only array"
            )
        t.guards.aliasing_matters |= out is not None
        call = _Call(self.obj, args, kwargs, f"numpy.{self.name}")
        found = _record(
            t, numpy_call, (self.name, *given), self.name not in MAKERS, call
        )
        if self.name in FILLS:
            return ConstValue(None)
        return out if isinstance(out, ArrayValue) else found

    def rebuild(self, r: ResidualInterface) -> None:
        r.load_object(self.obj)


def _row(t: Interpreter, row: TensorValue) -> ArrayValue:
    """Return the value of a row: scalars share no memory with their array."""
    if row.example.dim():
        return ArrayValue(row)
    copied = t.output.call_torch("clone", [row], {}, method=True)
    assert isinstance(copied, TensorValue)
    return ArrayValue(copied, scalar=True)


def _call_method(array: Any, name: str, *args: Any, **kwargs: Any) -> Any:
    return operator.methodcaller(name, *args, **kwargs)(array)


@dataclass(frozen=True)
class _Call:
    """A call of numpy as the program makes it."""

    function: Callable[..., Any]
    args: Sequence[Value]
    kwargs: Kwargs
    text: str

    def ask(self, held: list[ArrayValue]) -> Sampled | None:
        """Return what numpy does with examples; the arrays among the operands are added."""

        def make() -> tuple[Any, ...]:
            arrays: list[Any] = []
            given = [_sample(one, held, arrays) for one in self.args]
            named = {
                key: _sample(one, held, arrays) for key, one in self.kwargs.items()
            }
            return given, named, arrays

        return sampled(lambda given, named: self.function(*given, **named), make)


def _sample(value: Value, held: list[ArrayValue], arrays: list[Any]) -> Any:
    """Return an example of an operand."""
    if isinstance(value, KnownScalar):
        return value.obj
    if isinstance(value, ArrayValue):
        if value.scalar:
            return value.dtype.type(1)
        held.append(value)
        arrays.append(sample_array(value.tensor.example))
        if not value.writeable:
            arrays[-1].flags.writeable = False
        return arrays[-1]
    if isinstance(value, SymValue):
        return hint(value.example)
    if isinstance(value, TupleValue | ListValue):
        kind = tuple if isinstance(value, TupleValue) else list
        if any(not isinstance(slot, Value) for slot in value.slots):
            raise NoSample
        return kind(
            _sample(one, held, arrays) for one in value.slots if isinstance(one, Value)
        )
    if isinstance(value, SliceValue):
        return slice(*[_sample(part, held, arrays) for part in value.parts])
    if not value.is_constant():
        raise NoSample
    return value.constant()


def _record(
    t: Interpreter,
    target: Callable[..., Any],
    args: tuple[Any, ...],
    scalars: bool,
    call: _Call,
) -> Value:
    values = [a if isinstance(a, Value) else ConstValue(a) for a in args]
    held: list[ArrayValue] = []
    try:
        said = call.ask(held)
    except OverflowError:
        raise breaks.GraphBreak(
            breaks.BUILTIN_CALL, f"{call.text}(), which refuses"
        ) from None
    # the program does not call torch here, so no override applies
    with t.overrides.at_least(OFF):
        found = t.output.call_torch(target, values, {})
        if said is None or isinstance(found, ConstValue):
            return _as_arrays(t, found, scalars)
        return _Results(t, said, held, call.text).of(found, said.result)


@dataclass(frozen=True)
class _Results:
    """Makes values of the tensors that a node returns: what numpy returns decides their kinds."""

    t: Interpreter
    said: Sampled
    held: Sequence[ArrayValue]
    text: str

    def of(self, value: Value, result: Any) -> Value:
        """Return the value of a result."""
        if isinstance(value, TupleValue | ListValue) and isinstance(
            result, tuple | list
        ):
            kind = ListValue if isinstance(result, list) else TupleValue
            pairs = zip(value.values(self.t), result, strict=True)
            return kind([self.of(one, other) for one, other in pairs])
        if not isinstance(value, TensorValue) or not isinstance(
            result, np.ndarray | np.generic
        ):
            return _as_arrays(self.t, value, not isinstance(result, np.ndarray))
        scalar = isinstance(result, np.generic)
        found = ArrayValue(value, scalar)
        if found.dtype != result.dtype or value.example.dim() != result.ndim:
            self._refuse("a result of another type")
        for one, array in zip(self.held, self.said.arrays, strict=True):
            if array is result:
                return one
        found = ArrayValue(self._with_memory(value, result), scalar)
        found.writeable = scalar or bool(result.flags.writeable)
        return found

    def _with_memory(self, value: TensorValue, result: Any) -> TensorValue:
        """Return a tensor that shares memory with what numpy's result does, and no other."""
        viewed = self.said.views(result)
        shared = [
            i
            for i, one in enumerate(self.held)
            if share_storage(one.tensor.example, value.example)
        ]
        if set(viewed) - set(shared) and result.size:
            self._refuse("a view that no tensor can be")
        if shared and not viewed:
            copied = self.t.output.call_torch("clone", [value], {}, method=True)
            assert isinstance(copied, TensorValue)
            return copied
        return value

    def _refuse(self, why: str) -> NoReturn:
        raise breaks.GraphBreak(breaks.BUILTIN_CALL, f"{self.text}() ({why})")


def _as_arrays(t: Interpreter, value: Value, scalars: bool) -> Value:
    if isinstance(value, TensorValue):
        return ArrayValue(value, scalars and value.example.dim() == 0)
    if isinstance(value, TupleValue):
        return TupleValue([_as_arrays(t, v, scalars) for v in value.values(t)])
    if isinstance(value, ListValue):
        return ListValue([_as_arrays(t, v, scalars) for v in value.values(t)])
    return value


def _arguments(t: Interpreter, args: Args, kwargs: Kwargs) -> tuple[Value, Value]:
    """Return numpy's arguments as those of a node."""
    positional = t.values.new_tuple(_argument(t, arg) for arg in args)
    named = ((key, _argument(t, value)) for key, value in kwargs.items())
    return positional, t.values.dict_of(named)


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
    if isinstance(constant, np.dtype) or (
        isinstance(constant, type) and _is_dtype(constant)
    ):
        return ConstValue(np.dtype(constant).name)
    return value


def _is_dtype(kind: type) -> bool:
    abstract = bool(kind.__subclasses__())  # numpy.integer: no array has it
    return (issubclass(kind, np.generic) and not abstract) or kind in (
        bool,
        int,
        float,
        complex,
    )


# -- from Python -----------------------------------------------------------------------------
def is_array(obj: Any) -> bool:
    """Return whether an object is an array or scalar that a tensor can represent."""
    return type(obj) is np.ndarray or issubclass(type(obj), np.generic)


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
        return t.values.wrap_tensor(
            tensor, CallSource(source, as_tensor, "as_tensor({})")
        )

    if isinstance(obj, np.generic) and source in t.values.aliases:
        return FixedScalar(obj, constant)
    t.guards.add("TYPE", source, type(obj))
    if isinstance(obj, np.generic):
        return GivenScalar(obj, given, source)
    value = ArrayValue(given(), False, source)
    value.writeable = obj.flags.writeable
    where = AttrSource(AttrSource(source, "flags"), "writeable")
    t.guards.add("EQUALS", where, value.writeable)
    return value


def array_of(t: Interpreter, tensor: TensorValue, args: Args, kwargs: Kwargs) -> Value:
    """Return the value of ``tensor.numpy(force=...)``."""
    force = [*args, *kwargs.values()]
    forced = bool(force) and force[0].truth(t)
    if tensor.example.requires_grad and not forced:
        text = "Can't call numpy() on Tensor that requires grad."
        t.python.raise_(RuntimeError, f"{text} Use tensor.detach().numpy() instead.")
    found = t.output.call_torch("detach", [tensor], {}, method=True)
    if forced and (tensor.example.is_conj() or tensor.example.is_neg()):
        found = t.output.call_torch("clone", [found], {}, method=True)
    assert isinstance(found, TensorValue)
    return ArrayValue(found)


METHODS["numpy"] = array_of
