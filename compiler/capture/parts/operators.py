"""Python's unary and binary operators over values."""

from __future__ import annotations

import collections
import collections.abc
import operator
import types
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import torch

from tc.compiler.capture import breaks
from tc.compiler.capture.values.array_operands import operand
from tc.compiler.capture.values.arrays import ArrayValue
from tc.compiler.capture.values.base import (
    NotConstant,
    OpaqueValue,
    Raised,
    Value,
)
from tc.compiler.capture.values.const import ConstValue, is_not_implemented
from tc.compiler.capture.values.containers import ListValue, SequenceValue, TupleValue
from tc.compiler.capture.values.copies import IdentityNumber
from tc.compiler.capture.values.deques import DequeValue
from tc.compiler.capture.values.dict_objects import DictObjectValue
from tc.compiler.capture.values.dicts import DictValue, DictView
from tc.compiler.capture.values.functions import MethodValue
from tc.compiler.capture.values.keys import find
from tc.compiler.capture.values.lookup import (
    MISSING,
    REFLECTED,
    full_name,
    has_any,
    inherits,
    methods_of,
    python_method,
    type_lookup,
)
from tc.compiler.capture.values.objects import ClassValue, ObjectValue
from tc.compiler.capture.values.proxies import MappingProxyValue
from tc.compiler.capture.values.records import WeakReference
from tc.compiler.capture.values.sets import IN_PLACE as IN_PLACE_ON_SETS
from tc.compiler.capture.values.sets import SetValue, set_from, set_of
from tc.compiler.capture.values.slices import SliceValue
from tc.compiler.capture.values.stored_objects import StoredObject, items_for
from tc.compiler.capture.values.subclasses import SubclassValue
from tc.compiler.capture.values.tensor import (
    ARITHMETIC,
    OF_WHOLE,
    NodeValue,
    SymValue,
    TensorValue,
    decided,
)
from tc.compiler.capture.values.texts import TextValue, joined, percent

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter, PythonInterface
COMPARISONS = frozenset(REFLECTED)
#: kinds of values whose classes may define operators in Python
OWNERS = (ObjectValue, TupleValue, SubclassValue)
#: and those among which are members of enumerations, and classes
HAVE_METHODS = (*OWNERS, ConstValue, ClassValue)
#: classes that operators of sets take
SETS = (set, frozenset, collections.abc.Set)
#: types of numbers, which know all operators of numbers
NUMBERS = (bool, int, float, complex)
#: types with C's operators, which classes that derive from them have, too
CONTAINERS = (list, tuple, dict, set, frozenset)
PLAIN = (*CONTAINERS, str, bytes, int, float)
#: names of the operator ``~``, which symbols follow as ``-n - 1``
INVERT = ("inv", "invert")
#: in-place operator -> the plain one, which immutable left operands fall back to
IN_PLACE = {
    f"i{name.rstrip('_')}": name
    for name in [
        *ARITHMETIC,
        "matmul",
        *OF_WHOLE,
    ]
}


