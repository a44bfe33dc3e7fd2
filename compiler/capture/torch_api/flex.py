"""Traces flex attention as the equivalent dense attention, so that all of it is fused.

Its functions of scores and positions take single elements; `torch.vmap` applies them to all.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch._higher_order_ops.flex_attention import flex_attention as flex_attention_op

from tc.compiler.capture.traceable import dense_attention
from tc.compiler.capture.values.base import Args, Kwargs, Value
from tc.compiler.capture.values.const import ConstValue
from tc.compiler.capture.values.containers import ListValue, TupleValue
from tc.compiler.capture.values.dicts import DictValue
from tc.compiler.capture.values.handlers import BY_NAME, handles
from tc.compiler.capture.values.tensor import TensorValue

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter

_FLEX = "torch._dynamo._trace_wrapped_higher_order_op"


@contextmanager
def _reading_at_positions(t: Interpreter) -> Iterator[None]:
    before, t.item_of_tensor = t.item_of_tensor, _at_positions
    try:
        yield
    finally:
        t.item_of_tensor = before


@handles(flex_attention_op)
def _flex_attention(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    with _reading_at_positions(t):
        return t.inline_object(dense_attention, args, kwargs)


def _call_under_its_mode(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    """Return an operation under the mode by which torch reads tensors at positions for masks."""
    _mode, function, _types, given, named = args
    assert isinstance(named, DictValue)
    names = t.python.concrete_list(named.keys(t))
    with _reading_at_positions(t):
        return function.call(
            t, list(given.unpack(t)), dict(zip(names, named.values(t), strict=True))
        )


BY_NAME.add(f"{_FLEX}.TransformGetItemToIndex.__torch_function__", _call_under_its_mode)


def _sizes_may_stay_symbols(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    """Ignore ``mark_static``, which only torch's own kernels of flex attention need."""
    return ConstValue(None)


BY_NAME.add("torch._dynamo.decorators.mark_static", _sizes_may_stay_symbols)


def _at_positions(t: Interpreter, tensor: Value, key: Value) -> Value | None:
    """Read a tensor at positions that are tensors of one element; None for any other index.

    Plain indexing would convert these to Python numbers, which `torch.vmap` does not allow.
    """
    positions = key.unpack(t) if isinstance(key, TupleValue) else [key]
    for position in positions:
        held = position.example if isinstance(position, TensorValue) else None
        if held is None or held.dim() or held.dtype not in (torch.int32, torch.int64):
            return None
    index = torch.ops.aten.index.Tensor
    return t.output.call_torch(index, [tensor, ListValue([*positions])], {})
