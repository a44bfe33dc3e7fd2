"""Backward of a call where some outputs have no gradient: what comes from those alone is left out.

In: backward's graph, and which of its tangents are undefined. Out: a smaller graph. Eager does not
run such nodes either. Zeros in place of the undefined tangents would be wrong where a derivative is
infinite (zero times that is NaN), and cost time and memory.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import fx

from tc.compiler.aot.artifact import (
    ORIGIN_KEYS,
    AotGraph,
    Constant,
    Contract,
    Fresh,
    Output,
    SameInput,
    as_module,
    aten,
)
from tc.compiler.aot.layouts import layout_key
from tc.compiler.aot.passes import drop_dead_code, separate_outputs
from tc.compiler.core.symbolic import SYMBOLIC

NUMBERS = (int, float, bool, *SYMBOLIC)
KEPT = ("val", *ORIGIN_KEYS)


def without(
    backward: AotGraph, tangents: int, missing: Collection[int]
) -> tuple[AotGraph, Contract]:
    """Return backward for calls where some tangents are undefined.

    Args:
        backward: is not changed.
        tangents: how many of its last inputs are tangents.
        missing: the positions of the undefined ones among these.

    Returns:
        The graph, which takes as many inputs, and its contract: inputs that it takes for no tensors
        are unused, for the other undefined tangents it takes zeros.
    """
    graph = fx.Graph()
    known: dict[fx.Node, fx.Node] = {}
    graph.output(graph.graph_copy(backward.module.graph, known))
    inputs = graph.find_nodes(op="placeholder")
    first = len(inputs) - tangents
    gone = _Undefined(graph, inputs[first:], {inputs[first + at] for at in missing}).gone
    made: dict[fx.Node, int] = {}
    last = graph.output_node()
    results: Any = last.args[0]
    outputs = [_output(output, results, inputs, gone, made) for output in backward.outputs]
    last.args = (list(made),)
    drop_dead_code(graph)
    separate_outputs(graph)
    tensors = tuple(
        isinstance(node.meta["val"], torch.Tensor) and not (node in gone and not node.users)
        for node in inputs
    )
    module = as_module(graph, backward.module)
    module.meta.update(backward.module.meta)
    found = replace(backward, module=module, outputs=tuple(outputs))
    return found, replace(found.contract, tensors=tensors)


def _output(
    output: Output,
    results: Sequence[fx.Node],
    inputs: Sequence[fx.Node],
    gone: Collection[fx.Node],
    made: dict[fx.Node, int],
) -> Output:
    """Return how a gradient is made of the results of the smaller graph, which are noted."""
    if isinstance(output, SameInput):
        return Constant(None) if inputs[output.index] in gone else output
    if not isinstance(output, Fresh):
        return output
    node = results[output.index]
    if node in gone:
        return Constant(None)
    if node in inputs:
        return SameInput(inputs.index(node))
    return Fresh(made.setdefault(node, len(made)))


class _Undefined:
    """Finds what is undefined, and takes it out of what is not.

    Attributes:
        gone: values that are computed from undefined tangents, and from no others.
    """

    def __init__(self, graph: fx.Graph, tangents: Sequence[fx.Node], missing: set[fx.Node]) -> None:
        self.graph, self.gone = graph, set(missing)
        self._zeros: dict[fx.Node, fx.Node] = {}
        led = set(tangents)  # to by a tangent
        for node in [node for node in graph.nodes if node.op == "call_function"]:
            sources = [one for one in node.all_input_nodes if one in led]
            undefined = [one for one in sources if one in self.gone]
            if not sources:
                continue
            led.add(node)
            if len(undefined) == len(sources) and not isinstance(node.meta["val"], NUMBERS):
                self.gone.add(node)
            elif undefined:
                self._define(node, undefined)

    def _define(self, node: fx.Node, undefined: Sequence[fx.Node]) -> None:
        """Take undefined arguments out of a node: eager leaves them out of sums."""
        if node.target is aten.add.Tensor and not node.kwargs:
            [other] = [one for one in node.args if one not in undefined]
            if isinstance(other, fx.Node) and _alike(other, node):
                node.replace_all_uses_with(other)
                return
        for one in undefined:
            if isinstance(one.meta["val"], torch.Tensor):
                node.replace_input_with(one, self._zero(one, node))

    def _zero(self, undefined: fx.Node, user: fx.Node) -> fx.Node:
        """Return zeros in place of an undefined value."""
        if undefined not in self._zeros:
            value = undefined.meta["val"]
            with self.graph.inserting_before(user):
                if value.is_contiguous() and all(type(size) is int for size in value.shape):
                    kind = {"dtype": value.dtype, "device": value.device, "pin_memory": False}
                    zero = self.graph.call_function(
                        aten.full.default, (list(value.shape), 0), kind
                    )  # fmt: skip
                else:
                    zero = self.graph.call_function(aten.zeros_like.default, (undefined,))
            zero.meta.update({key: undefined.meta[key] for key in KEPT if key in undefined.meta})
            self._zeros[undefined] = zero
        return self._zeros[undefined]


def _alike(one: fx.Node, other: fx.Node) -> bool:
    """Return whether one value can stand in for another, layout included."""
    mine, theirs = one.meta["val"], other.meta["val"]
    of_one_kind = (mine.dtype, mine.device) == (theirs.dtype, theirs.device)
    return of_one_kind and layout_key(mine) == layout_key(theirs)
