"""Python's operators, conversions and comparisons over values."""

# mypy: disable-error-code="misc"
# (misc: the methods work on the whole Tracer that this class is half of)

from __future__ import annotations

import operator
import types
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NoReturn

from tc.compiler.capture import breaks
from tc.compiler.capture.recording import Recorder
from tc.compiler.capture.values.arrays import ArrayValue
from tc.compiler.capture.values.base import (
    Args,
    Exhausted,
    Kwargs,
    LambdaValue,
    NotConstant,
    OpaqueValue,
    Raised,
    Slot,
    Value,
)
from tc.compiler.capture.values.const import ConstValue
from tc.compiler.capture.values.containers import ListValue, SequenceValue, StepIterator, TupleValue
from tc.compiler.capture.values.dicts import DictValue, DictView, SetValue, set_of
from tc.compiler.capture.values.iterators import ConstIterator
from tc.compiler.capture.values.numbers import known_number
from tc.compiler.capture.values.objects import (
    ClassValue,
    ExceptionValue,
    ObjectValue,
    type_lookup,
)
from tc.compiler.capture.values.stand_ins import UNEXPECTED, raise_as_python
from tc.compiler.capture.values.subclasses import SubclassValue, own_attribute
from tc.compiler.capture.values.tensor import NodeValue, SymValue, TensorValue

if TYPE_CHECKING:
    from tc.compiler.capture.tracer import Tracer

REFLECTED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}
COMPARISONS = frozenset(REFLECTED)
#: values whose classes may have operators written in Python
OWNERS = (ObjectValue, TupleValue, SubclassValue)
_EQUAL = object.__dict__["__eq__"]
#: in-place operator -> the plain one, which immutable left operands fall back to
IN_PLACE = {
    f"i{name.rstrip('_')}": name
    for name in [
        "add",
        "sub",
        "mul",
        "matmul",
        "truediv",
        "floordiv",
        "mod",
        "pow",
        "lshift",
        "rshift",
        "and_",
        "or_",
        "xor",
    ]
}


