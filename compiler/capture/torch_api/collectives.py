"""Process groups and collectives of `torch.distributed` in traced code.

A process group is compared by identity, so that its rank, its size and its names, which never
change, are constants of the graph. A collective that writes into tensors of the program becomes its
functional form, an operation of ``c10d_functional``, and a ``copy_`` of the result: those that
PyTorch has in functional form. All others run in Python, as under torch.compile.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from tc.compiler.capture import breaks, traceable
from tc.compiler.capture.values.base import Args, KnownObject, Kwargs, Value
from tc.compiler.capture.values.const import ConstValue
from tc.compiler.capture.values.handlers import Handler, handles
from tc.compiler.capture.values.tensor import TensorValue
from tc.compiler.core.sources import Source

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter

#: what of a group never changes: attributes, and methods without arguments
ATTRIBUTES = frozenset(("group_name", "group_desc", "bound_device_id"))
METHODS = frozenset(("rank", "size", "name", "_get_backend_name"))


def is_group(obj: Any) -> bool:
    """Return whether an object is a process group."""
    return dist.is_available() and isinstance(obj, dist.ProcessGroup)


def wrap_group(t: Interpreter, obj: Any, source: Source) -> Value:
    """Return the value of a process group."""
    # PyTorch's own variables change when a job begins or ends
    t.guards.identity(source, obj)
    return GroupValue(obj, source)


class GroupValue(KnownObject):
    """A process group."""

    noun = "a process group"

    def describe(self) -> str:
        return f"the process group {self.obj.group_name!r}"

    def truth(self, t: Interpreter) -> bool:
        return True

    def attr(self, t: Interpreter, name: str) -> Value:
        if name in ATTRIBUTES:
            return t.values.known(getattr(self.obj, name))
        if name in METHODS:
            return t.attributes.builtin_method(self, name)
        return super().attr(t, name)

    def method(self, t: Interpreter, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name not in METHODS or args or kwargs:
            return super().method(t, name, args, kwargs)
        return t.values.known(getattr(self.obj, name)())


def _group(t: Interpreter, given: Value, name: str) -> GroupValue:
    """Return the group that a call is given, or that of all ranks."""
    if not isinstance(given, GroupValue) and t.python.concrete(given) is None:
        given = t.inline_object(dist.distributed_c10d._get_default_group, [], {})
    if not isinstance(given, GroupValue):  # this rank is not in the group
        raise breaks.GraphBreak(breaks.UNSUPPORTED_CALL, f"dist.{name}")
    return given


def _backend(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    given = args[0] if args else kwargs.get("group", ConstValue(None))
    return t.values.known(dist.get_backend(_group(t, given, "get_backend").obj))


#: operators of reductions -> their names in functional form; others have none
REDUCTIONS = ("sum", "avg", "product", "min", "max", "band", "bor", "bxor")


def _reduction(t: Interpreter, op: Value) -> str:
    found = t.python.concrete(op)
    name = str(getattr(found, "name", "")).lower()
    if name not in REDUCTIONS:
        raise breaks.GraphBreak(breaks.UNSUPPORTED_CALL, f"a collective with {found}")
    return name


def _in_place(function: Any, traced: Callable[..., None], written: str) -> Handler:
    """Return the handler of a collective that writes its result into tensors it is given.

    Args:
        traced: the same by functional operations; gets the tensors by name, what of ``op`` and the
            split sizes is given, and the name and size of the group.
        written: the argument that is written to.
    """
    signature = inspect.signature(function)

    def handler(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
        try:
            given = dict(signature.bind(*args, **kwargs).arguments)
        except TypeError as error:
            return t.python.raise_(TypeError, str(error))
        _refuse(t, function, given, written)
        group = given.pop("group", ConstValue(None))
        group = _group(t, group, function.__name__)
        if "op" in signature.parameters:
            op = given.get("op") or t.values.known(signature.parameters["op"].default)
            given["op"] = ConstValue(_reduction(t, op))
        given["name"] = group.attr(t, "group_name")
        given["ranks"] = group.method(t, "size", [], {})
        t.inline_object(traced, [], given)
        return ConstValue(None)

    return handler


def _refuse(
    t: Interpreter, function: Any, given: dict[str, Value], written: str
) -> None:
    """Break the graph where the functional form would not do what the collective does."""
    if (later := given.pop("async_op", None)) is not None and later.truth(t):
        text = f"dist.{function.__name__}(async_op=True)"
        raise breaks.GraphBreak(breaks.UNSUPPORTED_CALL, text)
    target = given[written]
    for one in [target] if isinstance(target, TensorValue) else target.unpack(t):
        if (
            torch.is_grad_enabled()
            and isinstance(one, TensorValue)
            and one.example.requires_grad
        ):
            # Autograd does not see what a collective writes; it would see the copy.
            text = f"dist.{function.__name__} of a tensor that requires grad"
            raise breaks.GraphBreak(breaks.UNSUPPORTED_CALL, text)


#: name in `torch.distributed` -> its functional form, and the argument that is written to
IN_PLACE: dict[str, tuple[Callable[..., None], str]] = {
    "all_reduce": (traceable.all_reduce, "tensor"),
    "all_gather": (traceable.all_gather, "tensor_list"),
    "all_gather_into_tensor": (traceable.all_gather_into, "output_tensor"),
    "all_gather_single": (traceable.all_gather_into, "output_tensor"),
    "_all_gather_base": (traceable.all_gather_into, "output_tensor"),
    "reduce_scatter_tensor": (traceable.reduce_scatter_into, "output"),
    "reduce_scatter_single": (traceable.reduce_scatter_into, "output"),
    "_reduce_scatter_base": (traceable.reduce_scatter_into, "output"),
    "all_to_all_single": (traceable.all_to_all_into, "output"),
}
if dist.is_available():
    handles(dist.get_backend)(_backend)
    for _name, (_traced, _written) in IN_PLACE.items():
        # names differ among versions
        _function = getattr(dist.distributed_c10d, _name, None)
        if _function is not None:
            handles(_function)(_in_place(_function, _traced, _written))
