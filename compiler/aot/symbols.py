"""Converts symbolic sizes into graph nodes: expressions over input sizes become arithmetic."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch.utils._sympy.functions import Identity

from tc.compiler.aot.artifact import Fallback
from tc.compiler.core.symbolic import MATH, SYMBOLIC, Symbolic, hint
from tc.compiler.core.table import Table

# Class of a sympy expression -> the function of Python that computes it from its arguments.
OPERATORS: Table[str, Callable[..., Any]] = Table("operators of symbolic expressions")
# Python raises for a divisor of 0, where formulas of PyTorch in C++ continue with an infinity.
DIVISIONS = (operator.truediv, operator.floordiv, operator.mod)


def _fill() -> None:
    rows: dict[str, Callable[..., Any]] = {
        "Add": operator.add,
        "Mul": operator.mul,
        "Pow": operator.pow,
        "PowByNatural": operator.pow,
        "FloatPow": operator.pow,
        "FloorDiv": operator.floordiv,
        "CleanDiv": operator.floordiv,
        "Mod": operator.mod,
        "PythonMod": operator.mod,
        "FloatTrueDiv": operator.truediv,
        "IntTrueDiv": operator.truediv,
        "Max": torch.sym_max,
        "Min": torch.sym_min,
        "ToFloat": torch.sym_float,
        "TruncToInt": math.trunc,
        "FloorToInt": math.floor,
        "CeilToInt": math.ceil,
        "Equality": operator.eq,
        "Unequality": operator.ne,
        "StrictLessThan": operator.lt,
        "LessThan": operator.le,
        "StrictGreaterThan": operator.gt,
        "GreaterThan": operator.ge,
        "Not": torch.sym_not,
        "And": operator.and_,
        "Or": operator.or_,
        "RoundToInt": round,
        **{f"OpaqueUnaryFn_{plain.__name__}": function for plain, function in MATH.items()},
    }
    for name, function in rows.items():
        OPERATORS.add(name, function)


_fill()


class SizeNodes:
    """Makes the nodes that compute symbolic expressions from a graph's inputs, each only once.

    Attributes:
        env: the environment of the symbols; None where there are none.
        nodes: expression -> node.
        homes: symbol -> input and dimension.
        of_data: unbacked symbol -> the node that has it, and the dimension or expression of that
            node's value in which it occurs.
    """

    def __init__(self, graph: fx.Graph, env: Any = None) -> None:
        self.graph = graph
        self.env = env
        self.nodes: dict[Any, fx.Node] = {}
        self.homes: dict[Any, tuple[fx.Node, int]] = {}
        self.of_data: dict[Any, tuple[fx.Node, Any]] = {}

    def add_input(self, node: fx.Node, value: Any) -> None:
        """Record the symbols that an input defines: itself, or one for each dimension."""
        if isinstance(value, SYMBOLIC):
            self.nodes.setdefault(value.node.expr, node)
        elif isinstance(value, torch.Tensor):
            for dim, size in enumerate(value.shape):
                if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol:
                    self.homes.setdefault(size.node.expr, (node, dim))

    def node_for(self, value: Symbolic) -> fx.Node | int | float | bool:
        """Return the node that computes a symbolic number, or the number if it is constant.

        Raises:
            Fallback: it has a symbol that no input defines, or a function without a row above.
        """
        result = self.build(value.node.expr)
        if isinstance(result, fx.Node) and "val" not in result.meta:
            result.meta["val"] = value
        return result

    def build(self, expr: Any) -> fx.Node | int | float | bool:
        """Return the node of an expression of sympy, or the number it is."""
        if expr in self.nodes:
            return self.nodes[expr]
        constant = _constant(expr)
        if constant is not None:
            return constant
        if isinstance(expr, Identity):
            return self.build(expr.args[0])
        if expr.is_Symbol:
            node = self.symbol(expr)
        else:
            function = OPERATORS.get(type(expr).__name__)
            if function is None or not expr.args:
                raise Fallback(f"a size is computed as {expr}, which has no row in aot.symbols")
            node = self._apply(function, expr)
        self.nodes[expr] = node
        return node

    def symbol(self, symbol: Any) -> fx.Node:
        """Return the node that computes a symbol.

        Raises:
            Fallback: neither an input nor an op defines it.
        """
        made = self.data_of(symbol)
        if made is None:
            if symbol not in self.homes:
                raise Fallback(f"the size {symbol} is not the size of any input")
            made = self.homes[symbol]
        node, where = made
        if isinstance(where, int):
            return self.call(torch.ops.aten.sym_size.int, node, where)
        return node if where.is_Symbol else self.call(torch.sym_ite, node, 1, 0)

    def data_of(self, symbol: Any) -> tuple[fx.Node, Any] | None:
        """Return the entry of an unbacked symbol under any of its names."""
        found = (made for raw, made in self.of_data.items() if symbol in self.same(raw))
        return next(found, None)

    def same(self, symbol: Any) -> set[Any]:
        """Return a symbol and its current replacement."""
        return {symbol, self.env.replace(symbol)}

    def _apply(self, function: Callable[..., Any], expr: Any) -> fx.Node:
        args = [self.build(arg) for arg in expr.args]
        # Sums, products and maxima have any number of arguments; Python's operators have two.
        while len(args) > 2:
            args[:2] = [self.call(function, args[0], args[1])]
        return self.call(function, *args)

    def call(self, function: Callable[..., Any], *args: Any) -> fx.Node:
        """Add a call to the graph, with its symbolic value."""
        node = self.graph.call_function(function, args)
        values = [arg.meta["val"] if isinstance(arg, fx.Node) else arg for arg in args]
        divided = function in DIVISIONS and isinstance(values[1], SYMBOLIC)
        if divided and hint(values[1]) is not None:
            bool(values[1] != 0)  # a guard: sizes for which it is 0 have a graph of their own
        node.meta["val"] = function(*values)
        return node


def _constant(expr: Any) -> int | float | bool | None:
    """Return the Python number an expression is, if it is one."""
    if expr.is_Integer:
        return int(expr)
    if getattr(expr, "is_Boolean", False) and not expr.args:
        return bool(expr)
    if expr.is_Rational or expr.is_Float:
        return float(expr)
    return None
