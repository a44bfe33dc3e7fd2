"""Dropout: numbers drawn by the library, everything else in loops.

The library's own routine makes a mask of bools and goes over memory three times more. Drawn as
numbers of the input's type, as eager does for `torch.nn.functional.dropout`, the same elements are
kept, and loops do the rest together with what follows.
"""

from __future__ import annotations

import operator

from torch import fx

from tc.compiler.library.editor import Editor, aten, fake


def draw_numbers(editor: Editor) -> None:
    """Take dropout apart into draws and products."""
    for node in list(editor.graph.nodes):
        if node.target is not aten.native_dropout.default or not _is_plain(node):
            continue
        if not editor.decide(
            "draw_numbers", [node], True, "the mask is applied by generated loops"
        ):
            continue
        given, rate, _ = node.args
        keep = 1 - rate
        noise = editor.call(node, aten.bernoulli.p, given, keep)
        for user in list(node.users):
            if user.args[1] == 0:
                scaled = editor.call(user, aten.div.Tensor, noise, keep)
                part = editor.call(user, aten.mul.Tensor, given, scaled)
            else:
                part = editor.call(user, aten.ne.Scalar, noise, 0)
            user.replace_all_uses_with(part)
            editor.graph.erase_node(user)
        editor.graph.erase_node(node)


def _is_plain(node: fx.Node) -> bool:
    """Return whether numbers are drawn, in the order of memory, on the CPU."""
    if len(node.args) != 3:
        return False
    given, rate, train = node.args
    held = fake(given)
    if held is None or held.device.type != "cpu" or train is False or not isinstance(rate, float):
        return False
    known = all(user.target is operator.getitem for user in node.users)
    return known and 0 < rate < 1 and held.is_contiguous() and held.dtype.is_floating_point
