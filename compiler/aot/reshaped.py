"""Calls that change a tensor's shape or strides in place, recorded as views.

Autograd makes the history of a view again after its base has changed, and under functionalisation
it does so by viewing the base in the same way. If the base has another shape by then, that is
another view. So a run leaves the base as it is, and uses a view of it from then on.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_leaves, tree_map

from tc.compiler.aot.artifact import Fallback


def reshapes_in_place(node: fx.Node) -> bool:
    """Return whether a call changes its first argument's shape, strides or history in place."""
    if node.op not in ("call_method", "call_function") or not node.args:
        return False
    return isinstance(node.args[0], fx.Node) and _is_inplace_view(_name(node))


def as_view(node: fx.Node, target: torch.Tensor) -> Callable[..., torch.Tensor] | None:
    """Return what makes the view that a call turns its first argument into.

    Args:
        node: any node of a captured graph.
        target: the value of its first argument.

    Returns:
        None for a call that changes no shape, or for which there is no such view.

    Raises:
        Fallback: the change has no history, and what has the old shape has one.
    """
    name = _name(node).removesuffix("_")
    if not reshapes_in_place(node) or name not in VIEWS:
        return None
    if target.requires_grad and not torch.is_grad_enabled():
        raise Fallback("the shape of a tensor with a history is changed in place without one")
    view: Callable[..., torch.Tensor] = getattr(torch.Tensor, name)
    return view


def put_in_place(
    env: dict[fx.Node, Any], first: dict[fx.Node, Any], target: torch.Tensor, view: torch.Tensor
) -> None:
    """Put a view in the place of a tensor, wherever that is among the values of a run.

    Args:
        env: the values of the run.
        first: gets the values that are replaced; those that were replaced before stay.
        target: a value.
        view: takes its place.

    Raises:
        Fallback: it belongs to an argument of the graph, which may be used outside as well.
    """
    for node, value in env.items():
        if not any(leaf is target for leaf in tree_leaves(value)):
            continue
        if node.op == "placeholder":
            raise Fallback("the shape of an argument of a checkpointed region is changed in place")
        first.setdefault(node, value)
        env[node] = tree_map(lambda leaf: view if leaf is target else leaf, value)


#: functions that return as a view what the method of that name with an underscore does in place
VIEWS = ("as_strided", "squeeze", "swapaxes", "swapdims", "t", "transpose", "unsqueeze")


def _name(node: fx.Node) -> str:
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    return name.partition(".")[0]


@functools.cache
def _is_inplace_view(name: str) -> bool:
    packet = getattr(torch.ops.aten, name, None) if name.endswith("_") else None
    overloads = () if packet is None else packet.overloads()
    return any(torch.Tag.inplace_view in getattr(packet, one).tags for one in overloads)
