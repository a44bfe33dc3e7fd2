"""Symbolic numbers of torch: sizes, and what is computed from them, that a graph keeps open."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch.fx.experimental.sym_node import SymNode
from torch.utils._sympy.functions import Identity, ToFloat

Symbolic = torch.SymInt | torch.SymFloat | torch.SymBool
#: their classes, for `isinstance`
SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)

_NAMES = ("sqrt", "sin", "cos", "tan", "sinh", "cosh", "tanh", "asin", "acos", "atan", "log2")
#: functions of `math` -> what does their work on symbolic numbers
MATH: dict[Any, Callable[[Any], Any]] = {
    **{getattr(math, name): getattr(torch, f"_sym_{name}") for name in _NAMES},
    **{function: function for function in (math.floor, math.ceil, math.trunc)},
}


def hint(number: Any) -> Any:
    """Return the current value of a number; None for a symbol whose value depends on data."""
    return number.node.hint if isinstance(number, SYMBOLIC) else number


@contextmanager
def scalars_allowed(env: Any, shapes: bool = False) -> Iterator[None]:
    """Let numbers out of data be symbols of a `ShapeEnv` for the length of a block.

    Args:
        env: nothing changes if it is None.
        shapes: whether sizes of results may be such numbers, too.
    """
    if env is None:
        yield
        return
    before = env.settings
    shapes = shapes or before.allow_dynamic_output_shape_ops
    env.settings = replace(before, allow_scalar_outputs=True, allow_dynamic_output_shape_ops=shapes)
    try:
        yield
    finally:
        env.settings = before


def as_computed(number: Any) -> Any:
    """Return the result of an operation on floats so that later operations leave it whole.

    sympy computes with real numbers: it would make ``n * 1.15 * 100`` one product, and ``(a + 0.1)
    - (a + 0.3)`` a constant, which floats differ from. Torch's `Identity` keeps it from that; what
    makes a float a whole number or a truth value looks through the outermost.
    """
    if not isinstance(number, SYMBOLIC):
        return number
    expr = number.node.expr
    if isinstance(number, torch.SymFloat):
        if not expr.args or isinstance(expr, Identity | ToFloat):
            return number
        seen = Identity(expr)
    else:
        inner = [arg.args[0] if isinstance(arg, Identity) else arg for arg in expr.args]
        if inner == list(expr.args):
            return number
        seen = expr.func(*inner)
    node = number.node
    return type(number)(
        SymNode(seen, node.shape_env, node.pytype, node.hint, node.constant, node.fx_node)
    )