class Operators:
    """Applies Python's operators to values."""

    def __init__(self, t: Interpreter, python: PythonInterface) -> None:
        self.t = t
        self.python = python

    def unary(self, name: str, value: Value) -> Value:
        """Apply ``operator.<name>``."""
        function = getattr(operator, name)
        value = decided(self.t, value)
        if value.has_own(f"__{name}__"):
            return value.call_special(self.t, f"__{name}__", [])
        if (
            isinstance(value, SymValue)
            and value.python_type() is int
            and name in INVERT
        ):
            return self.binary("sub", self.unary("neg", value), ConstValue(1))
        if isinstance(value, NodeValue):
            return self.t.output.call_torch(function, [value], {})
        if isinstance(value, ArrayValue):
            return value.method(self.t, f"__{name}__", [], {})
        if isinstance(value, ObjectValue):
            if value.dunder(self.t, f"__{name}__") is None:
                self._raise_as_python(name, value)
            return value.method(self.t, f"__{name}__", [], {})
        return self.python.folded(function, self.python.concrete(value))

    def binary(self, name: str, left: Value, right: Value) -> Value:
        """Apply ``operator.<name>``: constants fold, tensors record, objects call their methods."""
        left, right = decided(self.t, left), decided(self.t, right)
        if (text := self._text_binary(name, left, right)) is not None:
            return text
        if (found := self._of_storages(name, left, right)) is not None:
            return found
        if isinstance(left, ArrayValue) or isinstance(right, ArrayValue):
            return self._array_binary(name, left, right)
        if name in COMPARISONS:
            left, right = _compared(left, right)
        found = self._user_binary(name, left, right)
        if found is not None:
            return found
        if name in ("mul", "imul"):
            left, right = self._count(left, right), self._count(right, left)
        merges, equality = name in ("or_", "ior"), name in ("eq", "ne")
        method = f"__{name.rstrip('_')}__"
        if merges and isinstance(left, DictObjectValue):
            self._raise_as_python(name, left, right)
            return left.special(self.t, method, [right], "")
        if isinstance(left, NodeValue) or isinstance(right, NodeValue):
            if not equality:
                self._raise_as_python(name, left, right)
            return self._node_binary(name, left, right)
        found = self._equal_of_kinds(name, left, right) if equality else None
        if found is not None:
            return found
        if isinstance(left, DictView) and isinstance(right, DictView | SetValue):
            pair = [set_of(self.t, side.unpack(self.t)) for side in (left, right)]
            return self.binary(name, *pair)
        frozen = isinstance(left, ConstValue) and type(left.obj) is frozenset
        if frozen and isinstance(right, SetValue):
            left = set_from(self.t, left, frozenset)
        merged = merges and isinstance(left, DictValue)
        if merged or (isinstance(left, SetValue) and has_any(set, (method,))):
            return self._container_operator(name, left, right)
        formats = (
            name == "mod" and isinstance(left, ConstValue) and type(left.obj) is bytes
        )
        if formats and isinstance(right, SequenceValue):
            return self.python.folded(
                operator.mod, left.obj, self.python.concrete(right)
            )
        if isinstance(left, SequenceValue) or isinstance(right, SequenceValue):
            self._raise_as_python(name, left, right)
            found = self._sequence_binary(name, left, right)
            if found is not None:
                return found
        if equality and isinstance(left, DictValue) and isinstance(right, DictValue):
            return ConstValue(self._dicts_equal(left, right) == (name == "eq"))
        if equality and not (left.is_constant() and right.is_constant()):
            self._refuse_own_comparison(left, right, name)
            self._refuse_own_comparison(right, left, name)
            return ConstValue(self.python.identical(left, right) == (name == "eq"))
        self._raise_as_python(name, left, right)
        a, b = self._operand(left, name), self._operand(right, name)
        return self.python.folded(getattr(operator, name), a, b)

    def _of_storages(
        self,
        name: str,
        left: Value,
        right: Value,
    ) -> Value | None:
        """Apply an operator that classes leave to their containers; None if one does not."""
        plain = items_for(name, left), items_for(name, right)
        as_given = plain == (left, right)
        if as_given or any(isinstance(side, StoredObject) for side in plain):
            return None
        if not any(side.has_own(*methods_of(name)) for side in plain):
            self._raise_as_python(name, left, right)
        result = self.binary(name, *plain)
        return left if result is plain[0] else result

    def _count(self, count: Value, repeated: Value) -> Value:
        """Return how often a sequence is repeated, or what else multiplies."""
        text = isinstance(repeated, ConstValue) and type(repeated.obj) in (str, bytes)
        repeats = text or isinstance(repeated, SequenceValue)
        if repeats and count.has_own("__index__"):
            return self.python.index(count)
        # numpy leaves to Python what its integers repeat; other scalars multiply the items
        if repeats and issubclass(count.python_type(), np.integer):
            return ConstValue(self.python.concrete(count))
        return count

    def _raise_as_python(self, name: str, *operands: Value) -> None:
        """Raise Python's error where no class of the operands knows an operator.

        Methods that the program defines have been asked, and have returned NotImplemented.
        """
        if all(isinstance(value, ConstValue) for value in operands):
            return  # Python is asked with the constants
        if all(
            isinstance(value, SymValue) or value.python_type() in NUMBERS
            for value in operands
        ):
            return  # what numbers refuse depends on the numbers
        samples = [_sample(value, name) for value in operands]
        if MISSING not in samples:
            self.python.fold(vars(operator)[name], *samples)

    def _text_binary(self, name: str, left: Value, right: Value) -> Value | None:
        """Fill in fields, and put symbolic texts together; None for all other operators."""
        plain = name.removeprefix("i")
        if plain not in ("add", "mod") or not isinstance(left, ConstValue):
            return None
        if left.python_type() is not str:
            return None
        if plain == "mod":
            return percent(self.t, left.obj, right)
        symbolic = isinstance(left, TextValue) or isinstance(right, TextValue)
        texts = symbolic and right.python_type() is str
        return joined(self.t, [left, right]) if texts else None

    def divmod(self, left: Value, right: Value) -> Value:
        """Apply ``divmod``; objects have a method of its own for it."""
        found = self._user_binary("divmod", left, right)
        if found is not None:
            return found
        if isinstance(left, ObjectValue) or isinstance(right, ObjectValue):
            for value, method in ((left, "__divmod__"), (right, "__rdivmod__")):
                inherited = type_lookup(value.python_type(), method)
                in_c = isinstance(inherited, types.WrapperDescriptorType)
                if in_c and isinstance(value, ObjectValue):
                    what = f"divmod on {value.describe()}"
                    raise breaks.GraphBreak(breaks.UNSUPPORTED_OP, what)
            self._refuse_divmod(left, right)
        if left.is_constant() and right.is_constant():
            both = self.python.concrete_list([left, right])
            return self.python.folded(divmod, *both)
        try:
            whole = self.binary("floordiv", left, right)
        except Raised as raised:  # without code of the program
            if raised.value.python_type() is TypeError:
                self._refuse_divmod(left, right)
            raise
        return TupleValue([whole, self.binary("mod", left, right)])

    def _refuse_divmod(self, left: Value, right: Value) -> NoReturn:
        kinds = (
            f"'{full_name(left.python_type())}' and '{full_name(right.python_type())}'"
        )
        text = f"unsupported operand type(s) for divmod(): {kinds}"
        self.python.raise_(TypeError, text)

    def _refuse_own_comparison(self, side: Value, other: Value, name: str) -> None:
        """Break the graph where an object that cannot be read compares by more than identity."""
        if isinstance(side, IdentityNumber) and side.obj.source and other.is_constant():
            raise breaks.GraphBreak(
                breaks.UNSUPPORTED_OP, f"{side.noun} {name} a number"
            )
        if isinstance(side, OpaqueValue) and not only_objects(side, "__eq__"):
            side.cannot(breaks.UNSUPPORTED_OP, f"operator.{name} on {side.describe()}")

    def _array_binary(self, name: str, left: Value, right: Value) -> Value:
        if name in ("mul", "imul"):
            counted = self._count(left, right), self._count(right, left)
            if not any(isinstance(one, ArrayValue) for one in counted):
                return self.binary(name, *counted)
        if left.is_constant() and right.is_constant():
            both = self.python.concrete(left), self.python.concrete(right)
            return self.python.folded(getattr(operator, name), *both)
        if isinstance(left, TensorValue) or isinstance(right, TensorValue):
            array = left if isinstance(left, ArrayValue) else right
            plain_array = isinstance(array, ArrayValue) and not array.scalar
            if plain_array and (array is left or name in COMPARISONS):
                raise breaks.GraphBreak(
                    breaks.UNSUPPORTED_OP, f"{left.noun} {name} {right.noun}"
                )
            pair = [operand(name, left, right), operand(name, right, left)]
            return self.t.output.call_torch(getattr(operator, name), pair, {})
        owner, other = (left, right) if isinstance(left, ArrayValue) else (right, left)
        if left.python_type() is complex and right.python_type() is np.float64:
            raise breaks.GraphBreak(
                breaks.UNSUPPORTED_OP, f"{name} of a complex and a float64"
            )
        if name in COMPARISONS and (
            self.python.is_none(other) or not isinstance(left, ArrayValue)
        ):
            if self.python.is_none(other):
                return ConstValue(self.python.identical(left, right) == (name == "eq"))
            return owner.method(self.t, f"__{REFLECTED[name]}__", [other], {})
        plain = name.rstrip("_")
        in_place = plain.startswith("i") and plain not in ("invert", "index")
        scalar = not isinstance(left, ArrayValue) or left.scalar
        if in_place and scalar:  # which makes a new object
            plain, in_place = plain[1:], False
        dunder = f"__{plain}__" if isinstance(left, ArrayValue) else f"__r{plain}__"
        found = owner.method(self.t, dunder, [other], {})
        return left if in_place else found

    def _operand(self, value: Value, name: str) -> Any:
        try:
            return value.constant()
        except NotConstant:
            what = f"operator.{name} on {value.describe()}"
            raise breaks.GraphBreak(breaks.UNSUPPORTED_OP, what) from None

    def _node_binary(self, name: str, left: Value, right: Value) -> Value:
        other = right if isinstance(left, NodeValue) else left
        plain = isinstance(other, NodeValue | ConstValue | SequenceValue)
        if name in ("eq", "ne") and (not plain or self.python.is_none(other)):
            return ConstValue(self.python.identical(left, right) == (name == "eq"))
        if isinstance(left, SequenceValue) or isinstance(right, SequenceValue):
            sequence = left if isinstance(left, SequenceValue) else right
            if not isinstance(other, TensorValue) and name in ("mul", "imul"):
                count = self.python.concrete(right if sequence is left else left)
                return self.binary(name, sequence, ConstValue(count))
        if isinstance(other, ConstValue) and isinstance(other.obj, str):
            if name in ("eq", "ne"):
                return ConstValue(name == "ne")
            both = self.python.concrete_list([left, right])
            return self.python.folded(getattr(operator, name), *both)
        if name in IN_PLACE and not isinstance(left, TensorValue):
            name = IN_PLACE[name]
        return self.t.output.call_torch(getattr(operator, name), [left, right], {})

    def _user_binary(self, name: str, left: Value, right: Value) -> Value | None:
        """Return the result of an operator method that a class defines, or None if none does."""
        plain = name.rstrip("_")
        attempts = [(left, f"__{plain}__", right, False)]
        if name[0] == "i" and name not in ("invert", "is_"):
            plain = plain[1:]
            attempts.append((left, f"__{plain}__", right, False))
        if name in COMPARISONS:
            attempts.append((right, f"__{REFLECTED[name]}__", left, True))
        elif not self._of_one_class(left, right):
            attempts.append((right, f"__r{plain}__", left, True))
        if self._reflected_goes_first(left, right, attempts[-1][1]):
            attempts.insert(0, attempts.pop())
        for owner, method, argument, reflects in attempts:
            if isinstance(owner, OpaqueValue) and not only_objects(owner, method):
                owner.cannot(breaks.UNSUPPORTED_OP, f"{owner.describe()}.{method}")
            absent = not owner.has_own(method)
            if absent or (reflects and self._tensor_asks(left, right)):
                continue
            if (
                plain == "mod"
                and reflects
                and issubclass(left.python_type(), str | bytes)
            ):
                continue  # formatting takes every operand
            result = owner.call_special(self.t, method, [argument])
            if not is_not_implemented(result):
                return result
        for owner, other in ((left, right), (right, left)) if name == "ne" else ():
            inherits = type_lookup(owner.python_type(), "__ne__") is object.__ne__
            if owner.has_own("__eq__") and inherits:
                result = owner.call_special(self.t, "__eq__", [other])
                if not is_not_implemented(result):
                    return self.python.logical_not(result)
        return (
            self._compare_natively(name, left, right) if name in ("eq", "ne") else None
        )

    @staticmethod
    def _of_one_class(left: Value, right: Value) -> bool:
        """Return whether Python asks no reflected method: that of the left operand is the same."""
        known = isinstance(left, HAVE_METHODS) and isinstance(right, HAVE_METHODS)
        return known and left.python_type() is right.python_type()

    @staticmethod
    def _tensor_asks(left: Value, right: Value) -> bool:
        """Return whether a tensor's operator takes its right operand, which is not asked."""
        if not isinstance(left, TensorValue):
            return False
        if isinstance(right, ConstValue):
            # a member that tensors take as a number
            return isinstance(right.obj, int | float | complex)
        if not isinstance(right, OWNERS):
            return False
        return type_lookup(right.python_type(), "__torch_function__") is not MISSING

    def _reflected_goes_first(self, left: Value, right: Value, method: str) -> bool:
        """Return whether Python asks the right operand first: its class derives from the left."""
        if not isinstance(left, HAVE_METHODS) or not isinstance(right, HAVE_METHODS):
            return False
        one, other = left.python_type(), right.python_type()
        if one is other or not issubclass(other, one):
            return False
        # which are asked even if not overridden
        compares = method.strip("_") in COMPARISONS
        return compares or type_lookup(other, method) is not type_lookup(one, method)

    def _compare_natively(self, name: str, left: Value, right: Value) -> Value | None:
        """Compare two objects one of whose classes compares in C; None if neither does."""
        classes = [side.cls for side in (left, right) if isinstance(side, ObjectValue)]
        if classes == [types.SimpleNamespace] * 2:
            own, other = left.attr(self.t, "__dict__"), right.attr(self.t, "__dict__")
            return self.binary(name, own, other)
        for cls in classes:
            raw = type_lookup(cls, "__eq__")
            identity = raw is object.__eq__ or cls is types.SimpleNamespace
            if isinstance(raw, types.WrapperDescriptorType) and not identity:
                what = f"{cls.__qualname__}.__eq__, which is not written in Python,"
                raise breaks.GraphBreak(breaks.UNSUPPORTED_OP, what)
        return None

    def _container_operator(self, name: str, left: Value, right: Value) -> Value:
        method = f"__{name.rstrip('_')}__"
        if name in ("eq", "ne"):
            if isinstance(left, SetValue) and not issubclass(right.python_type(), SETS):
                return ConstValue(name == "ne")
        elif name != "ior" or isinstance(left, SetValue):
            self._refuse_operands(name, left, right)
        if name == "ne":
            return self.python.logical_not(left.method(self.t, "__eq__", [right], {}))
        if name[0] == "i" and isinstance(left, SetValue):
            if left.kind is set:
                left.method(self.t, IN_PLACE_ON_SETS[name.rstrip("_")], [right], {})
                return left
            method = f"__{name[1:].rstrip('_')}__"
        ordered = issubclass(right.python_type(), collections.OrderedDict)
        if name == "or_" and ordered and left.python_type() is dict:
            return right.method(self.t, "__ror__", [left], {})
        both = isinstance(left, DictValue) and isinstance(right, DictValue)
        if (
            name == "or_"
            and both
            and left.python_type() is dict is not right.python_type()
        ):
            # its class is derived from dict
            return right.method(self.t, "__ror__", [left], {})
        return left.method(self.t, method, [right], {})

    def _refuse_operands(self, name: str, left: Value, right: Value) -> None:
        """Raise Python's error if a set or dict meets what is neither."""
        kind = right.python_type()
        if issubclass(kind, dict if isinstance(left, DictValue) else SETS):
            return
        plain = name.rstrip("_").removeprefix("i")
        reflected = f"__{REFLECTED.get(name, 'r' + plain)}__"
        own = type_lookup(kind, reflected)
        usual = [
            MISSING,
            *(type_lookup(cls, reflected) for cls in (object, dict, tuple, int)),
        ]
        if not any(own is method for method in usual):
            raise breaks.GraphBreak(
                breaks.UNSUPPORTED_OP, f"{left.noun} {name} {right.noun}"
            )
        # Python's message has the names of the two classes
        named = type(kind.__name__, (), {})
        self.python.fold(vars(operator)[name], left.python_type()(), named())

    def _sequence_binary(self, name: str, left: Value, right: Value) -> Value | None:
        if name in ("mul", "imul"):
            sequence, count = (
                (left, right) if isinstance(left, SequenceValue) else (right, left)
            )
            assert isinstance(sequence, SequenceValue)
            repeated = self.python.fold(
                operator.mul, sequence.places(), self.python.concrete(count)
            )
            slots = [sequence.slots[place] for place in repeated]
            if name == "imul" and isinstance(left, ListValue):
                self.t.effects.changed(sequence)
                sequence.slots = slots
                return sequence
            return sequence.like(slots)
        if not isinstance(left, SequenceValue):
            return None
        if name == "iadd" and isinstance(left, ListValue):
            return left.method(self.t, "__iadd__", [right], {})
        if not isinstance(right, SequenceValue):
            if name in ("eq", "ne"):
                return ConstValue(name == "ne")
            return None
        if name in ("add", "iadd"):
            self.python.fold(operator.add, left.places(), right.places())
            like = right if (left.kind, right.kind) == (tuple, torch.Size) else left
            return like.like([*left.slots, *right.slots])
        if name in COMPARISONS:
            return self._compare_sequences(name, left, right)
        return None

    def _compare_sequences(
        self, name: str, left: SequenceValue, right: SequenceValue
    ) -> Value:
        if any(
            isinstance(left, c) != isinstance(right, c) for c in (ListValue, DequeValue)
        ):
            return self.python.folded(
                getattr(operator, name), left.places(), right.places()
            )
        a, b = left.values(self.t), right.values(self.t)
        if name in ("eq", "ne") and len(a) != len(b):
            return ConstValue(name == "ne")
        for x, y in zip(a, b, strict=False):
            if not self.python.equal(x, y):
                return (
                    self.binary(name, x, y)
                    if name not in ("eq", "ne")
                    else ConstValue(name == "ne")
                )
        return ConstValue(getattr(operator, name)(len(a), len(b)))

    def _equal_of_kinds(self, name: str, left: Value, right: Value) -> Value | None:
        """Compare what Python compares by other than its contents; None for everything else."""
        views = [side.name for side in (left, right) if isinstance(side, DictView)]
        if len(views) == 2 and "values" in views:
            return ConstValue((left is right) == (name == "eq"))
        if isinstance(left, MethodValue) and isinstance(right, MethodValue):
            same = self.python.identical(left.owner, right.owner)
            same = same and self.python.equal(left.function, right.function)
            return ConstValue(same == (name == "eq"))
        references = isinstance(left, WeakReference), isinstance(right, WeakReference)
        if all(references) and isinstance(left, WeakReference):
            assert isinstance(right, WeakReference)
            if left.is_dead(self.t) or right.is_dead(self.t):
                same = left is right
            else:
                same = self.python.equal(left.target, right.target)
            return ConstValue(same == (name == "eq"))
        dicts = DictValue | DictObjectValue
        kinds = isinstance(left, dicts) and isinstance(right, dicts)
        if kinds and (
            isinstance(left, DictObjectValue) != isinstance(right, DictObjectValue)
        ):
            raise breaks.GraphBreak(
                breaks.UNSUPPORTED_OP, f"{left.noun} {name} {right.noun}"
            )
        return None

    def _dicts_equal(self, left: DictValue, right: DictValue) -> bool:
        items, others = left.whole(self.t), right.whole(self.t)
        if len(items) != len(others):
            return False
        for token in list(items):
            found = find(others, token)
            if found is MISSING or not self.python.equal(
                left.at(self.t, token), right.at(self.t, found)
            ):
                return False
        ordered = left.kind is right.kind is collections.OrderedDict
        return not ordered or list(items) == list(others)


