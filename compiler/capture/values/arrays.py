"""numpy arrays: calls of numpy become nodes that run the same function on tensors.

PyTorch's own numpy over tensors (``torch._numpy``) does the work, so types are promoted and errors
raised as numpy does; arrays enter the graph as tensors that share their memory.
"""

from __future__ import annotations

import enum
import functools
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import torch
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from tc.compiler.capture import breaks
from tc.compiler.capture.array_memory import as_tensor
from tc.compiler.capture.values.array_calls import (
    numpy_attribute,
    numpy_method,
    tensor_numpy,
)
from tc.compiler.capture.values.array_samples import (
    NoSample,
    Sampled,
    sample_array,
    sampled,
)
from tc.compiler.capture.values.base import Args, Kwargs, Slot, Value
from tc.compiler.capture.values.const import ConstValue
from tc.compiler.capture.values.containers import ListValue, SequenceValue, TupleValue
from tc.compiler.capture.values.slices import SliceValue
from tc.compiler.capture.values.subclasses import OFF
from tc.compiler.capture.values.tensor import METHODS, SymValue, TensorValue
from tc.compiler.capture.values.tuple_objects import tuple_of
from tc.compiler.core.memory import share_storage, storage_id
from tc.compiler.core.sources import Source
from tc.compiler.core.symbolic import hint

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter, ResidualInterface

TO_PYTHON = frozenset(("item", "tolist", "tobytes", "__bool__", "__int__", "__float__"))
#: methods that write into the array
WRITES = frozenset(
    ("__setitem__", "sort", "fill", "resize", "partition", "put", "itemset")
)
FIELDS = frozenset(("T", "real", "imag", "flat"))
#: the elements of larger arrays are not kept
FEW = 1 << 12


# -- values ----------------------------------------------------------------------------------
class ArrayValue(Value):
    """A numpy array, or a numpy scalar if `scalar`, represented by a tensor.

    Attributes:
        tensor: the tensor that represents it in the graph.
        writeable: whether the program may write to it.
        obj: the scalar itself, where that is known while the program is captured.
        elements: those that numpy gave it, where only constants were operands.
    """

    noun = "a numpy array"
    writeable = True
    obj: np.generic | None = None
    elements: np.ndarray[Any, Any] | None = None

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

    def known(self, t: Interpreter) -> np.ndarray[Any, Any] | None:
        """Return the elements where constants decide them, and no write may have changed them."""
        if self.elements is None or self.obj is not None:
            return None
        unwritten = storage_id(self.tensor.example) not in t.shapes.mode.written
        return self.elements if unwritten else None

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
            call = NumpyCall(operator.attrgetter(name), (self,), {}, name)
            return record(t, numpy_attribute, (name, self.tensor), False, call)
        if not hasattr(np.ndarray, name):
            text = f"'numpy.ndarray' object has no attribute '{name}'"
            return t.python.raise_(AttributeError, text)
        if not callable(getattr(np.ndarray, name)):
            self.cannot(breaks.UNSUPPORTED_ATTR, f"ndarray.{name}")
        return t.attributes.builtin_method(self, name)

    def method(
        self,
        t: Interpreter,
        name: str,
        args: Args,
        kwargs: Kwargs,
    ) -> Value:
        if name in TO_PYTHON:
            return self.to_python(t, name, args, kwargs)
        if not hasattr(tensor_numpy().ndarray, name):
            self.cannot(breaks.UNSUPPORTED_CALL, f"ndarray.{name}")
        writes = name in WRITES or name.startswith("__i")
        if writes and not self.writeable:
            self.cannot(breaks.UNSUPPORTED_CALL, f"ndarray.{name} of a read-only array")
        t.guards.aliasing_matters |= writes
        given = arguments(t, args, kwargs)
        scalars = name not in ("reshape", "copy", "astype", "view", "transpose")
        method = functools.partial(_call_method, name)
        call = NumpyCall(method, (self, *args), kwargs, f"ndarray.{name}")
        found = record(t, numpy_method, (name, self.tensor, *given), scalars, call)
        return ConstValue(None) if name == "__setitem__" else found

    def to_python(
        self,
        t: Interpreter,
        name: str,
        args: Args,
        kwargs: Kwargs,
    ) -> Value:
        """Call a method in `TO_PYTHON`."""
        known = self.known(t)
        if name != "tolist" or args or kwargs:
            if known is None:
                self.cannot(breaks.TENSOR_ITEM, f"ndarray.{name}()")
            return folded(t, known, name, args, kwargs)
        if known is None or not known.ndim:
            return self.tensor.method(t, name, [], {})
        rows = self._rows(t)
        return t.values.list_of(row.method(t, name, [], {}) for row in rows)

    def truth(self, t: Interpreter) -> bool:
        known = self.known(t)
        if known is None:
            self.cannot(breaks.DATA_BRANCH, "")
        return bool(t.python.fold(bool, known))

    def length(self, t: Interpreter) -> Value:
        return self.tensor.length(t)

    def iterate(self, t: Interpreter) -> Value:
        return t.values.list_of(self._rows(t)).iterate(t)

    def _rows(self, t: Interpreter) -> list[Value]:
        known = self.known(t)
        if known is None or not known.ndim:
            return [_row(t, row) for row in self.tensor.unpack_rows(t)]
        places = map(ConstValue, range(len(known)))
        return [self.method(t, "__getitem__", [at], {}) for at in places]

    def children(self, t: Interpreter) -> list[Value]:
        return [self.tensor]

    def rebuild(self, r: ResidualInterface) -> None:
        array = _to_array if self.writeable else _to_read_only
        r.load_callable(_to_scalar if self.scalar else array)
        r.push(self.tensor)
        r.e.call(1)


