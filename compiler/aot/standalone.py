"""Prepares graphs of this stage for other compilers.

In: a graph that may end in writes to its inputs. Out: the same graph without any write, whose
results share memory neither with its inputs nor with each other when ATen runs it op by op, and
whose printed code names each operation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from tc.compiler.aot.artifact import as_module, aten, memory_of
from tc.compiler.aot.passes import copied
from tc.compiler.core.held_function import HeldFunction, is_spelled

Compiled = Callable[[list[Any]], tuple[Any, ...]]


def standalone(module: fx.GraphModule) -> tuple[fx.GraphModule, tuple[int, ...]]:
    """Return a copy of a graph that returns its written values as further outputs.

    Returns:
        The copy, and the inputs that its further outputs belong to.
    """
    graph = fx.Graph()
    results = list(graph.graph_copy(module.graph, {}))  # type: ignore[arg-type]
    inputs = graph.find_nodes(op="placeholder")
    written = []
    for write in graph.find_nodes(op="call_function", target=aten.copy_.default):
        target, value = write.args[:2]
        written.append(inputs.index(target))
        results.append(value)
        graph.erase_node(write)
    graph.output(_apart(graph, results))
    for node in graph.nodes:
        if node.op == "call_function" and not is_spelled(getattr(node.target, "__name__", "")):
            node.target = HeldFunction(node.target)
    graph.lint()
    return as_module(graph, module), tuple(written)


def _apart(graph: fx.Graph, results: list[Any]) -> list[Any]:
    """Copy results that are views of inputs or of other results."""
    seen: set[fx.Node] = set()
    apart: list[Any] = []
    for value in results:
        if isinstance(value, fx.Node) and isinstance(value.meta.get("val"), torch.Tensor):
            base = memory_of(value)
            if base in seen or base.op in ("placeholder", "get_attr"):
                value = copied(graph, value)
            seen.add(base)
        apart.append(value)
    return apart


def writing(compiled: Compiled, written: tuple[int, ...]) -> Compiled:
    """Return a function that writes the further outputs of a graph to its inputs."""
    if not written:
        return compiled

    def call(args: list[Any]) -> tuple[Any, ...]:
        targets = [args[i] for i in written]
        results = compiled(args)
        for target, value in zip(targets, results[-len(targets) :], strict=True):
            target.copy_(value)
        return results[: -len(targets)]

    return call
