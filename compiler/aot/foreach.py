"""Decompositions of ops over lists of tensors (``_foreach_*``, used by optimizers): one op each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

aten = torch.ops.aten

NAMES = """abs acos add addcdiv addcmul asin atan ceil clamp_max clamp_min clone copy cos cosh div
    erf erfc exp expm1 floor frac lerp lgamma log log10 log1p log2 max maximum minimum mul neg norm
    pow reciprocal round rsqrt sigmoid sign sin sinh sqrt sub tan tanh trunc zero"""


def foreach_rows() -> dict[Any, Callable[..., Any]]:
    """Return the decomposition of each functional op over lists that this torch has."""
    rows: dict[Any, Callable[..., Any]] = {}
    for name in NAMES.split():
        packet = getattr(aten, f"_foreach_{name}", None)
        for overload in packet.overloads() if packet is not None else ():
            op = getattr(packet, overload)
            returns_lists = op._schema.returns and not overload.endswith("out")
            takes_numbers_as_tensor = name.startswith("addc") and overload == "Tensor"
            if returns_lists and not op._schema.is_mutable and not takes_numbers_as_tensor:
                rows[op] = one_by_one(op, name)
    return rows


def one_by_one(op: torch._ops.OpOverload, name: str) -> Callable[..., Any]:
    """Return a function that applies the single-tensor op to each tensor of a list."""
    arguments = op._schema.arguments
    lists = [str(a.type) in ("List[Tensor]", "List[number]") for a in arguments]
    single = single_op(name, op._overloadname)

    def run(*args: Any, **kwargs: Any) -> Any:
        count = len(next(arg for arg, is_list in zip(args, lists, strict=False) if is_list))
        return [
            single(
                *[arg[i] if is_list else arg for arg, is_list in zip(args, lists, strict=False)],
                **kwargs,
            )
            for i in range(count)
        ]

    return run


def single_op(name: str, overload: str) -> Callable[..., Any]:
    """Return the op over one tensor."""
    if name in ("addcdiv", "addcmul"):
        op = getattr(aten, name)
        return lambda x, a, b, value=1: op(x, a, b, value=value)
    if name in ("maximum", "minimum") and overload != "List":
        clamp: Callable[..., Any] = aten.clamp_min if name == "maximum" else aten.clamp_max
        return clamp
    if name == "norm":
        return lambda x, ord=2, dtype=None: torch.linalg.vector_norm(x, ord, dtype=dtype)
    if name == "zero":
        return torch.zeros_like
    found: Callable[..., Any] = getattr(aten, name)
    return found