def _to_array(tensor: torch.Tensor) -> Any:
    return tensor.numpy(force=True)


def _to_read_only(tensor: torch.Tensor) -> Any:
    array = _to_array(tensor)
    array.flags.writeable = False
    return array


def _to_scalar(tensor: torch.Tensor) -> Any:
    return tensor.numpy(force=True)[()]


def _row(t: Interpreter, row: TensorValue) -> ArrayValue:
    """Return the value of a row: scalars share no memory with their array."""
    if row.example.dim():
        return ArrayValue(row)
    copied = t.output.call_torch("clone", [row], {}, method=True)
    assert isinstance(copied, TensorValue)
    return ArrayValue(copied, scalar=True)


def folded(
    t: Interpreter,
    obj: Any,
    name: str,
    args: Args,
    kwargs: Kwargs,
) -> Value:
    """Call a method of an array or scalar that is known."""
    plain = t.python.concrete_list(args)
    named = t.python.concrete_dict(kwargs)
    return t.python.folded(getattr(obj, name), *plain, **named)


def _call_method(name: str, array: Any, *args: Any, **kwargs: Any) -> Any:
    return operator.methodcaller(name, *args, **kwargs)(array)


@dataclass(frozen=True)
class NumpyCall:
    """A call of numpy as the program makes it.

    Attributes:
        function: the function, or what calls the method.
        text: how the call is named to the user.
    """

    function: Callable[..., Any]
    args: Sequence[Value]
    kwargs: Kwargs
    text: str

    @property
    def name(self) -> str:
        """The name of the function or method."""
        return self.text.rpartition(".")[2]

    def operands(self) -> list[Value]:
        """Return all that the result depends on, in order; what is in sequences one by one."""
        return list(_leaves([*self.args, *self.kwargs.values()]))

    def is_known(self, t: Interpreter) -> bool:
        """Return whether all operands are known, as long as guards hold."""
        values = self.operands()
        return all(isinstance(one, Value) and _is_known(t, one) for one in values)

    def is_fixed(self, t: Interpreter) -> bool:
        """Return whether all operands are constants, or arrays made of constants."""
        values = self.operands()
        return all(isinstance(one, Value) and _is_fixed(t, one) for one in values)

    def ask(self, t: Interpreter, held: list[ArrayValue]) -> Sampled | None:
        """Return what numpy does with examples; the arrays among the operands are added."""

        def make() -> tuple[Any, ...]:
            arrays: list[Any] = []
            given = [_sample(t, one, held, arrays) for one in self.args]
            named = {
                key: _sample(t, one, held, arrays) for key, one in self.kwargs.items()
            }
            return given, named, arrays

        return sampled(lambda given, named: self.function(*given, **named), make)


