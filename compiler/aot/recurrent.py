"""Replacements for torch's recurrent networks with several layers and dropout between them.

torch's decompositions of `lstm`, `gru` and `rnn` omit the dropout, so a traced network with dropout
is decomposed into layers here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

Network = Callable[..., Any]


def layered(network: Network, dropout: Callable[[Any, float], Any]) -> Network:
    """Return a replacement for ``torch.lstm`` and its like that calls it layer by layer.

    Args:
        network: takes ``(input, hidden, parameters, ...)``, or ``(data, batch sizes, hidden,
            parameters, ...)`` for packed sequences.
        dropout: draws as eager does.
    """

    def stand_in(*args: Any, **kwargs: Any) -> Any:
        packed = len(args) > 2 and isinstance(args[2], torch.Tensor | tuple)
        rest = args[4 if packed else 3 :]
        names = ("has_biases", "num_layers", "dropout", "train", "bidirectional", "batch_first")
        given = {**dict(zip(names, rest, strict=False)), **kwargs}
        count, p = given.get("num_layers", 1), given.get("dropout", 0.0)
        if not (given.get("train") and p > 0 and count > 1):
            return network(*args, **kwargs)
        return _run(network, dropout, args[: 4 if packed else 3], given)

    return stand_in


def _run(
    network: Network, dropout: Callable[[Any, float], Any], operands: Sequence[Any], given: Any
) -> Any:
    x, *sizes, hidden, parameters = operands
    states = hidden if isinstance(hidden, tuple | list) else (hidden,)
    count, batch_first = given["num_layers"], given.get("batch_first", False)
    directions = 2 if given["bidirectional"] else 1
    each = len(parameters) // count
    x = x.transpose(0, 1) if batch_first else x
    finals: list[Any] = []
    for layer in range(count):
        if layer:
            x = dropout(x, given["dropout"])
        own = [state.narrow(0, layer * directions, directions) for state in states]
        start = tuple(own) if isinstance(hidden, tuple | list) else own[0]
        last = (False,) if not sizes else ()
        x, *ends = network(
            x, *sizes, start, parameters[layer * each : (layer + 1) * each],
            given["has_biases"], 1, 0.0, True, given["bidirectional"], *last,
        )  # fmt: skip
        finals.append(ends)
    out = x.transpose(0, 1) if batch_first else x
    return (out, *(torch.cat(parts) for parts in zip(*finals, strict=True)))
