"""Nodes of ATen graphs as text, one line a node, as people and traces read them."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import fx

from tc.compiler.core.origins import line_of

SHORT_DTYPES = {
    torch.float32: "f32",
    torch.float64: "f64",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.int16: "i16",
    torch.int8: "i8",
    torch.uint8: "u8",
    torch.bool: "b8",
    torch.complex64: "c64",
    torch.complex128: "c128",
}


def describe(value: Any) -> str:
    """Return a value's type in few letters: ``f32[8, s0]``, ``int``."""
    if isinstance(value, torch.Tensor):
        try:
            return _tensor(value.shape, value.dtype)
        except TypeError:  # a symbol has no hash
            return _tensor.__wrapped__(value.shape, value.dtype)
    if isinstance(value, (list, tuple)):
        return f"({', '.join(map(describe, value))})"
    return type(value).__name__


@functools.lru_cache(1024)
def _tensor(shape: torch.Size, dtype: torch.dtype) -> str:
    return f"{SHORT_DTYPES.get(dtype) or str(dtype)[6:]}[{', '.join(map(str, shape))}]"


@functools.lru_cache(1024)
def short(target: Any) -> str:
    """Return an op's name as people write it."""
    if isinstance(target, torch._ops.OpOverload):
        return str(target).removesuffix(".default")
    return str(getattr(target, "__name__", target))


def fx_text(value: Any) -> str:
    """Return an argument of a node as text."""
    if isinstance(value, fx.Node):
        return value.name
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(fx_text, value))}]"
    return str(value)


def node_line(node: fx.Node, args: Any = None, kwargs: Any = None) -> str:
    """Return the line of a node.

    Args:
        args: in place of the node's own, which may have changed; with ``kwargs``.
    """
    args = node.args if args is None else args
    if node.op == "output":
        return f"  return {fx_text(args[0])}"
    typed = f"  {node.name}: {describe(node.meta.get('val'))}"
    if node.op == "placeholder":
        return typed
    if node.op == "get_attr":
        return f"{typed} = {short(node.target)}{_origin_comment(node)}"
    listed = ", ".join([a.name if type(a) is fx.Node else fx_text(a) for a in args])
    if named := node.kwargs if kwargs is None else kwargs:
        texts = [f"{name}={fx_text(value)}" for name, value in named.items()]
        listed = ", ".join([listed, *texts] if args else texts)
    return f"{typed} = {short(node.target)}({listed}){_origin_comment(node)}"


def _origin_comment(node: fx.Node) -> str:
    """Return ``  # model.py:7`` where the user's line is known."""
    line = line_of(node)
    return f"  # {line}" if line else ""