def _leaves(values: Iterable[Any]) -> Iterator[Value]:
    for value in values:
        if isinstance(value, TupleValue | ListValue):
            yield from _leaves(value.slots)
        elif isinstance(value, SliceValue):
            yield from _leaves(value.parts)
        else:
            yield value


def _is_known(t: Interpreter, value: Value) -> bool:
    """Return whether an example of an operand is the operand itself, as long as guards hold."""
    if isinstance(value, SymValue):
        return hint(value.example) is not None
    if isinstance(value, ArrayValue) and value.obj is not None:
        return True
    return _is_fixed(t, value)


def _is_fixed(t: Interpreter, value: Value) -> bool:
    if isinstance(value, ArrayValue) and value.known(t) is not None:
        return True
    return value.is_constant()


def _sample(
    t: Interpreter, value: Value, held: list[ArrayValue], arrays: list[Any]
) -> Any:
    """Return an example of an operand."""
    if isinstance(value, ArrayValue):
        if value.obj is not None:
            return value.obj
        if value.scalar:
            return value.dtype.type(1)
        held.append(value)
        arrays.append(sample_array(value.tensor.example, value.known(t)))
        if not value.writeable:
            arrays[-1].flags.writeable = False
        return arrays[-1]
    if isinstance(value, TensorValue):
        held.append(ArrayValue(value))
        arrays.append(sample_array(value.example))
        given = torch.from_numpy(arrays[-1])
        return given.requires_grad_(value.example.requires_grad)
    if isinstance(value, SymValue):
        return hint(value.example)
    if isinstance(value, TupleValue | ListValue):
        kind = tuple if isinstance(value, TupleValue) else list
        if any(not isinstance(slot, Value) for slot in value.slots):
            raise NoSample
        return kind(
            _sample(t, one, held, arrays)
            for one in value.slots
            if isinstance(one, Value)
        )
    if isinstance(value, SliceValue):
        return slice(*[_sample(t, part, held, arrays) for part in value.parts])
    if not value.is_constant():
        raise NoSample
    return value.constant()


#: what numpy may do about an error of floating point that a graph need not do
_SILENT = frozenset(("ignore", "warn"))


def record(
    t: Interpreter,
    target: Callable[..., Any],
    args: tuple[Any, ...],
    scalars: bool,
    call: NumpyCall,
) -> Value:
    """Call numpy in the graph.

    Args:
        target: what the node calls, with ``args``.
        scalars: whether results without a dimension are scalars, where numpy has not been asked.
        call: the same call, as the program makes it.

    Raises:
        GraphBreak: the node would not do what numpy does.
    """
    errors = np.geterr()
    t.guards.ask_process_again(np.geterr, "geterr", errors)
    if not _SILENT.issuperset(errors.values()):
        what = f"{call.text}(), where numpy does more about errors than to warn,"
        raise breaks.GraphBreak(breaks.UNSUPPORTED_CALL, what)
    values = [a if isinstance(a, Value) else ConstValue(a) for a in args]
    held: list[ArrayValue] = []
    try:
        said, fixed = call.ask(t, held), call.is_fixed(t)
    except OverflowError:
        raise breaks.GraphBreak(
            breaks.BUILTIN_CALL, f"{call.text}(), which refuses"
        ) from None
    if said is None and any(isinstance(one, TensorValue) for one in call.operands()):
        what = f"{call.text}() of a tensor, which numpy refuses,"
        raise breaks.GraphBreak(breaks.BUILTIN_CALL, what)

    def recorded() -> Value:
        # the program does not call torch here, so no override applies
        with t.overrides.at_least(OFF):
            found = t.output.call_torch(target, values, {})
            if said is None or isinstance(found, ConstValue):
                return _as_arrays(t, found, scalars)
            return _Results(t, said, held, call, fixed).of(found, said.result)

    if not call.is_known(t):
        return recorded()
    if said is None:  # numpy refuses these operands
        plain = t.python.concrete_list(call.args)
        return t.python.folded(
            call.function, *plain, **t.python.concrete_dict(call.kwargs)
        )
    if not isinstance(said.result, np.generic):
        return recorded()
    return COMPUTED["scalar"](t, said.result, call, recorded)


