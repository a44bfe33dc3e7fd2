"""C++ objects that hold or refer to tensors: storages, weak references, SDPA parameters."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch

from tc.compiler.capture import breaks
from tc.compiler.capture.values.base import Args, Kwargs, Value
from tc.compiler.capture.values.builtins import builtin
from tc.compiler.capture.values.const import ConstValue
from tc.compiler.capture.values.tensor import METHODS, TensorValue
from tc.compiler.core.sources import AttrSource, CallSource, Source

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter, ResidualInterface

#: C++ classes -> the attributes that keep their constructor's arguments
FIELDS: dict[type, tuple[str, ...]] = {
    torch._C._SDPAParams: (
        "query",
        "key",
        "value",
        "attn_mask",
        "dropout",
        "is_causal",
        "enable_gqa",
    ),
}
#: mark on graphs that change the size of a storage: eager torch runs them
RESIZES = "tc_resizes"


class RecordValue(Value):
    """An object of one of the classes of `FIELDS`, made by traced code."""

    noun = "a record"

    def __init__(self, kind: type, args: list[Value]) -> None:
        self.kind = kind
        self.args = args

    def python_type(self) -> type:
        return self.kind

    def truth(self, t: Interpreter) -> bool:
        return True

    def attr(self, t: Interpreter, name: str) -> Value:
        if name in FIELDS[self.kind]:
            return self.args[FIELDS[self.kind].index(name)]
        return t.attributes.builtin_method(self, name)

    def children(self, t: Interpreter) -> list[Value]:
        return self.args

    def rebuild(self, r: ResidualInterface) -> None:
        r.load_callable(self.kind)
        r.push_slots(list(self.args))
        r.e.call(len(self.args))


def _record(kind: type) -> Any:
    def make(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
        if kwargs or len(args) != len(FIELDS[kind]):
            raise breaks.GraphBreak(
                breaks.UNSUPPORTED_CALL, f"class {kind.__qualname__}"
            )
        return RecordValue(kind, list(args))

    return make


for _kind in FIELDS:
    builtin(_kind)(_record(_kind))


class SourcedRecord(Value):
    """An existing object of one of the classes of `FIELDS`."""

    noun = "a record"

    def __init__(self, obj: Any, source: Source) -> None:
        self.obj = obj
        self.source: Source = source

    def python_type(self) -> type:
        return type(self.obj)

    def attr(self, t: Interpreter, name: str) -> Value:
        if name in FIELDS[type(self.obj)]:
            return t.values.wrap(getattr(self.obj, name), AttrSource(self.source, name))
        return t.attributes.builtin_method(self, name)


def wrap_record(t: Interpreter, obj: Any, source: Source) -> Value:
    """Return the value of an existing record."""
    t.guards.add("TYPE", source, type(obj))
    return SourcedRecord(obj, source)


# -- weak references -------------------------------------------------------------------------
class WeakReference(Value):
    """A ``weakref.ref`` without a callback; the tracer keeps its referent alive."""

    noun = "a weak reference"

    def __init__(self, target: Value, source: Source | None = None) -> None:
        self.target = target
        self.source = source

    def python_type(self) -> type:
        return weakref.ref

    def truth(self, t: Interpreter) -> bool:
        return True

    def call(self, t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
        return self.target

    def children(self, t: Interpreter) -> list[Value]:
        return [self.target]

    def rebuild(self, r: ResidualInterface) -> None:
        if self.target.source is None:
            self.cannot(
                breaks.UNSUPPORTED_VALUE, "a weak reference to what traced code made"
            )
        r.load_callable(weakref.ref)
        r.push(self.target)
        r.e.call(1)


@builtin(weakref.ref)
def _ref(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    if len(args) != 1 or kwargs:
        raise breaks.GraphBreak(
            breaks.UNSUPPORTED_CALL, "weakref.ref() with a callback"
        )
    return WeakReference(args[0])


def wrap_weak_reference(t: Interpreter, obj: Any, source: Source) -> Value:
    """Return the value of an existing weak reference and of its referent."""
    t.guards.add("TYPE", source, type(obj))
    return WeakReference(
        t.values.wrap(obj(), CallSource(source, _followed, "{}()")), source
    )


def _followed(reference: Any) -> Any:
    return reference()


# -- storages --------------------------------------------------------------------------------
class StorageValue(Value):
    """``tensor.untyped_storage()``."""

    noun = "a storage"

    def __init__(self, tensor: TensorValue) -> None:
        self.tensor = tensor

    def python_type(self) -> type:
        return torch.UntypedStorage

    def attr(self, t: Interpreter, name: str) -> Value:
        return t.attributes.builtin_method(self, name)

    def length(self, t: Interpreter) -> Value:
        return self._size(t)

    def method(self, t: Interpreter, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name in ("size", "nbytes", "__len__") and not args:
            return self._size(t)
        if name == "resize_" and len(args) == 1:
            t.output.marks.add(RESIZES)
            t.output.call_torch(resize_storage, [self.tensor, *args], {})
            return self
        self.cannot(breaks.UNSUPPORTED_CALL, f"UntypedStorage.{name}")

    def _size(self, t: Interpreter) -> Value:
        tensor = self.tensor
        if tensor.source is None or tensor.obj is None or RESIZES in t.output.marks:
            self.cannot(breaks.UNSUPPORTED_CALL, "UntypedStorage.size")
        where = CallSource(tensor.source, storage_size, "{}.untyped_storage().nbytes()")
        t.guards.add("EQUALS", where, storage_size(tensor.obj))
        return ConstValue(storage_size(tensor.obj))

    def children(self, t: Interpreter) -> list[Value]:
        return [self.tensor]

    def rebuild(self, r: ResidualInterface) -> None:
        r.call_method(self.tensor, "untyped_storage", keep=True)


def storage_size(tensor: torch.Tensor) -> int:
    """Return the number of bytes of a tensor's storage."""
    return tensor.untyped_storage().nbytes()


def resize_storage(tensor: torch.Tensor, size: int) -> None:
    """Change the size of a tensor's storage; a node of the graph calls it."""
    if not isinstance(tensor, torch._subclasses.FakeTensor):
        tensor.untyped_storage().resize_(size)


METHODS["untyped_storage"] = lambda t, tensor, args, kwargs: StorageValue(tensor)
