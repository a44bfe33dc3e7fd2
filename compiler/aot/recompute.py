"""Recomputation (rematerialization): cheap formulas for results of ops that never run twice.

Normalisation is a reduction, and dropout draws random numbers: backward must repeat neither. But
with the statistics, or with the mask, which are saved anyway, the large result takes only a few
operations for each element.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from tc.compiler.aot.artifact import CALLED
from tc.compiler.aot.passes import same_layout, share_common_subexpressions
from tc.compiler.aot.regions import KEEP, REGION
from tc.compiler.core.gate import Gate

aten = torch.ops.aten


class Formula:
    """Adds nodes that compute the first result of an op in another way."""

    def __init__(self, op: fx.Node, result: fx.Node) -> None:
        self.op = op
        self.name = f"{result.name}_again"
        self.meta = {
            key: value for key, value in result.meta.items() if key not in (KEEP, CALLED, "val")
        }
        parts = [user for user in op.users if user.target is operator.getitem]
        self.parts = {user.args[1]: user for user in parts}
        self.made: list[fx.Node] = []
        self.after = max(parts)  # nodes are ordered as their graph is

    def part(self, index: int) -> fx.Node:
        """Return another result of the same op."""
        if index not in self.parts:
            value = self.op.meta["val"][index]
            self.parts[index] = self._add(operator.getitem, (self.op, index), value)
        return self.parts[index]

    def call(self, target: Any, *args: Any) -> fx.Node:
        """Add a call."""
        values = [arg.meta["val"] if isinstance(arg, fx.Node) else arg for arg in args]
        with self.op.meta["val"][0].fake_mode:
            value = target(*values)
        return self._add(target, args, value)

    def take_back(self) -> None:
        """Remove all added nodes."""
        for node in reversed(self.made):
            self.op.graph.erase_node(node)

    def _add(self, target: Any, args: tuple[Any, ...], value: Any) -> fx.Node:
        with self.op.graph.inserting_after(self.after):
            node = self.op.graph.create_node("call_function", target, args, {}, self.name)
        node.meta.update(self.meta, val=value)
        self.after = node
        self.made.append(node)
        return node


def layer_norm(formula: Formula) -> fx.Node | None:
    """``(x - mean) * rstd * weight + bias``, in the widths that the op itself computes in."""
    x, _, weight, bias, *_ = formula.op.args
    mean, rstd = formula.part(1), formula.part(2)
    given = [node for node in (x, mean, weight, bias) if isinstance(node, fx.Node)]
    dtypes = {node.meta["val"].dtype for node in given}
    if len(dtypes) > 1 or dtypes & {torch.float16, torch.bfloat16}:
        return None
    result = formula.call(aten.sub.Tensor, x, mean)
    result = formula.call(aten.mul.Tensor, result, rstd)
    if weight is not None:
        result = formula.call(aten.mul.Tensor, result, weight)
    return formula.call(aten.add.Tensor, result, bias) if bias is not None else result


def dropout(formula: Formula) -> fx.Node | None:
    """``x * mask / (1 - p)``."""
    x, p, _ = formula.op.args
    if not isinstance(p, float) or p >= 1:
        return None
    result = formula.call(aten.mul.Tensor, x, formula.part(1))
    return formula.call(aten.mul.Tensor, result, 1 / (1 - p))


FORMULAS: dict[Any, Callable[[Formula], fx.Node | None]] = {
    aten.native_layer_norm.default: layer_norm,
    aten.native_dropout.default: dropout,
}


def add_formulas(joint: fx.Graph, gate: Gate) -> dict[fx.Node, fx.Node]:
    """Add formulas to a joint graph, without users yet; return result -> the node equal to it."""
    found: dict[fx.Node, fx.Node] = {}
    for target, formula_of in FORMULAS.items():
        for op in joint.find_nodes(op="call_function", target=target):
            result = next((u for u in op.users if u.args[1] == 0), None)
            region = REGION in op.meta and target is not aten.native_dropout.default
            if result is None or region or not gate.allow(f"aot.recompute.{target}", result.name):
                continue
            formula = Formula(op, result)
            same = formula_of(formula)
            if same is not None and same_layout(same, result):
                formula.after.append(result)  # operands come before their users
                found[result] = same
            else:
                formula.take_back()
    return _shared(joint, found) if found else {}


def _shared(joint: fx.Graph, formulas: dict[fx.Node, fx.Node]) -> dict[fx.Node, fx.Node]:
    """Merge the common subexpressions of formulas and gradients."""
    with joint.inserting_before(joint.output_node()):
        holder = joint.call_function(tuple, (list(formulas.values()),))
    share_common_subexpressions(joint)
    same: Any = holder.args[0]
    joint.erase_node(holder)
    for result, node in zip(formulas, same, strict=True):
        node.replace_all_uses_with(result)
    return dict(zip(formulas, same, strict=True))


def drop_formulas(joint: fx.Graph, formulas: dict[fx.Node, fx.Node]) -> None:
    """Remove the nodes of `add_formulas` that nothing uses."""
    stack = list(formulas.values())
    while stack:
        node = stack.pop()
        if not node.users and node.op == "call_function":
            stack += node.all_input_nodes
            joint.erase_node(node)