#: makes the value of a numpy scalar, the result of a call whose operands are known, given what
#: adds the call to the graph; `known_arrays`, whose classes derive from `ArrayValue`, fills it in
COMPUTED: dict[
    str, Callable[[Interpreter, np.generic, NumpyCall, Callable[[], Value]], Value]
] = {}


@dataclass(frozen=True)
class _Results:
    """Makes values of the tensors that a node returns: what numpy returns decides their kinds."""

    t: Interpreter
    said: Sampled
    held: Sequence[ArrayValue]
    call: NumpyCall
    fixed: bool

    def of(self, value: Value, result: Any) -> Value:
        """Return the value of a result."""
        if isinstance(value, TupleValue | ListValue) and isinstance(
            result, tuple | list
        ):
            pairs = zip(value.values(self.t), result, strict=True)
            found: list[Slot] = [self.of(one, other) for one, other in pairs]
            if isinstance(result, list):
                return ListValue(found)
            return tuple_of(found, type(result))
        if isinstance(value, TensorValue) and isinstance(result, torch.Tensor):
            return self._wrapped(value, result)
        if not isinstance(value, TensorValue):
            return _as_arrays(self.t, value, not isinstance(result, np.ndarray))
        if not isinstance(result, np.ndarray | np.generic):
            self._refuse(f"a {type(result).__name__}, not an array")
        scalar = isinstance(result, np.generic)
        array = ArrayValue(value, scalar)
        if array.dtype != result.dtype or value.example.dim() != result.ndim:
            self._refuse("a result of another type")
        pairs = zip(self.held, self.said.arrays, strict=True)
        for one, sample in pairs:
            if sample is result:
                return one
        array = ArrayValue(self._with_memory(value, result), scalar)
        array.writeable = scalar or bool(result.flags.writeable)
        if self.fixed and result.size <= FEW:
            if free_unbacked_symbols(value.example):
                return constant_array(self.t, result)
            array.elements = np.array(result)
        return array

    def _wrapped(self, value: TensorValue, result: torch.Tensor) -> TensorValue:
        """Return the tensor that numpy makes of what a universal function of tensors returns.

        Other functions call the tensors' own methods, and return what these do.
        """
        universal = isinstance(self.call.function, np.ufunc)
        if not universal or value.example.dim() != result.dim():
            self._refuse("of a tensor")
        if value.example.dtype == result.dtype:
            return value
        kind = ConstValue(result.dtype)
        found = self.t.output.call_torch("to", [value, kind], {}, method=True)
        assert isinstance(found, TensorValue)
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
        raise breaks.GraphBreak(breaks.BUILTIN_CALL, f"{self.call.text}() ({why})")


def constant_array(t: Interpreter, result: Any) -> ArrayValue:
    """Return a new array of elements that are known."""
    dtype: dict[str, Value] = {"dtype": ConstValue(as_tensor(result).dtype)}
    made = t.output.call_torch(torch.tensor, [_listed(result.tolist())], dtype)
    assert isinstance(made, TensorValue)
    found = ArrayValue(made)
    found.elements = np.array(result)
    return found


def _listed(obj: Any) -> Value:
    if not isinstance(obj, list):
        return ConstValue(obj)
    return ListValue([_listed(item) for item in obj])


def _as_arrays(t: Interpreter, value: Value, scalars: bool) -> Value:
    if isinstance(value, TensorValue):
        scalar = scalars and value.example.dim() == 0
        return ArrayValue(value, scalar)
    if isinstance(value, TupleValue):
        return TupleValue([_as_arrays(t, v, scalars) for v in value.values(t)])
    if isinstance(value, ListValue):
        return ListValue([_as_arrays(t, v, scalars) for v in value.values(t)])
    return value


def arguments(t: Interpreter, args: Args, kwargs: Kwargs) -> tuple[Value, Value]:
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
    if isinstance(constant, enum.Enum):  # which the text of a graph cannot name
        value.cannot(breaks.UNSUPPORTED_CALL, f"a numpy function of {constant}")
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
