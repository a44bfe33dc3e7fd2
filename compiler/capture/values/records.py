"""C++ objects that hold or refer to tensors: storages, weak references, SDPA parameters."""

from __future__ import annotations

import copy
import weakref
from typing import TYPE_CHECKING, Any

import torch

from tc.compiler.capture import breaks
from tc.compiler.capture.values.base import Args, Kwargs, Value
from tc.compiler.capture.values.builtins import builtin
from tc.compiler.capture.values.const import ConstValue
from tc.compiler.capture.values.lookup import full_name
from tc.compiler.capture.values.tensor import METHODS, TensorValue
from tc.compiler.core.memory import takes_data
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

    def __init__(
        self,
        kind: type,
        args: list[Value],
    ) -> None:
        self.kind = kind
        self.args = args

    def python_type(self) -> type:
        return self.kind

    def truth(self, t: Interpreter) -> bool:
        return True

    def attr(
        self,
        t: Interpreter,
        name: str,
    ) -> Value:
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
    def make(
        t: Interpreter,
        args: Args,
        kwargs: Kwargs,
    ) -> Value:
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

    def __init__(
        self,
        obj: Any,
        source: Source,
    ) -> None:
        self.obj = obj
        self.source: Source = source

    def python_type(self) -> type:
        return type(self.obj)

    def attr(
        self,
        t: Interpreter,
        name: str,
    ) -> Value:
        if name in FIELDS[type(self.obj)]:
            return t.values.wrap(getattr(self.obj, name), AttrSource(self.source, name))
        return t.attributes.builtin_method(self, name)


def wrap_record(
    t: Interpreter,
    obj: Any,
    source: Source,
) -> Value:
    """Return the value of an existing record."""
    t.guards.add("TYPE", source, type(obj))
    return SourcedRecord(obj, source)


# -- weak references -------------------------------------------------------------------------
class WeakReference(Value):
    """A ``weakref.ref``; the tracer keeps its referent alive, so that no callback is called.

    Attributes:
        callback: of a reference that traced code made; None: it has none.
    """

    noun = "a weak reference"

    def __init__(
        self,
        target: Value,
        source: Source | None = None,
        callback: Value | None = None,
    ) -> None:
        self.target = target
        self.source = source
        self.callback = callback

    def python_type(self) -> type:
        return weakref.ref

    def truth(self, t: Interpreter) -> bool:
        return True

    def is_dead(self, t: Interpreter) -> bool:
        """Return whether its referent was gone before the frame."""
        return t.python.is_none(self.target)

    def call(self, t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
        return self.target

    def children(self, t: Interpreter) -> list[Value]:
        return [self.target] if self.callback is None else [self.target, self.callback]

    def rebuild(self, r: ResidualInterface) -> None:
        if self.target.source is None:
            self.cannot(
                breaks.UNSUPPORTED_VALUE, "a weak reference to what traced code made"
            )
        r.load_callable(weakref.ref)
        parts = self.children(r.t)
        for part in parts:
            r.push(part)
        r.e.call(len(parts))


@builtin(weakref.ref)
def _ref(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    if len(args) not in (1, 2) or kwargs:
        raise breaks.GraphBreak(breaks.UNSUPPORTED_CALL, "weakref.ref()")
    target, *callback = args
    if not target.python_type().__weakrefoffset__:
        kind = full_name(target.python_type())
        t.python.raise_(TypeError, f"cannot create weak reference to '{kind}' object")
    if callback and not t.python.is_none(callback[0]):
        return WeakReference(target, None, callback[0])
    return t.effects.references.setdefault(id(target), WeakReference(target))


def wrap_weak_reference(t: Interpreter, obj: Any, source: Source) -> Value:
    """Return the value of an existing weak reference and of its referent.

    An object has one reference without a callback, which each call of ``ref`` returns.
    """
    t.guards.add("TYPE", source, type(obj))
    target = t.values.wrap(obj(), CallSource(source, _followed, "{}()"))
    found = WeakReference(target, source)
    if obj.__callback__ is not None or obj() is None:
        return found
    known = t.effects.references.setdefault(id(target), found)
    known.source = source
    return known


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

    def attr(
        self,
        t: Interpreter,
        name: str,
    ) -> Value:
        return t.attributes.builtin_method(self, name)

    def length(self, t: Interpreter) -> Value:
        return self._size(t)

    def method(
        self,
        t: Interpreter,
        name: str,
        args: Args,
        kwargs: Kwargs,
    ) -> Value:
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


def _set(
    t: Interpreter,
    tensor: TensorValue,
    args: Args,
    kwargs: Kwargs,
) -> Value:
    """Give a tensor that traced code made the memory of another: ``tensor.set_(source, …)``."""
    given = _Given(*args, **kwargs)
    if tensor.source is not None or not _takes(tensor, given.source):
        tensor.cannot(breaks.UNSUPPORTED_CALL, "Tensor.set_")
    if len(t.output.scopes) > 1 or t.overrides.modes:
        tensor.cannot(breaks.UNSUPPORTED_CALL, "Tensor.set_")
    node = tensor.node(t)
    users = [user.meta.get("example_value") for user in node.users]
    # autograd would notice that what it saved is another tensor now
    if any(isinstance(one, torch.Tensor) and one.requires_grad for one in users):
        tensor.cannot(breaks.UNSUPPORTED_CALL, "Tensor.set_ of a tensor with gradients")
    memory = _memory(t, tensor, given)
    assert isinstance(memory, TensorValue)
    tensor.take(t, memory)
    return tensor


class _Given:
    """The arguments of ``Tensor.set_``."""

    def __init__(
        self,
        source: Value | None = None,
        storage_offset: Value = ConstValue(0),  # noqa: B008
        size: Value | None = None,
        stride: Value | None = None,
    ) -> None:
        self.source = source
        self.offset = storage_offset
        self.size = size
        self.stride = stride


def _takes(tensor: TensorValue, source: Value | None) -> bool:
    """Return whether a tensor may get the memory of another tensor, or of a storage."""
    other = source.tensor if isinstance(source, StorageValue) else source
    if other is None:
        other = tensor
    if not isinstance(other, TensorValue) or {tensor.kind, other.kind} != {
        torch.Tensor
    }:
        return False
    pair = (tensor.example, other.example)
    return takes_data(*pair) and not any(one.requires_grad for one in pair)


def _memory(
    t: Interpreter,
    tensor: TensorValue,
    given: _Given,
) -> Value:
    """Return a tensor that is in the memory which ``set_`` gives, and has the sizes it gives."""
    source = given.source
    if source is None:
        like = {"dtype": tensor.attr(t, "dtype"), "device": tensor.attr(t, "device")}
        return t.output.call_torch(torch.empty, [ConstValue(0)], like)
    owner = source.tensor if isinstance(source, StorageValue) else source
    plain = owner.attr(t, "data")  # which does not share its count of writes
    if given.size is None and owner is source:
        return plain
    size, stride = given.size, given.stride
    if size is None or stride is None:
        tensor.cannot(breaks.UNSUPPORTED_CALL, "Tensor.set_")
    return t.output.call_torch(
        torch.as_strided, [plain, size, stride, given.offset], {}
    )


METHODS["set_"] = _set


def _storage(
    t: Interpreter,
    tensor: TensorValue,
    args: Args,
    kwargs: Kwargs,
) -> Value:
    """Return the storage of a tensor, whatever a ``set_`` gives the tensor later."""
    return StorageValue(tensor if tensor.source is not None else copy.copy(tensor))


METHODS["untyped_storage"] = _storage
