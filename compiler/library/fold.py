"""Batch norm folding: constants that scale and shift channels become part of kernels and matrices.

In inference, a batch norm multiplies each channel by a number and adds another one. Behind a
convolution or a matrix product with constant operands, both are computed once: the kernel's output
channels are scaled, and the bias takes the shift (Jacob et al., "Quantization and training of
neural networks for efficient integer-arithmetic-only inference", section 3.2).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from tc.compiler.library.editor import Editor, aten, fake, static_shape
from tc.compiler.library.freeze import add_constant, held_constant
from tc.compiler.library.products import EXACT, PRODUCTS

CONVOLUTION = aten.convolution.default
#: operations that scale or shift a value by their other operand
STEPS = (aten.mul.Tensor, aten.div.Tensor, aten.add.Tensor, aten.sub.Tensor)
#: those whose operands may be swapped
SYMMETRIC = (aten.mul.Tensor, aten.add.Tensor)


@dataclass(frozen=True)
class _Map:
    """What a chain of steps makes of each channel: ``scale * value + shift``, in 64 bits."""

    scale: torch.Tensor
    shift: torch.Tensor

    def then(self, op: Any, operand: torch.Tensor) -> _Map:
        """Return this map, and a step after it."""
        if op is aten.mul.Tensor:
            return _Map(self.scale * operand, self.shift * operand)
        if op is aten.div.Tensor:
            return _Map(self.scale / operand, self.shift / operand)
        sign = -1 if op is aten.sub.Tensor else 1
        return _Map(self.scale, self.shift + sign * operand)

    @property
    def finite(self) -> bool:
        return bool(self.scale.isfinite().all() and self.shift.isfinite().all())


def fold_scales(editor: Editor) -> None:
    """Fold what scales and shifts channels into the constants of convolutions and products."""
    for node in list(editor.graph.nodes):
        if node.op != "call_function" or node.target not in (CONVOLUTION, *PRODUCTS):
            continue
        found = _Linear.of(node)
        if found is None:
            continue
        steps, mapped = _chain(node, found)
        reason = "constants scale and shift its channels"
        if steps and editor.decide("fold_scale", [node, *steps], True, reason):
            made = found.mapped(editor, mapped)
            steps[-1].replace_all_uses_with(made)
            for step in (*reversed(steps), node):
                editor.graph.erase_node(step)


@dataclass(frozen=True)
class _Linear:
    """A convolution or product: its constant operand and bias, and where their channels lie.

    Attributes:
        channel: dimension of the result, from the back, that holds the channels.
        out: dimension of the constant operand that makes them.
    """

    node: fx.Node
    weight: torch.Tensor
    bias: torch.Tensor | None
    channel: int
    out: int

    @classmethod
    def of(cls, node: fx.Node) -> _Linear | None:
        """Return what is known of a node; None where its operands are no constants."""
        shape, held = static_shape(node), fake(node)
        if shape is None or held is None or held.dtype not in EXACT or node.kwargs:
            return None
        if node.target is CONVOLUTION:
            _, kernel, bias, *_, transposed, _, groups = node.args
            if transposed and groups != 1:
                return None
            place = (1 - len(shape), int(bool(transposed)))
        else:
            bias, kernel = node.args[0] if len(node.args) == 3 else None, node.args[-1]
            place = (-1, 1)
        weight, added = held_constant(kernel), held_constant(bias)
        known = weight is not None and (bias is None or added is not None)
        if weight is None or not known or weight.dtype is not held.dtype:
            return None
        if added is not None and tuple(added.shape) != (shape[place[0]],):
            return None
        return cls(node, weight, added, *place)

    @property
    def channels(self) -> int:
        return self.weight.shape[self.out]

    def operand(self, value: Any) -> torch.Tensor | None:
        """Return a step's other operand, a number for each channel, in 64 bits."""
        if isinstance(value, int | float) and not isinstance(value, bool):
            place = self.weight.device
            return torch.full((self.channels,), float(value), dtype=torch.float64, device=place)
        held = held_constant(value)
        if held is None or held.dtype is not self.weight.dtype:
            return None
        rank = len(self.node.meta["val"].shape)
        at = rank + self.channel  # the channel's dimension, from the front
        sizes = (1,) * (rank - held.dim()) + tuple(held.shape)
        if len(sizes) != rank or any(n != 1 for d, n in enumerate(sizes) if d != at):
            return None
        return held.to(torch.float64).reshape(-1).expand(self.channels)

    def mapped(self, editor: Editor, by: _Map) -> fx.Node:
        """Add a call that gives what this one and the steps after it do."""
        node, dtype = self.node, self.weight.dtype
        sizes = [1] * self.weight.dim()
        sizes[self.out] = self.channels
        kernel = self.weight * by.scale.reshape(sizes)  # in 64 bits, rounded once
        shift = by.shift if self.bias is None else self.bias * by.scale + by.shift
        before = node.args[1] if node.target is CONVOLUTION else node.args[-1]
        weight = add_constant(editor, before, _like(kernel.to(dtype), self.weight))  # type: ignore[arg-type]
        bias = add_constant(editor, None, shift.to(dtype).contiguous())
        if node.target is CONVOLUTION:
            return editor.call(node, CONVOLUTION, node.args[0], weight, bias, *node.args[3:])
        return editor.call(node, aten.addmm.default, bias, node.args[-2], weight)


def _like(values: torch.Tensor, held: torch.Tensor) -> torch.Tensor:
    """Return values in the layout of another tensor of this shape."""
    return torch.empty_strided(
        held.shape, held.stride(), dtype=held.dtype, device=held.device
    ).copy_(values)


def _chain(node: fx.Node, linear: _Linear) -> tuple[list[fx.Node], _Map]:
    """Return the steps after a call that scale or shift its channels, and their map."""
    one = torch.ones(linear.channels, dtype=torch.float64, device=linear.weight.device)
    steps, mapped, last = [], _Map(one, torch.zeros_like(one)), node
    while len(last.users) == 1:
        (step,) = last.users
        operand = _other_operand(step, last)
        value = None if operand is None else linear.operand(operand)
        same = fake(step) is not None and step.meta["val"].shape == node.meta["val"].shape
        if value is None or not same or step.meta["val"].dtype is not node.meta["val"].dtype:
            break
        further = mapped.then(step.target, value)
        if not further.finite:
            break
        steps.append(step)
        mapped, last = further, step
    return steps, mapped


def _other_operand(step: fx.Node, value: fx.Node) -> Any:
    """Return what a step scales or shifts a value by; None if it does something else."""
    if step.target not in STEPS or step.kwargs or len(step.args) != 2:
        return None
    left, right = step.args
    if left is value and right is not value:
        return right
    return left if right is value and left is not value and step.target in SYMMETRIC else None
