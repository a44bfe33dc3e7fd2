"""Recurrent networks, which a graph unrolls: one graph holds one length of the sequence.

A network whose length changes would be compiled once for each length. It breaks the graph, and
ATen's own loop runs it at every length. The rest of the function is compiled once for all of them.
"""

from __future__ import annotations

from typing import Any

import torch

from tc.compiler.capture import breaks
from tc.compiler.core.symbolic import SYMBOLIC

#: functions that loop over the first or second dimension of their first argument
_NETWORKS = (torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu)


def symbolic_sizes(target: Any, args: list[Any]) -> list[Any]:
    """Return the symbolic sizes of the sequence that a recurrent network is called with."""
    if target not in _NETWORKS or not args or not isinstance(args[0], torch.Tensor):
        return []
    return [
        size
        for size in args[0].shape
        if isinstance(size, SYMBOLIC) and not _is_known(size)
    ]


def break_where_unrolled(target: Any, sizes: list[Any]) -> None:
    """Break the graph if a call has given one of these symbolic sizes a value of its own.

    Some networks stay whole (``torch.lstm`` without gradients of its input on a CPU): whether one
    is unrolled is visible only after its call on fake tensors.
    """
    if any(map(_is_known, sizes)):
        raise breaks.GraphBreak(breaks.SEQUENCE_LENGTH, f"torch.{target.__name__}")


def _is_known(size: Any) -> bool:
    return bool(size.node.expr.is_number)
