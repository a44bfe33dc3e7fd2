"""The sympy boundary: converts fake tensors and sympy expressions to buffers, sizes and indices.

No other module of the loop compiler uses sympy, and each expression is converted only once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from functools import reduce
from operator import add, mul
from typing import Any

import torch
from torch import fx
from torch.fx.experimental.symbolic_shapes import statically_known_true

from tc.compiler.errors import StageError
from tc.compiler.loops import index as ix
from tc.compiler.loops.index import Index
from tc.compiler.loops.ir import Buffer


class UnsupportedSizeExpr(StageError):
    """A size is computed by a function that indices do not support (a float factor, say)."""


#: functions from a float to a whole number; sizes are never negative
ROUNDINGS = ("FloorToInt", "TruncToInt", "CeilToInt")
_FUNCTIONS: dict[str, Callable[..., Index]] = {
    "FloorDiv": ix.floordiv,
    "CleanDiv": ix.floordiv,
    "Mod": ix.mod,
    "PythonMod": ix.mod,
    "Max": lambda *args: reduce(ix.maximum, args),
    "Min": lambda *args: reduce(ix.minimum, args),
    "Identity": lambda x: x,
}


@dataclass(frozen=True)
class SizeReader:
    """Reads the sizes of one graph as indices.

    Attributes:
        computed: unsupported expressions -> the number that the wrapper computes for each.
    """

    computed: dict[Any, Index] = field(default_factory=dict)

    def buffer(self, name: str, fake: torch.Tensor) -> Buffer:
        """Return a buffer of a fake tensor's type and layout."""
        return Buffer(name, fake.dtype, self.sizes(fake), self.strides(fake))

    def sizes(self, fake: torch.Tensor) -> tuple[Index, ...]:
        """Return sizes of a fake tensor: `ix.ONE` for each that is 1 wherever the guards hold.

        Broadcasting reads an operand whose size is 1 at one place. Which sizes are, the expression
        of a size may not show: a guard that was added later can say so.
        """
        return tuple(ix.ONE if _is_one(extent) else self.number(extent) for extent in fake.shape)

    def strides(self, fake: torch.Tensor) -> tuple[Index, ...]:
        """Return strides of a fake tensor."""
        return tuple(self.number(step) for step in fake.stride())

    def number(self, value: int | torch.SymInt) -> Index:
        """Convert an int or SymInt."""
        if isinstance(value, int):
            return ix.const(value)
        return self.expression(value.node.expr)

    def expression(self, expr: Any) -> Index:
        """Convert a sympy integer expression.

        Raises:
            UnsupportedSizeExpr: it has a function or number that indices do not support.
        """
        if expr.is_Integer:
            return ix.const(int(expr))
        if expr.is_Symbol:
            return ix.size(expr.name) if expr.is_nonnegative else ix.number(expr.name)
        if (computed := self.computed.get(expr)) is not None:
            return computed
        name = type(expr).__name__
        if name in ROUNDINGS and (scaled := self._scaled(expr.args[0])) is not None:
            size, factor = scaled
            above = factor.denominator - 1 if name == "CeilToInt" else 0
            total = size * ix.const(factor.numerator) + ix.const(above)
            return ix.floordiv(total, ix.const(factor.denominator))
        if name == "Pow" and expr.args[1].is_Integer and int(expr.args[1]) > 0:
            return ix.product([self.expression(expr.args[0])] * int(expr.args[1]))
        args = [self.expression(arg) for arg in expr.args]
        if expr.is_Add:
            return reduce(add, args)
        if expr.is_Mul:
            return reduce(mul, args)
        if name == "ModularIndexing":
            return ix.mod(ix.floordiv(args[0], args[1]), args[2])
        if name in _FUNCTIONS:
            return _FUNCTIONS[name](*args)
        raise UnsupportedSizeExpr("loops.lower", f"a size is computed with {expr} ({name})")

    def _scaled(self, expr: Any) -> tuple[Index, Fraction] | None:
        """Return size and factor of a product that floats compute without any rounding.

        The factor has to be a fraction of so few bits that products with sizes below 2**43 are
        exact.
        """
        if not expr.is_Mul or len(expr.args) != 2 or not expr.args[0].is_Float:
            return None
        factor, size = Fraction(float(expr.args[0])), expr.args[1]
        if type(size).__name__ != "ToFloat" or not size.args[0].is_nonnegative or factor <= 0:
            return None
        if max(factor.numerator, factor.denominator) > 2**10:
            return None
        return self.expression(size.args[0]), factor


def _is_one(extent: int | torch.SymInt) -> bool:
    if isinstance(extent, int) or not extent.node.has_hint() or extent.node.hint != 1:
        return False
    return bool(statically_known_true(extent == 1))


def size_hints(graph: fx.GraphModule) -> dict[str, int]:
    """Return symbolic size -> its value at capture time, where known."""
    found: dict[str, int] = {}
    for node in graph.graph.find_nodes(op="placeholder"):
        value = node.meta.get("val")
        sizes = (*value.shape, *value.stride()) if isinstance(value, torch.Tensor) else (value,)
        for size in sizes:
            if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol and size.node.has_hint():
                found[size.node.expr.name] = int(size.node.hint)
    return found
