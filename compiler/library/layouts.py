"""Layouts: chains of convolutions keep their images channels last, as their library computes.

A convolution of an image whose channels lie apart is computed on a copy, and copied back.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from tc.compiler.core.tune import Tuner, Way
from tc.compiler.library.editor import Editor, aten, fake, known_shape, value_of
from tc.compiler.library.freeze import held_constant
from tc.compiler.library.moments import grouped_moments, moments_of_channels
from tc.compiler.loops.lower.registry import LOWERINGS

LAST = torch.channels_last
#: pixels of a result from which on images weigh more than the kernel, which is copied either way
#: (measured with 32 to 128 channels: 1.1 to 1.3 times as fast above, up to 0.8 below)
MIN_PIXELS = 512
CONVOLUTION, GRADIENTS = aten.convolution.default, aten.convolution_backward.default
ON_CPU = (torch.float32,)
ON_GPU = (torch.float32, torch.bfloat16, torch.float16)
#: operations besides pointwise ones whose loops run as well over either layout
FOLLOWS = (
    aten.max_pool2d_with_indices.default,
    aten.max_pool2d_with_indices_backward.default,
    aten.avg_pool2d.default,
    aten.cat.default,
    aten.clone.default,
    aten._unsafe_index.Tensor,
    operator.getitem,
)
#: reductions whose loops run along the channels of images channels last, if all pixels are reduced
REDUCES = (
    aten.sum.dim_IntList,
    aten.mean.dim,
    aten.var_mean.correction,
    aten.amax.default,
    aten.amin.default,
)


def keep_channels_last(editor: Editor) -> None:
    """Let convolutions, and what loops compute between them, hold images channels last."""
    chosen = [node for node in editor.graph.nodes if _fits(node) and _gains(node, editor)]
    _arrange(editor, chosen, _Walk)


def train_channels_last(editor: Editor) -> None:
    """Do the same in a graph that computes gradients too, which then come channels last as well.

    Kernels are moved with their images: forward and both gradients gain, and one copy is cheap
    next to images that hold more than it.
    """
    graph = editor.graph
    chosen = [node for node in graph.nodes if _fits(node) and _trains_faster(node, editor)]
    keys = {(*node.args[:2], *map(str, node.args[3:])) for node in chosen}
    calls = graph.find_nodes(op="call_function", target=GRADIENTS)
    found = [call for call in calls if (*call.args[1:3], *map(str, call.args[4:10])) in keys]
    _arrange(editor, chosen, _JointWalk, found)


def _arrange(
    editor: Editor, chosen: list[fx.Node], walk: type[_Walk], gradients: Sequence[fx.Node] = ()
) -> None:
    if len(chosen) < 2:  # a copy before and one after cost what it gains
        return
    if not editor.decide("channels_last", chosen, True, "a chain of convolutions"):
        return
    steps = walk(editor, {*chosen, *gradients})
    for node in list(editor.graph.nodes):
        steps.visit(node)


def _fits(node: fx.Node) -> bool:
    """Return whether a node is a convolution of images, and loops read what it gives."""
    if node.target is not CONVOLUTION:
        return False
    image, kernel, _bias, _, _, _, transposed, _, groups = node.args
    result, shape = known_shape(node), known_shape(image)
    if result is None or shape is None or len(result) != 4 or known_shape(kernel) is None:
        return False
    if transposed or not all(_plain(part) for part in (node, image)):
        return False
    on_cpu = node.meta["val"].device.type == "cpu"
    if on_cpu and groups != 1 and held_constant(kernel) is None:  # ATen copies kernels each time
        return False
    return all(_reads_either(user) for user in node.users)


def _gains(node: fx.Node, editor: Editor) -> bool:
    """Return whether a convolution alone is faster channels last.

    A constant kernel is laid out once, so that only the images count.
    """
    tuner = editor.tuner
    if node.meta["val"].device.type != "cpu":
        return _faster_on_gpu(node, editor)
    if held_constant(node.args[1]) is not None:
        return True
    if tuner is not None and tuner.thorough and len(node.all_input_nodes) <= 3:
        return _fastest(tuner, node) == "channels_last"
    result = fake(node)
    return result is not None and result.numel() // result.shape[1] >= MIN_PIXELS


def _trains_faster(node: fx.Node, editor: Editor) -> bool:
    """Return whether a convolution and its gradients are faster channels last."""
    tuner = editor.tuner
    if node.meta["val"].device.type != "cpu":
        return _faster_on_gpu(node, editor, gradients=True)
    held = [fake(part) for part in (node.args[1], node.args[0], node)]
    kernel, *images = (0 if part is None else part.numel() for part in held)
    if tuner is not None and tuner.thorough:
        return _fastest(tuner, node, gradients=True) == "channels_last"
    return sum(images) >= kernel


def _faster_on_gpu(node: fx.Node, editor: Editor, gradients: bool = False) -> bool:
    """Return whether a convolution is faster channels last on the GPU that it is for.

    That depends on the generation and the type, and little time is needed to measure it.
    """
    tuner = editor.on_gpu
    return tuner is not None and _fastest(tuner, node, gradients) == "channels_last"


def _fastest(tuner: Tuner, node: fx.Node, gradients: bool = False) -> str:
    """Return the layout in which a convolution, or it and its gradients, is faster here."""
    image, kernel, _bias, *settings = node.args
    shapes = [known_shape(part) or () for part in (image, kernel, node)]
    held = node.meta["val"]

    def computed(*tensors: torch.Tensor) -> Way:
        sample, weight, gradient = tensors

        def run() -> Any:
            found = CONVOLUTION(sample, weight, None, *settings)
            if not gradients:
                return found
            return GRADIENTS(gradient, sample, weight, None, *settings, [True, True, False])

        return run

    def ways() -> dict[str, Way]:
        plain = [torch.full(shape, 0.5, dtype=held.dtype, device=held.device) for shape in shapes]
        last = [part.contiguous(memory_format=LAST) for part in plain]
        if not gradients:  # the kernel stays as it is
            last[1] = plain[1]
        return {"contiguous": computed(*plain), "channels_last": computed(*last)}

    what = "convolution and gradients" if gradients else "convolution"
    kind = str(held.dtype).removeprefix("torch.")
    if held.device.type != "cpu" and held.dtype is torch.float32:
        cudnn: Any = torch.backends.cudnn
        kind += f" as {cudnn.conv.fp32_precision}"
    return tuner.fastest(f"{what} {shapes[:2]} {settings} {kind}", ways)


def _plain(node: Any) -> bool:
    """Return whether a node holds floats row by row, in a type that the library has kernels for."""
    held = fake(node)
    if held is None or not held.is_contiguous():
        return False
    return held.dtype in (ON_CPU if held.device.type == "cpu" else ON_GPU)


def _reads_either(node: fx.Node) -> bool:
    """Return whether a reader of an image takes it in either layout."""
    return _follows(node) or _reduces(node) or grouped_moments(node) is not None


def _reduces(node: fx.Node) -> bool:
    """Return whether a node takes a sum, or the like, over all pixels of an image."""
    image = fake(node.args[0]) if node.args else None
    if node.target not in REDUCES or image is None or image.dim() != 4:
        return False
    dims = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
    return isinstance(dims, list | tuple) and {2, 3} <= {int(dim) % 4 for dim in dims}


def _follows(node: fx.Node) -> bool:
    """Return whether loops compute a node from images in the layout they have."""
    if node.op != "call_function":
        return False
    if node.target in (operator.getitem, CONVOLUTION, GRADIENTS):
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
            images = self._images(node)
            for image in images:
                self._give(node, image)
            self._back(node, keep=images)
            self._move(node)
            return
        given = [used for used in node.all_input_nodes if used in self.moved]
        if not given:
            return
        moments = grouped_moments(node)
        if moments is not None:
            moments_of_channels(self.editor, node, moments)
            return
        if _reduces(node):
            return
        if _follows(node) and node.target not in (CONVOLUTION, GRADIENTS):
            rank4 = [u for u in node.all_input_nodes if self._is_image(u)]
            if node.target is operator.getitem or self._can_follow(node):
                for used in rank4:
                    self._give(node, used)
                self._move(node)
                return
        self._back(node)

    def _images(self, node: fx.Node) -> Sequence[fx.Node]:
        """Return what a convolution is given channels last."""
        return (node.args[0],)  # type: ignore[return-value]

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

    def _give(self, node: fx.Node, image: fx.Node) -> None:
        """Replace an argument by the same image channels last."""
        held = fake(image)
        if image in self.moved or held is None or held.is_contiguous(memory_format=LAST):
            return
        if image not in self.lasts:
            made = self.editor.call(node, aten.clone.default, image, memory_format=LAST)
            self.lasts[image] = made
        node.replace_input_with(image, self.lasts[image])

    def _back(self, node: fx.Node, keep: Sequence[fx.Node] = ()) -> None:
        """Replace arguments that were moved by copies as they were, but for some."""
        for used in node.all_input_nodes:
            if used in self.moved and used not in keep:
                if used not in self.backs:
                    plain = torch.contiguous_format
                    made = self.editor.call(node, aten.clone.default, used, memory_format=plain)
                    self.backs[used] = made
                node.replace_input_with(used, self.backs[used])

    def _move(self, node: fx.Node) -> None:
        held = value_of(node)
        if isinstance(held, torch.Tensor):
            if held.dim() != 4:
                return
            if node not in self.convolutions and node.target is not operator.getitem:
                held = held.contiguous(memory_format=LAST)  # loops write it as it is asked for
        node.meta["val"] = held
        if not isinstance(held, torch.Tensor) or not held.is_contiguous():
            self.moved.add(node)


class _JointWalk(_Walk):
    """A walk that moves kernels as well, and the gradients of results."""

    def _images(self, node: fx.Node) -> Sequence[fx.Node]:
        count = 2 if node.target is CONVOLUTION else 3
        return node.args[:count]  # type: ignore[return-value]
