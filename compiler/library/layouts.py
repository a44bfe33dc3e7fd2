"""Layouts: chains of convolutions keep their images channels last, as their library computes.

A convolution of an image whose channels lie apart is computed on a copy, and copied back.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from tc.compiler.core.tune import Tuner, Way
from tc.compiler.library.editor import Editor, aten, fake, static_shape, value_of
from tc.compiler.library.moments import grouped_moments, moments_of_channels
from tc.compiler.loops.lower.registry import LOWERINGS

LAST = torch.channels_last
#: pixels of a result from which on images weigh more than the kernel, which is copied either way
#: (measured with 32 to 128 channels: 1.1 to 1.3 times as quick above, up to 0.8 below)
MIN_PIXELS = 512
#: operations besides pointwise ones whose loops run as well over either layout
FOLLOWS = (
    aten.max_pool2d_with_indices.default,
    aten.avg_pool2d.default,
    aten.cat.default,
    aten.clone.default,
    aten._unsafe_index.Tensor,
    operator.getitem,
)


def keep_channels_last(editor: Editor) -> None:
    """Let convolutions, and what loops compute between them, hold images channels last."""
    convolutions = [node for node in editor.graph.nodes if _gains(node, editor.tuner)]
    if len(convolutions) < 2:  # a copy before and one after cost what it gains
        return
    if not editor.decide("channels_last", convolutions, True, "a chain of convolutions"):
        return
    walk = _Walk(editor, set(convolutions))
    for node in list(editor.graph.nodes):
        walk.visit(node)


def _gains(node: fx.Node, tuner: Tuner | None) -> bool:
    """Whether a convolution is quicker channels last, and loops read what it gives."""
    if node.target is not aten.convolution.default:
        return False
    image, kernel, _bias, _, _, _, transposed, _, groups = node.args
    result, shape = static_shape(node), static_shape(image)
    if result is None or shape is None or len(result) != 4 or static_shape(kernel) is None:
        return False
    if transposed or groups != 1 or not all(_plain(part) for part in (node, image)):
        return False
    if not all(_follows(user) or grouped_moments(user) is not None for user in node.users):
        return False
    if tuner is not None and tuner.thorough and len(node.all_input_nodes) <= 3:
        return _quickest(tuner, node) == "channels_last"
    return result[0] * result[2] * result[3] >= MIN_PIXELS


def _quickest(tuner: Tuner, node: fx.Node) -> str:
    """Return the layout of its image in which a convolution is quicker here."""
    image, kernel, _bias, *settings = node.args
    shapes = [static_shape(part) for part in (image, kernel)]

    def ways() -> dict[str, Way]:
        sample, weight = (torch.full(shape or (), 0.5) for shape in shapes)
        turned = sample.contiguous(memory_format=LAST)
        return {
            "contiguous": lambda: node.target(sample, weight, None, *settings),  # type: ignore
            "channels_last": lambda: node.target(turned, weight, None, *settings),  # type: ignore
        }

    return tuner.quickest(f"convolution {shapes} {settings} float32", ways)


def _plain(node: Any) -> bool:
    """Whether a node holds 32-bit floats row by row."""
    held = fake(node)
    return held is not None and held.dtype is torch.float32 and held.is_contiguous()


def _follows(node: fx.Node) -> bool:
    """Whether loops compute a node from images in the layout they have."""
    if node.op != "call_function":
        return False
    if node.target in (operator.getitem, aten.convolution.default):
        return True
    tags = getattr(node.target, "tags", ())
    return node.target in LOWERINGS and (torch.Tag.pointwise in tags or node.target in FOLLOWS)


class _Walk:
    """The images moved so far, and their copies in the other layout."""

    def __init__(self, editor: Editor, convolutions: set[fx.Node]) -> None:
        self.editor = editor
        self.convolutions = convolutions
        self.moved: set[fx.Node] = set()
        self.lasts: dict[fx.Node, fx.Node] = {}
        self.backs: dict[fx.Node, fx.Node] = {}

    def visit(self, node: fx.Node) -> None:
        """Move a node's result, or give it its arguments as they were."""
        if node in self.convolutions:
            self._give(node, node.args[0])
            self._back(node)
            self._move(node)
            return
        given = [used for used in node.all_input_nodes if used in self.moved]
        if not given:
            return
        moments = grouped_moments(node)
        if moments is not None:
            moments_of_channels(self.editor, node, moments)
            return
        if _follows(node) and node.target is not aten.convolution.default:
            rank4 = [u for u in node.all_input_nodes if self._is_image(u)]
            if node.target is operator.getitem or self._can_follow(node):
                for used in rank4:
                    self._give(node, used)
                self._move(node)
                return
        self._back(node)

    def _can_follow(self, node: fx.Node) -> bool:
        held = node.meta["val"]
        parts = held if isinstance(held, tuple | list) else (held,)
        return all(part.dim() == 4 and part.is_contiguous() for part in parts) and (
            node.kwargs.get("memory_format") in (None, torch.preserve_format)
        )

    @staticmethod
    def _is_image(node: fx.Node) -> bool:
        held = fake(node)
        return held is not None and held.dim() == 4

    def _give(self, node: fx.Node, image: Any) -> None:
        """Replace an argument by the same image channels last."""
        if image in self.moved:
            return
        if image not in self.lasts:
            made = self.editor.call(node, aten.clone.default, image, memory_format=LAST)
            self.lasts[image] = made
        node.replace_input_with(image, self.lasts[image])

    def _back(self, node: fx.Node) -> None:
        """Replace arguments that were moved by copies as they were."""
        for used in node.all_input_nodes:
            if used in self.moved and not (node in self.convolutions and used is node.args[0]):
                if used not in self.backs:
                    plain = torch.contiguous_format
                    made = self.editor.call(node, aten.clone.default, used, memory_format=plain)
                    self.backs[used] = made
                node.replace_input_with(used, self.backs[used])

    def _move(self, node: fx.Node) -> None:
        held = value_of(node)
        if node not in self.convolutions and isinstance(held, torch.Tensor):
            held = held.contiguous(memory_format=LAST)  # loops write it as it is asked for
        node.meta["val"] = held
        self.moved.add(node)
