"""Python's truth, identity, conversions and iteration over values."""

from __future__ import annotations

import enum
import operator
import reprlib
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, NoReturn

from tc.compiler.capture import breaks
from tc.compiler.capture.parts.folding import name_of, without_user_code
from tc.compiler.capture.parts.operators import Operators, only_objects
from tc.compiler.capture.values.array_folds import text_of
from tc.compiler.capture.values.arrays import ArrayValue
from tc.compiler.capture.values.base import (
    Exhausted,
    NotConstant,
    OpaqueValue,
    Raised,
    Value,
)
from tc.compiler.capture.values.const import ConstValue, is_constant_object
from tc.compiler.capture.values.containers import (
    ListValue,
    SequenceValue,
    TupleValue,
)
from tc.compiler.capture.values.dicts import DictValue
from tc.compiler.capture.values.exceptions import ExceptionValue
from tc.compiler.capture.values.functions import MethodValue
from tc.compiler.capture.values.iterators import ConstIterator, IndexIterator
from tc.compiler.capture.values.keys import (
    OWN_LOOKUP,
    HashedKey,
    IdentityKey,
    MethodKey,
    ReferenceKey,
)
from tc.compiler.capture.values.known_arrays import KnownScalar
from tc.compiler.capture.values.library import may_change
from tc.compiler.capture.values.lookup import (
    ITERABLE,
    MISSING,
    full_name,
    has_any,
    is_frozen_dataclass,
    type_lookup,
)
from tc.compiler.capture.values.numbers import known_number
from tc.compiler.capture.values.objects import ClassValue, ObjectValue
from tc.compiler.capture.values.proxies import MappingProxyValue
from tc.compiler.capture.values.records import WeakReference
from tc.compiler.capture.values.sets import SetValue
from tc.compiler.capture.values.slices import SliceValue
from tc.compiler.capture.values.slot_results import slot_result
from tc.compiler.capture.values.tensor import SymValue, TensorValue, decided
from tc.compiler.capture.values.texts import TextValue, text_of_items, written

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter


@dataclass
class _Sample:
    @reprlib.recursive_repr()
    def __str__(self) -> str:
        return ""


#: the wrappers that end recursion in text of objects: that of dataclasses, and the public one
_ENDS_RECURSION = frozenset([_Sample.__repr__.__code__, _Sample.__str__.__code__])