def _compared(left: Value, right: Value) -> tuple[Value, Value]:
    """Return what Python compares in place of two values: bounds of slices, dicts of proxies."""
    if isinstance(left, SliceValue) and isinstance(right, SliceValue):
        return TupleValue(list(left.parts)), TupleValue(list(right.parts))
    one = left.mapping if isinstance(left, MappingProxyValue) else left
    return one, right.mapping if isinstance(right, MappingProxyValue) else right


def _sample(value: Value, name: str) -> Any:
    """Return an object for which an operator is defined as little as for a value.

    MISSING if C code of its class may define it.
    """
    if isinstance(value, SymValue):
        return value.python_type()(1)
    if isinstance(value, ConstValue) and value.is_literal():
        return value.obj
    kind, methods = value.python_type(), methods_of(name)
    base = next((one for one in PLAIN if issubclass(kind, one)), None)
    if base and inherits(kind, base, methods):
        if isinstance(value, ConstValue):
            return value.obj
        if base not in CONTAINERS:
            return MISSING  # what is put into a text depends on it
        return kind() if kind is base else type(kind.__name__, (base,), {})()
    if isinstance(value, ConstValue) or not isinstance(value, ObjectValue):
        return MISSING
    if type_lookup(kind, "__index__") is not MISSING:
        return MISSING  # C code takes it for a number
    for method in methods:
        if not only_objects(value, method) and python_method(kind, method) is None:
            return MISSING
    return type(kind.__name__, (), {})()


def only_objects(owner: Value, method: str) -> bool:
    """Return whether a class has no other method of a name than `object`."""
    found = type_lookup(owner.python_type(), method)
    return found is MISSING or found is type_lookup(object, method)
