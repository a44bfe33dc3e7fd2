"""numpy's objects that exist while a program is captured: live arrays, and known scalars."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import fx

from tc.compiler.capture import breaks
from tc.compiler.capture.array_memory import as_number, as_tensor
from tc.compiler.capture.values.arrays import COMPUTED, ArrayValue, NumpyCall, folded
from tc.compiler.capture.values.base import Args, Kwargs, Value
from tc.compiler.capture.values.const import ConstValue
from tc.compiler.capture.values.subclasses import OFF
from tc.compiler.capture.values.tensor import METHODS, SymValue, TensorValue
from tc.compiler.core.sources import AttrSource, CallSource, Source

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter, ResidualInterface


def _item(scalar: np.generic) -> Any:
    return scalar.item()


#: what makes a number of numbers, or None where none is equal to numpy's
_Call = Callable[["Interpreter", Sequence[Value]], Value | None]
#: the largest integer such that it and all smaller ones are within int64 and float64
LARGEST = 1 << 53
#: how a method of a scalar is read off it: the function, and how its source is printed
READ_AS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "item": (_item, "{}.item()"),
    "tolist": (_item, "{}.item()"),
    "__bool__": (bool, "bool({})"),
    "__int__": (int, "int({})"),
    "__float__": (float, "float({})"),
}


def _remembered(
    t: Interpreter, make: Callable[[], TensorValue]
) -> Callable[[], TensorValue]:
    """Return what makes a tensor once, and again where the first is out of reach.

    What the body of an operation has made can be used in that body only.
    """
    made: dict[fx.Graph, TensorValue] = {}

    def tensor() -> TensorValue:
        for scope in t.output.scopes:
            if scope.graph in made:
                return made[scope.graph]
        found = make()
        made[t.output.graph] = found
        return found

    return tensor


class KnownScalar(ArrayValue):
    """A numpy scalar that is known; its tensor is made on demand."""

    obj: np.generic

    def __init__(self, obj: np.generic, make: Callable[[], TensorValue]) -> None:
        self.obj = obj
        self.scalar = True
        self.source = None
        self._make = make

    @property
    def tensor(self) -> TensorValue:  # type: ignore[override]
        """The tensor that represents it in the graph."""
        return self._make()

    @property
    def dtype(self) -> Any:
        return self.obj.dtype

    def fixed(self, t: Interpreter) -> np.generic:
        """Return the scalar after guarding all that its value depends on."""
        raise NotImplementedError

    def exact(self, t: Interpreter) -> Value | None:
        """Return an int or float that is equal, or None where Python has no such number."""
        raise NotImplementedError

    def key(self, t: Interpreter) -> Any:
        return self.fixed(t)

    def to_python(
        self,
        t: Interpreter,
        name: str,
        args: Args,
        kwargs: Kwargs,
    ) -> Value:
        if name in READ_AS and not args and not kwargs:
            found = self.read(t, name)
            if found is not None:
                return found
        return folded(t, self.fixed(t), name, args, kwargs)

    def read(self, t: Interpreter, name: str) -> Value | None:
        """Return what a conversion in `READ_AS` gives, or None where that fixes the scalar."""
        return None

    def truth(self, t: Interpreter) -> bool:
        return bool(t.python.fold(bool, self.fixed(t)))

    def children(self, t: Interpreter) -> list[Value]:
        return []


class FixedScalar(KnownScalar):
    """A numpy scalar that traced code made of constants."""

    def fixed(self, t: Interpreter) -> np.generic:
        return self.obj

    def exact(self, t: Interpreter) -> Value | None:
        return ConstValue(self.obj.item()) if _is_exact(self.obj) else None

    def number(self, t: Interpreter) -> Value:
        return ConstValue(as_number(self.obj))

    def constant(self) -> Any:
        return self.obj

    def rebuild(self, r: ResidualInterface) -> None:
        r.load_object(self.obj)


class GivenScalar(KnownScalar):
    """A numpy scalar that the program is given: a tensor to numpy, a guarded number to torch."""

    source: Source

    def __init__(
        self,
        obj: np.generic,
        make: Callable[[], TensorValue],
        source: Source,
    ) -> None:
        super().__init__(obj, make)
        self.source = source
        self._read_before: dict[str, Value] = {}

    def fixed(self, t: Interpreter) -> np.generic:
        t.python.concrete(self._read(t, *READ_AS["item"]))
        return self.obj

    def exact(self, t: Interpreter) -> Value | None:
        return self._read(t, *READ_AS["item"]) if _is_exact(self.obj) else None

    def number(self, t: Interpreter) -> Value:
        return self._read(t, as_number, "as_number({})")

    def read(self, t: Interpreter, name: str) -> Value | None:
        return self._read(t, *READ_AS[name])

    def truth(self, t: Interpreter) -> bool:
        return self._read(t, bool, "bool({})").truth(t)

    def _read(self, t: Interpreter, read: Callable[[Any], Any], text: str) -> Value:
        if text not in self._read_before:  # one symbol, however often it is used
            source = CallSource(self.source, read, text)
            self._read_before[text] = t.values.wrap(read(self.obj), source)
        return self._read_before[text]


class ComputedScalar(KnownScalar):
    """A numpy scalar that numpy made of sizes and of known scalars.

    To torch it is a tensor, whatever the sizes are. Where Python needs its value, that is a
    symbolic number if one is equal, and else the operands are guarded.
    """

    def __init__(
        self,
        obj: np.generic,
        make: Callable[[], TensorValue],
        call: NumpyCall,
    ) -> None:
        super().__init__(obj, make)
        self._call = call

    def fixed(self, t: Interpreter) -> np.generic:
        for one in self._call.operands():
            if isinstance(one, KnownScalar):
                one.fixed(t)
            elif isinstance(one, SymValue):
                one.specialise(t)
        return self.obj

    def exact(self, t: Interpreter) -> Value | None:
        found = self._in_python(t)
        same = found is not None and isinstance(self.obj.item(), found.python_type())
        return found if same and _is_exact(self.obj) else None

    def number(self, t: Interpreter) -> Value | None:
        found = self.exact(t)
        if found is None and isinstance(self.obj, np.signedinteger):  # a size, an index
            return ConstValue(self.fixed(t).item())
        return found

    def read(self, t: Interpreter, name: str) -> Value | None:
        found = self._in_python(t) if name == "__int__" else self.exact(t)
        if found is None or name in ("item", "tolist"):
            return found
        return t.values.known(READ_AS[name][0]).call(t, [found], {})

    def truth(self, t: Interpreter) -> bool:
        found = self._in_python(t) if type(self.obj) is np.bool_ else self.exact(t)
        return super().truth(t) if found is None else found.truth(t)

    def children(self, t: Interpreter) -> list[Value]:
        return [self.tensor]

    def _in_python(self, t: Interpreter) -> Value | None:
        """Return what Python makes of the same numbers, or None; see `EXACT`."""
        call = self._call
        entry = EXACT.get(call.name)
        if entry is None or call.kwargs:
            return None
        if not np.isfinite(self.obj):  # where Python may raise an error
            return None
        if len(call.args) != entry.count:
            return None
        numbers: list[Value] = []
        for one in call.operands():
            number = _exact_number(t, one)
            if number is None:
                return None
            if number.python_type() not in entry.kinds:
                return None
            numbers.append(number)
        numbers = _of_one_type(numbers)
        return entry.call(t, numbers) if numbers else None


def _computed(
    t: Interpreter,
    obj: np.generic,
    call: NumpyCall,
    record: Callable[[], Value],
) -> Value:
    """Return the value of a scalar, the result of a call whose operands are known.

    Args:
        obj: the scalar as it is in this call of the program.
        call: of numpy.
        record: adds the call to the graph, where torch needs the scalar as a tensor.
    """
    if call.is_fixed(t):
        return t.values.known(obj)

    def tensor() -> TensorValue:
        found = record()
        if not isinstance(found, ArrayValue):
            found.cannot(breaks.BUILTIN_CALL, f"{call.text}()")
        return found.tensor

    return ComputedScalar(obj, _remembered(t, tensor), call)


COMPUTED["scalar"] = _computed


# -- Python's numbers that are equal ---------------------------------------------------------
def _is_exact(obj: np.generic) -> bool:
    """Return whether Python's arithmetic of a scalar's number is numpy's."""
    return type(obj) in (np.float64, np.int64)