class Semantics(Recorder):
    """The Python half of a Tracer: what operators and conversions do to values."""

    # -- constants -------------------------------------------------------------------------
    def fold(self: Tracer, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run a pure function on Python objects; what it raises is raised into the traced code."""
        try:
            return function(*args, **kwargs)
        except (breaks.GraphBreak, breaks.SkipFrame, Raised, NotConstant):
            raise
        except Exception as error:
            raise Raised(ExceptionValue(type(error), [self.known(a) for a in error.args])) from None

    def raise_(self: Tracer, cls: type[BaseException], *args: Any) -> NoReturn:
        """Raise into the traced code."""
        values = [a if isinstance(a, Value) else self.known(a) for a in args]
        raise Raised(ExceptionValue(cls, values))

    def concrete(self: Tracer, value: Value) -> Any:
        """Return the Python object of a value, giving up the generality of symbolic numbers."""
        if isinstance(value, SymValue):
            return value.specialise(self).obj
        if isinstance(value, TupleValue):
            return value.make([self.concrete(item) for item in value.values(self)])
        if isinstance(value, ListValue):
            return [self.concrete(item) for item in value.values(self)]
        if hasattr(value, "parts"):
            return slice(*[self.concrete(part) for part in value.parts])
        if isinstance(value, TensorValue):
            number = known_number(self, value)
            if number is None:
                raise breaks.GraphBreak(breaks.TENSOR_ITEM, "__index__()")
            return number.obj
        if isinstance(value, SetValue):
            return value.kind(self.concrete(item) for item in value.values(self))
        try:
            found = value.constant()
            if type(found) is str:  # it may name an attribute, as in ``getattr(owner, name)``
                self.definitions.names.add(found)
            return found
        except NotConstant:
            what = f"{value.describe()}, where a constant is needed,"
            raise breaks.GraphBreak(breaks.UNSUPPORTED_OP, what) from None

    def new_tuple(self, values: Iterable[Value]) -> TupleValue:
        """Return a new tuple."""
        return TupleValue(list(values))

    def list_of(self, values: Iterable[Value]) -> ListValue:
        """Return a new list."""
        return ListValue(list(values))

    def dict_of(self: Tracer, pairs: Iterable[tuple[Any, Value]]) -> DictValue:
        """Return a new dict; keys are values or plain constants."""
        entries: dict[Any, tuple[Slot, Slot]] = {}
        for key, value in pairs:
            held = key if isinstance(key, Value) else self.known(key)
            token = self.key(held)
            entries[token] = (entries[token][0] if token in entries else held, value)
        return DictValue(entries)

    def frozen_set(self: Tracer, values: Iterable[Value]) -> SetValue:
        """Return a new frozenset."""
        return set_of(self, values, frozenset)

    def key(self: Tracer, value: Value) -> Any:
        """Return what stands for a value as a dictionary key: equal keys, equal tokens."""
        if isinstance(value, SymValue):
            return value.specialise(self).obj
        if isinstance(value, TupleValue):
            return tuple(self.key(item) for item in value.values(self))
        if isinstance(value, SetValue) and value.kind is frozenset:
            return frozenset(value.items)
        if isinstance(value, ListValue | DictValue | SetValue):
            self.raise_(TypeError, f"unhashable type: '{value.python_type().__name__}'")
        if isinstance(value, ObjectValue) and (
            isinstance(type_lookup(value.cls, "__hash__"), types.FunctionType)
        ):
            raise breaks.GraphBreak(
                breaks.UNSUPPORTED_OP, f"{value.describe()} (own __hash__) as a key"
            )
        try:
            return value.constant()
        except NotConstant:
            self.identities.hashed(value)
            obj = getattr(value, "obj", None)
            return IdentityKey(value) if obj is None else IdentityKey(obj)

    # -- identity, truth, membership ---------------------------------------------------------
    def is_none(self, value: Value) -> bool:
        """Say whether a value is None."""
        return isinstance(value, ConstValue) and value.obj is None

    def identical(self: Tracer, left: Value, right: Value) -> bool:
        """Say whether two values are the same object."""
        if left is right:
            return True
        if isinstance(left, ConstValue) and isinstance(right, ConstValue):
            if left.obj is right.obj:
                return True
            small = isinstance(left.obj, int | str) and type(left.obj) is type(right.obj)
            return bool(small and left.obj == right.obj)
        both = isinstance(left, TensorValue) and isinstance(right, TensorValue)
        if both and left.example is right.example and left.kind is right.kind:  # type: ignore[attr-defined]
            return True  # one call returned it twice
        a, b = getattr(left, "obj", None), getattr(right, "obj", None)
        if a is not None and a is b:
            return True
        self.identities.differ(left, right)
        return False

    def logical_not(self: Tracer, value: Value) -> Value:
        """Return ``not value``."""
        return ConstValue(not value.truth(self))

    def contains(self: Tracer, container: Value, item: Value) -> Value:
        """Return ``item in container``."""
        if isinstance(container, ConstValue):
            if isinstance(item, TensorValue):
                raise breaks.GraphBreak(breaks.DATA_BRANCH)
            return self.known(self.fold(operator.contains, container.obj, self.concrete(item)))
        if isinstance(container, TensorValue):
            return self.call_torch("__contains__", [container, item], {}, method=True)
        if isinstance(container, ObjectValue):
            method = container.dunder(self, "__contains__")
            if method is None:
                return ConstValue(any(self.equal(v, item) for v in container.unpack(self)))
            return ConstValue(method.call(self, [item], {}).truth(self))
        if isinstance(container, ClassValue):
            return self.known(self.fold(operator.contains, container.obj, self.concrete(item)))
        try:
            return container.method(self, "__contains__", [item], {})
        except breaks.GraphBreak:
            return ConstValue(any(self.equal(v, item) for v in container.unpack(self)))

    def equal(self: Tracer, left: Value, right: Value) -> bool:
        """Return ``left is right or left == right`` as a Python bool, as containers compare."""
        return self.identical(left, right) or self.binary("eq", left, right).truth(self)

    # -- operators -------------------------------------------------------------------------
    def unary(self: Tracer, name: str, value: Value) -> Value:
        """Apply ``operator.<name>``."""
        function = getattr(operator, name)
        if isinstance(value, SubclassValue):
            own = self._own_operator(value, f"__{name}__")
            if own is not None:
                return self.inline_object(own, [value])
        if isinstance(value, NodeValue):
            return self.call_torch(function, [value], {})
        if isinstance(value, ArrayValue):
            return value.method(self, f"__{name}__", [], {})
        if isinstance(value, ObjectValue):
            return value.method(self, f"__{name}__", [], {})
        return self.known(self.fold(function, self.concrete(value)))

    def binary(self: Tracer, name: str, left: Value, right: Value) -> Value:
        """Apply ``operator.<name>``: constants fold, tensors record, objects call their methods."""
        if isinstance(left, ArrayValue) or isinstance(right, ArrayValue):
            return self._array_binary(name, left, right)
        found = self._user_binary(name, left, right)
        if found is not None:
            return found
        if isinstance(left, NodeValue) or isinstance(right, NodeValue):
            return self._node_binary(name, left, right)
        if isinstance(left, DictView) and isinstance(right, DictView | SetValue):
            pair = [set_of(self, side.unpack(self)) for side in (left, right)]
            return self.binary(name, *pair)
        if (
            isinstance(right, SetValue)
            and isinstance(left, ConstValue)
            and (type(left.obj) is frozenset)
        ):
            left = self.frozen_set(left.unpack(self))
        if isinstance(left, SetValue) or (isinstance(left, DictValue) and name in ("or_", "ior")):
            return self._container_operator(name, left, right)
        if isinstance(left, SequenceValue) or isinstance(right, SequenceValue):
            found = self._sequence_binary(name, left, right)
            if found is not None:
                return found
        if isinstance(left, DictValue) and isinstance(right, DictValue) and name in ("eq", "ne"):
            return ConstValue(self._dicts_equal(left, right) == (name == "eq"))
        if name in ("eq", "ne") and not (left.is_constant() and right.is_constant()):
            for side in (left, right):
                self._refuse_own_comparison(side, name)
            return ConstValue(self.identical(left, right) == (name == "eq"))
        a, b = self._operand(left, name), self._operand(right, name)
        return self.known(self.fold(getattr(operator, name), a, b))

    @staticmethod
    def _refuse_own_comparison(side: Value, name: str) -> None:
        """Break the graph where an object that cannot be read compares by more than identity."""
        if isinstance(side, OpaqueValue) and type_lookup(type(side.obj), "__eq__") is not _EQUAL:
            side.cannot(breaks.UNSUPPORTED_OP, f"operator.{name} on {side.describe()}")

    def _array_binary(self: Tracer, name: str, left: Value, right: Value) -> Value:
        if left.is_constant() and right.is_constant():
            both = self.concrete(left), self.concrete(right)
            return self.known(self.fold(getattr(operator, name), *both))
        if isinstance(left, TensorValue) or isinstance(right, TensorValue):
            pair = [self._unboxed(side) for side in (left, right)]
            return self.call_torch(getattr(operator, name), pair, {})
        owner, other = (left, right) if isinstance(left, ArrayValue) else (right, left)
        if name in COMPARISONS and (self.is_none(other) or not isinstance(left, ArrayValue)):
            if self.is_none(other):
                return ConstValue(self.identical(left, right) == (name == "eq"))
            return owner.method(self, f"__{REFLECTED[name]}__", [other], {})
        plain = name.rstrip("_")
        dunder = f"__{plain}__" if isinstance(left, ArrayValue) else f"__r{plain}__"
        found = owner.method(self, dunder, [other], {})
        in_place = plain.startswith("i") and plain not in ("invert", "index")
        scalar = isinstance(owner, ArrayValue) and owner.scalar
        return left if in_place and not scalar else found

    @staticmethod
    def _unboxed(side: Value) -> Value:
        boxed = isinstance(side, ArrayValue) and side.fixed is None
        return side.tensor if boxed else side  # type: ignore[attr-defined]

    def _operand(self: Tracer, value: Value, name: str) -> Any:
        try:
            return value.constant()
        except NotConstant:
            what = f"operator.{name} on {value.describe()}"
            raise breaks.GraphBreak(breaks.UNSUPPORTED_OP, what) from None

    def _node_binary(self: Tracer, name: str, left: Value, right: Value) -> Value:
        other = right if isinstance(left, NodeValue) else left
        plain = isinstance(other, NodeValue | ConstValue | SequenceValue)
        if name in ("eq", "ne") and (not plain or self.is_none(other)):
            return ConstValue(self.identical(left, right) == (name == "eq"))
        if isinstance(left, SequenceValue) or isinstance(right, SequenceValue):
            sequence = left if isinstance(left, SequenceValue) else right
            if not isinstance(other, TensorValue) and name in ("mul", "imul"):
                count = self.concrete(right if sequence is left else left)
                return self.binary(name, sequence, ConstValue(count))
        if isinstance(other, ConstValue) and isinstance(other.obj, str):
            if name == "mod":
                return self.known(
                    self.fold(operator.mod, self.concrete(left), self.concrete(right))
                )
            if name in ("eq", "ne"):
                return ConstValue(name == "ne")
            return self.raise_(TypeError, f"unsupported operand type(s) for {name}: 'str'")
        if name in IN_PLACE and not isinstance(left, TensorValue):
            name = IN_PLACE[name]
        return self.call_torch(getattr(operator, name), [left, right], {})

    def _user_binary(self: Tracer, name: str, left: Value, right: Value) -> Value | None:
        """Return what an operator method written by users gives, or None if there is none."""
        plain = name.rstrip("_")
        attempts = [(left, f"__{plain}__", right)]
        if name[0] == "i" and name not in ("invert", "is_"):
            attempts.append((left, f"__{plain[1:]}__", right))
            attempts.append((right, f"__r{plain[1:]}__", left))
        elif name in COMPARISONS:
            attempts.append((right, f"__{REFLECTED[name]}__", left))
        else:
            attempts.append((right, f"__r{plain}__", left))
        if self._reflected_goes_first(left, right, attempts[-1][1]):
            attempts.insert(0, attempts.pop())
        for owner, method, argument in attempts:
            raw = self._own_operator(owner, method)
            if raw is None:
                continue
            result = self.inline_object(raw, [owner, argument])
            if not (isinstance(result, ConstValue) and result.obj is NotImplemented):
                return result
        if name == "ne" and isinstance(left, ObjectValue):
            raw = type_lookup(left.cls, "__eq__")
            if isinstance(raw, types.FunctionType):
                return self.logical_not(self.inline_object(raw, [left, right]))
        return self._compare_natively(name, left, right) if name in ("eq", "ne") else None

    def _reflected_goes_first(self, left: Value, right: Value, method: str) -> bool:
        """Return whether Python asks the right operand first: its class derives from the left."""
        if not isinstance(left, OWNERS) or not isinstance(right, OWNERS):
            return False
        one, other = left.python_type(), right.python_type()
        derived = one is not other and issubclass(other, one)
        return derived and type_lookup(other, method) is not type_lookup(one, method)

    def _compare_natively(self: Tracer, name: str, left: Value, right: Value) -> Value | None:
        """Compare two objects one of whose classes compares in C; None if neither does."""
        classes = [side.cls for side in (left, right) if isinstance(side, ObjectValue)]
        if classes == [types.SimpleNamespace] * 2:
            return self.binary(name, left.attr(self, "__dict__"), right.attr(self, "__dict__"))
        for cls in classes:
            raw = type_lookup(cls, "__eq__")
            identity = raw is object.__eq__ or cls is types.SimpleNamespace
            if isinstance(raw, types.WrapperDescriptorType) and not identity:
                what = f"{cls.__qualname__}.__eq__, which is not written in Python,"
                raise breaks.GraphBreak(breaks.UNSUPPORTED_OP, what)
        return None

    def _own_operator(self: Tracer, owner: Value, method: str) -> types.FunctionType | None:
        """Return an operator method that a class written by users has."""
        kind = owner.python_type() if isinstance(owner, OWNERS) else tuple
        if kind is tuple:
            return None
        look_up = own_attribute if isinstance(owner, SubclassValue) else type_lookup
        raw = look_up(kind, method)
        return raw if isinstance(raw, types.FunctionType) else None

    def _container_operator(self: Tracer, name: str, left: Value, right: Value) -> Value:
        method = f"__{name.rstrip('_')}__"
        if name == "ne":
            return self.logical_not(left.method(self, "__eq__", [right], {}))
        if name[0] == "i" and isinstance(left, SetValue):
            result = left.method(self, f"__{name[1:].rstrip('_')}__", [right], {})
            assert isinstance(result, SetValue)
            self.effects.changed(left)
            left.items = result.items
            return left
        return left.method(self, method, [right], {})

    def _sequence_binary(self: Tracer, name: str, left: Value, right: Value) -> Value | None:
        if name in ("mul", "imul"):
            sequence, count = (left, right) if isinstance(left, SequenceValue) else (right, left)
            assert isinstance(sequence, SequenceValue)
            slots = sequence.slots * self.concrete(count)
            if name == "imul" and isinstance(sequence, ListValue):
                self.effects.changed(sequence)
                sequence.slots = slots
                return sequence
            return sequence.like(slots)
        if not isinstance(left, SequenceValue):
            return None
        if name == "iadd" and isinstance(left, ListValue):
            return left.method(self, "__iadd__", [right], {})
        if not isinstance(right, SequenceValue):
            if name in ("eq", "ne"):
                return ConstValue(name == "ne")
            return None
        if name in ("add", "iadd"):
            return left.like([*left.slots, *right.slots])
        if name in COMPARISONS:
            return self._compare_sequences(name, left, right)
        return None

    def _compare_sequences(
        self: Tracer, name: str, left: SequenceValue, right: SequenceValue
    ) -> Value:
        if isinstance(left, ListValue) != isinstance(right, ListValue):
            if name in ("eq", "ne"):
                return ConstValue(name == "ne")
            return self.raise_(TypeError, f"operator.{name} between a list and a tuple")
        a, b = left.values(self), right.values(self)
        if name in ("eq", "ne") and len(a) != len(b):
            return ConstValue(name == "ne")
        for x, y in zip(a, b, strict=False):
            if not self.equal(x, y):
                return (
                    self.binary(name, x, y)
                    if name not in ("eq", "ne")
                    else ConstValue(name == "ne")
                )
        return ConstValue(getattr(operator, name)(len(a), len(b)))

    def _dicts_equal(self: Tracer, left: DictValue, right: DictValue) -> bool:
        if set(left.whole(self)) != set(right.whole(self)):
            return False
        return all(self.equal(left.at(self, k), right.at(self, k)) for k in left.entries)

    # -- text ------------------------------------------------------------------------------
    def convert_text(self: Tracer, function: Callable[[Any], str], value: Value) -> Value:
        """Apply str, repr or ascii."""
        if isinstance(value, ConstValue) and type(value.obj) is str and function is str:
            return value
        if isinstance(value, ExceptionValue) and function is str:
            return ConstValue(value.text())
        if isinstance(value, ObjectValue):
            for name in ("__str__", "__repr__") if function is str else ("__repr__",):
                raw = type_lookup(value.cls, name)
                if isinstance(raw, types.FunctionType):
                    return self.inline_object(raw, [value])
        if isinstance(value, TensorValue):
            raise breaks.GraphBreak(breaks.TENSOR_ITEM, f"{function.__name__}()")
        return self.known(self.fold(function, self.concrete(value)))

    def format(self: Tracer, value: Value, spec: str) -> Value:
        """Apply ``format(value, spec)``."""
        if isinstance(value, TensorValue):
            raise breaks.GraphBreak(breaks.TENSOR_ITEM, "__format__()")
        if isinstance(value, ObjectValue | ExceptionValue):
            value = self.convert_text(str, value)
        return self.known(self.fold(format, self.concrete(value), spec))

    # -- iteration -------------------------------------------------------------------------
    def iterate_by_index(self: Tracer, owner: Value) -> Value:
        """Iterate over an object that only has ``__getitem__``."""
        index = iter(range(1 << 62))

        def step() -> Value:
            try:
                return owner.item(self, ConstValue(next(index)))
            except Raised as raised:
                if issubclass(raised.value.python_type(), IndexError):
                    raise Exhausted from None
                raise

        return StepIterator(step, type(iter([])))

    def constant_iterator(self: Tracer, obj: Any) -> Value:
        """Iterate over a known object."""
        self.fold(iter, obj)
        return ConstIterator(obj)

    def advance_by_next(self: Tracer, call: Callable[[], Value]) -> Value:
        """Call a ``__next__`` written by users; StopIteration ends the iteration."""
        try:
            return call()
        except Raised as raised:
            if issubclass(raised.value.python_type(), StopIteration):
                raise Exhausted from None
            raise

    # -- classes ---------------------------------------------------------------------------
    def classes(self: Tracer, value: Value) -> Any:
        """Return a class, or a tuple of classes, for isinstance and except."""
        if isinstance(value, TupleValue):
            return tuple(self.classes(item) for item in value.values(self))
        return self.concrete(value)

    def lambda_value(
        self, function: Callable[[Tracer, Args, Kwargs], Value], text: str, rebuild: Any = None
    ) -> LambdaValue:
        """Return a callable made by the tracer."""
        return LambdaValue(function, text, rebuild)

    def builtin_method(self: Tracer, owner: Value, name: str) -> Value:
        """Return a bound method of a list, dict, set … as a value."""
        kind = owner.python_type()
        if not hasattr(kind, name):
            self.raise_(AttributeError, f"'{kind.__name__}' object has no attribute '{name}'")

        def run(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
            try:
                return owner.method(t, name, args, kwargs)
            except UNEXPECTED:
                raise_as_python(t, owner, name, args, kwargs)
                raise

        def rebuild(r: Any) -> None:
            r.push(owner)
            r.e.load_attr(name)

        return LambdaValue(run, f"{kind.__name__}.{name}", rebuild, (owner,))


class IdentityKey:
    """A dictionary key compared by identity."""

    def __init__(self, obj: Any) -> None:
        self.obj = obj

    def __hash__(self) -> int:
        return id(self.obj)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IdentityKey) and other.obj is self.obj
