"""Variance and mean of groups of channels, as group norms take them, from those of channels.

A group's pixels lie together where channels lie apart. Channels last they do not, but all channels
of a pixel do: each gets its own variance and mean, and those of a group follow from them (Chan,
Golub and LeVeque, 1979).
"""

from __future__ import annotations

import operator

from torch import fx

from tc.compiler.library.editor import Editor, aten, static_shape


def grouped_moments(view: fx.Node) -> fx.Node | None:
    """Return who takes variance and mean of groups of channels, if that is all that is read.

    Args:
        view: anything; only an image seen as (images, groups, channels, pixels) has such a reader.
    """
    if view.target is not aten.view.default or len(view.users) != 1:
        return None
    image, parts = static_shape(view.args[0]), static_shape(view)
    if image is None or parts is None or len(image) != 4 or len(parts) != 4:
        return None
    if parts != (image[0], parts[1], image[1] // max(parts[1], 1), image[2] * image[3]):
        return None
    (node,) = view.users
    if node.target is not aten.var_mean.correction or 0 in parts:
        return None
    dims = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
    whole = dims == [2, 3] and node.kwargs.get("keepdim") and node.kwargs.get("correction") == 0
    known = all(user.target is operator.getitem for user in node.users)
    return node if whole and known else None


def moments_of_channels(editor: Editor, view: fx.Node, node: fx.Node) -> None:
    """Put variance and mean of each channel, and of its group, in place of a group's."""
    image = view.args[0]
    shape = static_shape(view)
    assert isinstance(image, fx.Node) and shape is not None
    each = editor.call(node, aten.var_mean.correction, image, [2, 3], correction=0, keepdim=True)
    parts = [editor.call(node, operator.getitem, each, k) for k in (0, 1)]
    variance, mean = (editor.call(node, aten.view.default, p, [*shape[:3], 1]) for p in parts)
    centre = editor.call(node, aten.mean.dim, mean, [2], True)
    apart = editor.call(node, aten.sub.Tensor, mean, centre)
    square = editor.call(node, aten.mul.Tensor, apart, apart)
    spread = editor.call(node, aten.add.Tensor, variance, square)
    found = (editor.call(node, aten.mean.dim, spread, [2], True), centre)
    for user in list(node.users):
        user.replace_all_uses_with(found[user.args[1]])  # type: ignore[index]
        editor.graph.erase_node(user)
    editor.graph.erase_node(node)
    editor.graph.erase_node(view)