def _exact_number(t: Interpreter, value: Value) -> Value | None:
    """Return an operand of numpy as an int or float with the same arithmetic, or None."""
    if isinstance(value, KnownScalar):
        return value.exact(t)
    return value if value.python_type() in (int, float) else None


def _of_one_type(numbers: list[Value]) -> list[Value]:
    """Return numbers that are all ints or all floats, as numpy makes them; none if it may round."""
    types = {one.python_type() for one in numbers}
    if len(types) == 1:
        return numbers
    found: list[Value] = []
    for one in numbers:
        if one.python_type() is int:
            if not one.is_constant():
                return []
            if abs(one.constant()) > LARGEST:
                return []
            one = ConstValue(float(one.constant()))
        found.append(one)
    return found


def _python(function: Callable[..., Any]) -> _Call:
    """Return what calls a function of Python with the numbers."""

    def call(t: Interpreter, numbers: Sequence[Value]) -> Value:
        return t.values.known(function).call(t, numbers, {})

    return call


def _reduced(name: str) -> _Call:
    """Return what applies an operator between the numbers, from left to right.

    An integer that is large is no result: numpy drops digits beyond int64.
    """

    def call(t: Interpreter, numbers: Sequence[Value]) -> Value | None:
        found, *others = numbers
        for one in others:
            found = t.python.binary(name, found, one)
        if found.python_type() is not int:
            return found
        for way, end in (("le", LARGEST), ("ge", -LARGEST)):
            fits = t.python.binary(way, found, ConstValue(end))
            if not fits.truth(t):
                return None
        return found

    return call


