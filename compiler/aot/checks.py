"""Data-dependent numbers in a recording: their nodes, and the runtime checks of them.

A size that depends on a tensor's values has an unbacked symbol, a new one in every trace; torch
stores the assumptions on it (`ShapeEnv.deferred_runtime_asserts`) for the compiled code to check.
In: that environment and the recorded nodes. Out: an ``aten._assert_scalar`` for each assumption, as
soon as all its numbers exist. Its condition is computed from the numbers themselves: fake values
already imply an assumption such as ``u0 == 3``, and would make it a constant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import rebind_unbacked

from tc.compiler.aot.artifact import Fallback
from tc.compiler.aot.symbols import SizeNodes
from tc.compiler.core.origins import OF_CHECK
from tc.compiler.core.symbolic import SYMBOLIC

aten = torch.ops.aten
#: key of a captured node's metadata: the symbols that it makes, and where they are in its value
BINDINGS = "unbacked_bindings"


def name_as_captured(node: fx.Node, result: Any, fake_mode: FakeTensorMode) -> bool:
    """Rename the unbacked symbols that a node made in this run to those of the captured graph.

    Returns:
        Whether the node makes any.

        Raises:
            Fallback: torch cannot match the symbols.
    """
    if not node.meta.get(BINDINGS):
        return False
    try:
        rebind_unbacked(fake_mode.shape_env, node, result)
    except (AssertionError, AttributeError, IndexError, KeyError) as error:
        raise Fallback(f"{node.name} produces other sizes than when it was captured") from error
    return True


class Checks:
    """The unbacked symbols of a recording, and the assumptions on them.

    Args:
        sizes: makes nodes of the expressions that the program itself uses; gets each symbol.
    """

    def __init__(self, graph: fx.Graph, sizes: SizeNodes) -> None:
        self.graph = graph
        self.sizes = sizes
        self.env = sizes.env
        self._raw = _Raw(sizes)
        self._done: set[Any] = set()

    def made(self, values: Iterable[Any], node_of: Callable[[Any], Any]) -> None:
        """Register new symbols in the results of an op."""
        if self.env is None or not self.env.pending_fresh_unbacked_symbols:
            return
        fresh = set(self.env.pending_fresh_unbacked_symbols)
        self.env.pending_fresh_unbacked_symbols.clear()
        of_data = self.sizes.of_data
        for value in values:
            if isinstance(value, SYMBOLIC):
                expr = value.node._expr
                of_data.update((symbol, (node_of(value), expr)) for symbol in _free(expr) & fresh)
            elif isinstance(value, torch.Tensor):
                for dim, size in enumerate(value.shape):
                    if isinstance(size, torch.SymInt) and size.node._expr in fresh:
                        of_data[size.node._expr] = (node_of(value), dim)

    def add(self, last: bool = False) -> None:
        """Record the checks whose numbers exist by now.

        Raises:
            Fallback: one is on a number of the captured graph that this graph does not have.
        """
        if self.env is None or not self.env.deferred_runtime_asserts:
            return
        for assumed in [a for some in self.env.deferred_runtime_asserts.values() for a in some]:
            expr = assumed.expr
            if expr in self._done:
                continue
            if all(map(self._raw.knows, _free(expr))):
                self._done.add(expr)
                self._check(expr)
            elif last and self._is_captured(expr):
                raise Fallback(f"the assumption {expr} about data cannot be checked")

    def _is_captured(self, expr: Any) -> bool:
        """Return whether an assumption is the captured graph's, not that of another run over it."""
        of_data: set[Any] = _free(expr) - self.env.backed_var_to_val.keys()
        return of_data.issubset(self.env.unbacked_renamings.values())

    def _check(self, expr: Any) -> None:
        asked = self._raw.build(expr)
        if asked is not True:
            message = f"Runtime assertion failed for expression {expr}"
            node = self.graph.call_function(aten._assert_scalar.default, (asked, message))
            node.meta["val"] = None


def _free(expr: Any) -> set[Any]:
    symbols: set[Any] = expr.free_symbols
    return symbols


class _Raw(SizeNodes):
    """Makes nodes of expressions over the numbers themselves, ignoring assumptions on them."""

    def __init__(self, sizes: SizeNodes) -> None:
        super().__init__(sizes.graph, sizes.env)
        self.homes, self.of_data, self.known = sizes.homes, sizes.of_data, sizes.nodes

    def knows(self, symbol: Any) -> bool:
        """Return whether there is a node with the value of a symbol."""
        return symbol in self.homes or symbol in self.known or self.data_of(symbol) is not None

    def symbol(self, symbol: Any) -> fx.Node:
        """Return the node of a symbol, preferring a node of an input."""
        number = self.known.get(symbol)
        is_input = symbol in self.homes or self.data_of(symbol) is not None
        return super().symbol(symbol) if is_input or number is None else number

    def same(self, symbol: Any) -> set[Any]:
        """Return a symbol's other name, applying only renamings."""
        return {symbol, self.env.unbacked_renamings.get(symbol)}

    def call(self, function: Callable[..., Any], *args: Any) -> fx.Node:
        """Add a call without a fake value, so that nothing is decided by it."""
        node = self.graph.call_function(function, args)
        node.meta.update({"val": None, OF_CHECK: True})
        return node