class PythonSemantics:
    """Does with values what Python does with objects."""

    def __init__(self, t: Interpreter) -> None:
        self.t = t
        self.operators = Operators(t, self)
        self._being_written: list[Value] = []

    # -- constants -----------------------------------------------------------------------------
    def fold(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Run a pure function on Python objects; its exceptions are raised into the traced code.

        Raises:
            GraphBreak: Python would run code of the program, or read what the frame has changed.
        """
        classes = [one for one in args if isinstance(one, type)]
        for cls in classes:
            if self.t.effects.are_stored(cls.__mro__):
                name = name_of(function)
                detail = f"{name} of the changed class {cls.__qualname__}"
                raise breaks.GraphBreak(breaks.UNSUPPORTED_CALL, detail)
        return self.run_now(without_user_code, function, args, kwargs)

    def run_now(
        self, function: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Any:
        """Run a function once per capture; its exceptions are raised into the traced code."""
        try:
            return function(*args, **kwargs)
        except (breaks.GraphBreak, breaks.SkipFrame, Raised, NotConstant):
            raise
        except Exception as error:
            raise Raised(
                ExceptionValue(
                    type(error), [self.t.values.known(a) for a in error.args]
                )
            ) from None

    def folded(
        self, function: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Value:
        """Return the result of `fold` as a value.

        An object with state is another one in each call; an iterator is made of its items again.

        Raises:
            GraphBreak: the call makes an object of a kind that only Python can make again.
        """
        found = self.fold(function, *args, **kwargs)
        if may_change(found) and self.fold(function, *args, **kwargs) is not found:
            if isinstance(found, Iterator) and type(found) is not types.GeneratorType:
                return ConstIterator(list(found))
            detail = f"{name_of(function)}(), which makes a {type(found).__name__},"
            raise breaks.GraphBreak(breaks.UNSUPPORTED_CALL, detail)
        return self.t.values.known(found)

    def raise_(self, cls: type[BaseException], *args: Any) -> NoReturn:
        """Raise into the traced code."""
        values = [a if isinstance(a, Value) else self.t.values.known(a) for a in args]
        raise Raised(ExceptionValue(cls, values))

    def concrete(self, value: Value) -> Any:
        """Return the Python object of a value, giving up the generality of symbolic numbers."""
        if isinstance(value, SymValue):
            return value.specialise(self.t).obj
        if isinstance(value, KnownScalar):
            return value.fixed(self.t)
        if isinstance(value, TupleValue | ListValue):
            return value.make(self.concrete_list(value.values(self.t)))
        if isinstance(value, SliceValue):
            return slice(*self.concrete_list(value.parts))
        if isinstance(value, TensorValue):
            number = known_number(self.t, value)
            if number is None:
                raise breaks.GraphBreak(breaks.TENSOR_ITEM, "Tensor.__index__()")
            return number.obj
        if isinstance(value, SetValue):
            self.concrete_list(value.values(self.t))
            return value.plain()
        try:
            found = value.constant()
            # which an index or a size asks
            if value.has_own("__index__"):
                raise NotConstant(value.describe())
            # it may name an attribute, as in ``getattr(owner, name)``
            if type(found) is str:
                self.t.guards.definitions.names.add(found)
            return found
        except NotConstant:
            what = f"{value.describe()}, where a constant is needed,"
            raise breaks.GraphBreak(breaks.UNSUPPORTED_OP, what) from None

    def concrete_list(self, values: Iterable[Value]) -> list[Any]:
        """Return the Python objects of several values; see `concrete`."""
        return [self.concrete(value) for value in values]

    def concrete_dict(self, values: Mapping[str, Value]) -> dict[str, Any]:
        """Return the Python objects of keyword arguments; see `concrete`."""
        return {name: self.concrete(value) for name, value in values.items()}

    def key(self, value: Value) -> Any:
        """Return the token of a dictionary key: equal keys have equal tokens."""
        if isinstance(value, SymValue):
            return value.specialise(self.t).obj
        if isinstance(value, SliceValue):
            value = ConstValue(self.concrete(value))
        own_hash = value.has_own("__hash__")
        if isinstance(value, ConstValue):
            own_hash |= value.has_own("__eq__")
        if isinstance(value, TupleValue) and not own_hash:
            return tuple(self.key(item) for item in value.values(self.t))
        if isinstance(value, SetValue) and value.kind is frozenset:
            with OWN_LOOKUP:
                return frozenset(value.items)
        kind = self._class_of_key(value)
        if type_lookup(kind, "__hash__") is None:
            self.raise_(TypeError, f"unhashable type: '{full_name(kind)}'")
        if isinstance(value, MappingProxyValue):
            return self.key(value.mapping)
        if isinstance(value, ArrayValue):
            return value.key(self.t)
        if isinstance(value, WeakReference) and not value.is_dead(self.t):
            return ReferenceKey(self.key(value.target))
        if isinstance(value, MethodValue):
            return MethodKey(self._identity_key(value.owner), self.key(value.function))
        if (
            own_hash
            and isinstance(value, ObjectValue | ConstValue)
            and self._is_fixed(value)
        ):
            hashed = self.hashed(value).constant()
            return HashedKey(value, hashed, self._equals_key)
        if own_hash or (
            isinstance(value, OpaqueValue) and not only_objects(value, "__hash__")
        ):
            raise breaks.GraphBreak(
                breaks.UNSUPPORTED_OP, f"{value.describe()} (own __hash__) as a key"
            )
        try:
            found = value.constant()
            self.fold(hash, found)
            return found
        except NotConstant:
            return self._identity_key(value)

    def _equals_key(self, value: Value, other: object) -> bool:
        """Return whether a value with an ``__eq__`` of its class equals the key of a token."""
        if isinstance(other, HashedKey):
            return self.equal(value, other.value)
        # others are hashed by identity, or tuples of such
        return is_constant_object(other) and self.equal(value, ConstValue(other))

    def hashed(self, value: Value) -> Value:
        """Apply ``hash``."""
        if value.own_special("__hash__") is None:
            kind = full_name(value.python_type())
            self.raise_(TypeError, f"unhashable type: '{kind}'")
        if value.has_own("__hash__"):
            value.is_hashed = True
            found = value.call_special(self.t, "__hash__", [])
            if isinstance(found, SymValue):
                found = found.specialise(self.t)
            return self.slot_result(value.python_type(), "__hash__", found)
        if isinstance(value, WeakReference) and not value.is_dead(self.t):
            return self.hashed(value.target)
        if isinstance(value, TupleValue) and value.python_type() is tuple:
            items = value.values(self.t)
            hashes = [self.hashed(item).constant() for item in items]
            return self.folded(hash, tuple(map(_OfHash, hashes)))
        return self.folded(hash, self.concrete(value))

    def _is_fixed(self, value: Value) -> bool:
        """Return whether a key's hash cannot change: the table keeps the hash of its insertion."""
        if isinstance(value, TupleValue):
            return all(map(self._is_fixed, value.values(self.t)))
        if type(value) is not ObjectValue:
            return isinstance(value, ConstValue | SymValue | TensorValue | ClassValue)
        stored = self.t.effects.attributes_of(value)
        if value.source is None:
            return all(map(self._is_fixed, stored.values()))
        if stored or not is_frozen_dataclass(value.cls):
            return False  # it may have changed since it became a key
        held = [value.attr(self.t, field.name) for field in fields(value.cls)]
        return all(map(self._is_fixed, held))

    @staticmethod
    def _class_of_key(value: Value) -> type:
        try:
            return value.python_type()
        except breaks.GraphBreak:  # a callable of the tracer's own
            return object

    def _identity_key(self, value: Value) -> IdentityKey:
        self.t.guards.identities.hashed(value)
        return IdentityKey(value if value.obj is None else value.obj)

    # -- identity, truth, membership -----------------------------------------------------------
    def is_none(self, value: Value) -> bool:
        """Return whether a value is None."""
        return isinstance(value, ConstValue) and value.python_type() is type(None)

    def identical(self, left: Value, right: Value) -> bool:
        """Return whether two values are the same object."""
        if left is right:
            return True
        left, right = decided(self.t, left), decided(self.t, right)
        if isinstance(left, ConstValue) and isinstance(right, ConstValue):
            if left.obj is right.obj:
                return True
            given = left.source is not None or right.source is not None
            # most strings that a call is given are interned; operations make others
            return (
                given
                and type(left.obj) is type(right.obj) is str
                and left.obj == right.obj
            )
        # as for small numbers
        if isinstance(left, SymValue) or isinstance(right, SymValue):
            ints = left.python_type() is right.python_type() is int
            return ints and self.binary("eq", left, right).truth(self.t)
        both = isinstance(left, TensorValue) and isinstance(right, TensorValue)
        if both and left.example is right.example and left.kind is right.kind:  # type: ignore[attr-defined]
            return True  # one call returned it twice
        a, b = left.obj, right.obj
        if a is not None and a is b:
            return True
        tuples = left.python_type() is right.python_type() is tuple
        if tuples and not (left.truth(self.t) or right.truth(self.t)):
            return True  # Python has one empty tuple
        self.t.guards.identities.differ(left, right)
        return False

    def logical_not(self, value: Value) -> Value:
        """Return ``not value``."""
        return ConstValue(not value.truth(self.t))

    def contains(self, container: Value, item: Value) -> Value:
        """Return ``item in container``."""
        if container.has_own("__contains__"):
            return self._contained(container, item)
        if isinstance(container, ConstValue | ClassValue):
            in_c = type_lookup(container.python_type(), "__contains__") is not MISSING
            if not in_c and container.has_own("__iter__", "__getitem__"):
                return ConstValue(
                    any(self.equal(v, item) for v in container.each(self.t))
                )
            if isinstance(item, TensorValue):
                raise breaks.GraphBreak(breaks.DATA_BRANCH)
            return self.folded(operator.contains, container.obj, self.concrete(item))
        if isinstance(container, TensorValue):
            return self.t.output.call_torch(
                "__contains__", [container, item], {}, method=True
            )
        if isinstance(container, ObjectValue):
            method = container.dunder(self.t, "__contains__")
            if method is not None:
                return ConstValue(method.call(self.t, [item], {}).truth(self.t))
        kind = container.python_type()
        if type_lookup(kind, "__contains__") is MISSING:
            if not has_any(kind, ITERABLE):
                what = f"argument of type '{full_name(kind)}' is not iterable"
                self.raise_(TypeError, what)
            return ConstValue(any(self.equal(v, item) for v in container.each(self.t)))
        return container.method(self.t, "__contains__", [item], {})

    def _contained(self, container: Value, item: Value) -> Value:
        """Return what Python makes of the result of a class's own ``__contains__``."""
        if container.own_special("__contains__") is None:
            kind = full_name(container.python_type())
            self.raise_(TypeError, f"'{kind}' object is not a container")
        found = container.call_special(self.t, "__contains__", [item])
        return ConstValue(found.truth(self.t))

    def equal(self, left: Value, right: Value) -> bool:
        """Return ``left is right or left == right`` as a Python bool, as containers compare."""
        return self.identical(left, right) or self.binary("eq", left, right).truth(
            self.t
        )

    # -- operators -----------------------------------------------------------------------------
    def unary(self, name: str, value: Value) -> Value:
        """Apply ``operator.<name>``."""
        return self.operators.unary(name, value)

    def binary(self, name: str, left: Value, right: Value) -> Value:
        """Apply ``operator.<name>``; see `Operators.binary`."""
        return self.operators.binary(name, left, right)

    def divmod(self, left: Value, right: Value) -> Value:
        """Apply ``divmod``."""
        return self.operators.divmod(left, right)

    def index(self, value: Value) -> Value:
        """Apply ``operator.index``."""
        if isinstance(value, SymValue) and value.python_type() is int:
            return value
        own = value.call_own(self.t, "__index__")
        return own or self.folded(operator.index, self.concrete(value))

    def slot_result(self, kind: type, name: str, result: Value) -> Value:
        """Return what Python makes of the result of a class's special method."""
        return slot_result(self.t, kind, name, result)

    # -- text ----------------------------------------------------------------------------------
    def convert_text(self, function: Callable[[Any], str], value: Value) -> Value:
        """Apply str, repr or ascii."""
        if value.python_type() is str and function is str:
            return value
        own = self._text_method(function, value)
        if own is not None:
            slot = "__str__" if function is str else "__repr__"
            written_text = self._own_text(own, value)
            text = self.slot_result(value.python_type(), slot, written_text)
            return self.folded(_ascii, text.constant()) if function is ascii else text
        if isinstance(value, ExceptionValue):
            for at, arg in enumerate(value.args):
                if isinstance(arg, SymValue):
                    value.args[at] = arg.specialise(self.t)
            return value.converted(function)
        if isinstance(value, TensorValue):
            raise breaks.GraphBreak(
                breaks.TENSOR_ITEM, f"{function.__name__}() of a tensor"
            )
        if isinstance(value, SymValue):
            return written(self.t, function, value)
        found = text_of(self.t, function, value) or self._text_of_items(value)
        if found is None:
            return self.folded(function, self.concrete(value))
        return self.folded(_ascii, found.constant()) if function is ascii else found

    def _text_of_items(self, value: Value) -> Value | None:
        """Return what ``repr`` makes of a container; None if it only has plain constants."""
        if any(value is one for one in self._being_written):
            value.cannot(
                breaks.UNSUPPORTED_VALUE, f"{value.describe()}, which contains itself,"
            )
        self._being_written.append(value)
        try:
            return text_of_items(self.t, value)
        finally:
            self._being_written.pop()

    @staticmethod
    def _text_method(function: Callable[[Any], str], value: Value) -> str | None:
        """Return the name of the class's own method that str, repr or ascii calls, or None."""
        if function is not str:
            return "__repr__" if value.has_own("__repr__") else None
        if value.has_own("__str__"):
            return "__str__"
        # which `object` defines by the other: numbers do not define it, texts and exceptions do
        by_other = type_lookup(value.python_type(), "__str__") is object.__str__
        return "__repr__" if by_other and value.has_own("__repr__") else None

    def _own_text(self, name: str, value: Value) -> Value:
        """Call a ``__str__`` or ``__repr__``.

        A wrapper that ends recursion asks for the id of the thread; what it wraps is called here.
        """
        method = value.own_special(name)
        traced = isinstance(method, types.FunctionType)
        if not traced or method.__code__ not in _ENDS_RECURSION:
            return value.call_special(self.t, name, [])
        names = method.__code__.co_freevars
        held = [cell.cell_contents for cell in method.__closure__ or ()]
        around = dict(zip(names, held, strict=True))
        if any(value is one for one in self._being_written):
            dots = around.get("fillvalue", "...")
            return ConstValue(dots)
        self._being_written.append(value)
        try:
            wrapped = around["user_function"]
            return self.t.inline_object(wrapped, [value])
        finally:
            self._being_written.pop()

    def format(self, value: Value, spec: str) -> Value:
        """Apply ``format(value, spec)``."""
        if isinstance(value, TensorValue):
            raise breaks.GraphBreak(breaks.TENSOR_ITEM, "Tensor.__format__()")
        if value.python_type() is str and not spec:
            return value
        if isinstance(value, SymValue | TextValue):
            return written(self.t, format, value, ConstValue(spec))
        if (own := value.call_own(self.t, "__format__", ConstValue(spec))) is not None:
            return own
        if value.has_own("__str__") and _formats_text(value.python_type()):
            return self.format(self.convert_text(str, value), spec)
        if isinstance(value, ObjectValue | ExceptionValue) and spec:
            # Python's own error
            self.fold(format, type(value.cls.__name__, (), {})(), spec)
        if not spec and isinstance(
            value, ObjectValue | ExceptionValue | SequenceValue | DictValue
        ):
            return self.convert_text(str, value)
        if not spec and (text := text_of(self.t, str, value)) is not None:
            return text
        return self.folded(format, self.concrete(value), spec)

    # -- iteration -----------------------------------------------------------------------------
    def iterate_by_index(self, owner: Value) -> Value:
        """Iterate over an object that only has ``__getitem__``."""
        return IndexIterator(owner)

    def constant_iterator(self, obj: Any) -> Value:
        """Iterate over a known object."""
        self.fold(iter, obj)
        return ConstIterator(obj)

    def advance_by_next(self, call: Callable[[], Value]) -> Value:
        """Call a ``__next__`` written by users; StopIteration ends the iteration."""
        try:
            return call()
        except Raised as raised:
            if issubclass(raised.value.python_type(), StopIteration):
                raise Exhausted(raised.value.attr(self.t, "value")) from None
            raise

    # -- classes -------------------------------------------------------------------------------
    def classes(self, value: Value) -> Any:
        """Return a class, or a tuple of classes, for isinstance and except."""
        if isinstance(value, TupleValue):
            return tuple(self.classes(item) for item in value.values(self.t))
        return self.concrete(value)

    def real_object(self, value: Value) -> Any:
        """Return the object behind a value: a constant, or one that was there before the frame."""
        obj = value.obj if value.source is not None else None
        return self.concrete(value) if obj is None or self.t.effects.any() else obj


def _ascii(text: str) -> str:
    return text.encode("ascii", "backslashreplace").decode("ascii")


def _formats_text(kind: type) -> bool:
    """Return whether a class of members formats what ``str`` makes of them."""
    return type_lookup(kind, "__format__") is vars(enum.Enum)["__format__"]


class _OfHash:
    """Something of a given hash: a tuple's is made of those of its items."""

    def __init__(self, found: int) -> None:
        self._found = found

    def __hash__(self) -> int:
        return self._found