def _swapped(call: _Call) -> _Call:
    """Return an operator as the right operand's class has it."""
    return lambda t, numbers: call(t, numbers[::-1])


@dataclass(frozen=True)
class _Exact:
    """What of Python has the same result as a function of numpy.

    Attributes:
        call: makes the result of the numbers.
        count: of the arguments.
        kinds: the types that the numbers may have.
    """

    call: _Call
    count: int
    kinds: tuple[type, ...] = (int, float)


#: functions and methods of numpy that have their equals in Python; of ``ceil`` and ``floor`` the
#: result as an int is equal
EXACT = {
    "ceil": _Exact(_python(math.ceil), 1),
    "floor": _Exact(_python(math.floor), 1),
    "sqrt": _Exact(_python(math.sqrt), 1),
    "maximum": _Exact(_python(max), 2, (int,)),
    "minimum": _Exact(_python(min), 2, (int,)),
    "prod": _Exact(_reduced("mul"), 1, (int,)),
    "sum": _Exact(_reduced("add"), 1, (int,)),
}
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    EXACT[f"__{_name}__"] = _Exact(_python(getattr(operator, _name)), 2)
for _name in ("add", "sub", "mul", "truediv"):
    _way = _reduced(_name)
    EXACT[f"__{_name}__"] = _Exact(_way, 2)
    EXACT[f"__r{_name}__"] = _Exact(_swapped(_way), 2)


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
        return FixedScalar(obj, _remembered(t, constant))
    t.guards.add("TYPE", source, type(obj))
    if isinstance(obj, np.generic):
        return GivenScalar(obj, _remembered(t, given), source)
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
