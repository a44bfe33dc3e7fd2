"""Wrapper tensor subclasses as inputs: their fakes and their guards."""

from __future__ import annotations

import copy
import inspect
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from tc.compiler.capture.guards.guard_list import TensorSpec
from tc.compiler.capture.guards.rows import Predicate
from tc.compiler.capture.shapes import free_size, free_stride
from tc.compiler.capture.values.base import OpaqueValue, Value
from tc.compiler.capture.values.subclasses import tensor_value
from tc.compiler.core.sources import AttrSource, Source
from tc.compiler.errors import StageError

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter


def accepts(obj: Any) -> bool:
    """Return whether an object is a tensor with ``__tensor_flatten__``."""
    return isinstance(obj, torch.Tensor) and is_traceable_wrapper_subclass(obj)


def wrap_wrapper(t: Interpreter, obj: torch.Tensor, source: Source) -> Value:
    """Return the value of a wrapper; guard its class, its metadata and its inner tensors."""
    dims = t.sizes.dimensions(source, obj)
    try:
        with t.state.as_at_entry():
            fake = t.shapes.fake_wrapper(obj, source, dims, t.sizes.dimensions)
            spec = TensorSpec.of(obj, free_size(fake), free_stride(fake))
    except (RuntimeError, AssertionError, NotImplementedError, TypeError, ValueError):
        return OpaqueValue(obj, source)  # its own code does not work on fake tensors
    names, metadata = obj.__tensor_flatten__()  # type: ignore[attr-defined]
    t.guards.add("TENSOR", source, spec)
    t.guards.add("CUSTOM", source, _metadata_guard(type(obj), list(names), metadata))
    value = tensor_value(None, fake, source, obj)
    t.values.tensors.append(value)
    for name in names:
        inner = t.values.wrap(getattr(obj, name), AttrSource(source, name))
        t.output.derived.hold([(inner, getattr(fake, name))])
    return value


def _metadata_guard(cls: type, names: list[str], metadata: Any) -> Predicate:
    """Return the check that a wrapper still wraps the same tensors, with the same metadata."""
    compare = _comparison(cls)
    kept = copy.copy(metadata) if isinstance(metadata, dict | list) else metadata

    def check(value: Any) -> bool:
        now, found = value.__tensor_flatten__()
        return list(now) == names and bool(compare(kept, found))

    expected = f"({names!r}, {kept!r})".replace("{", "{{").replace("}", "}}")
    return Predicate(f"{{}}.__tensor_flatten__() == {expected}", check)


def _comparison(cls: type) -> Any:
    """Return the class's comparison of two metadata, or equality.

    Raises:
        StageError: its ``__metadata_guard__`` is no classmethod of two metadata.
    """
    own = getattr(cls, "__metadata_guard__", None)
    if own is None:
        return lambda old, new: old == new
    if not inspect.ismethod(own) or len(inspect.signature(own).parameters) != 2:
        raise StageError(
            "capture",
            f"{cls.__qualname__}.__metadata_guard__ has to be a classmethod with two parameters:"
            " the metadata of the tensor at compile time, and that of the tensor in a later call",
        )
    return own
