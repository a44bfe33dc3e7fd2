"""Compares a compiled graph with the graph it was made of: `Config.verify_correctness`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from tc.compiler.errors import BackendError

Compiled = Callable[..., Any]


def copied(module: fx.GraphModule) -> fx.GraphModule:
    """Return a graph of its own, that a backend does not change."""
    graph = fx.Graph()
    graph.output(graph.graph_copy(module.graph, {}))
    return fx.GraphModule(module, graph)


def verify(module: fx.GraphModule, compiled: Compiled, inputs: list[Any], name: str) -> None:
    """Compare one call of a compiled graph with the captured one, on copies of the inputs.

    Raises:
        BackendError: they differ.
    """
    if not all(isinstance(value, torch.Tensor) for value in inputs):
        return
    state = torch.get_rng_state()
    found = []
    for call in (module.forward, compiled):
        torch.set_rng_state(state)
        found.append(call(*[value.detach().clone() for value in inputs]))
    torch.set_rng_state(state)
    try:
        torch.testing.assert_close(found[1], found[0], equal_nan=True)
    except AssertionError as error:
        raise BackendError(
            "backend",
            f"backend {name!r} returns another result than the graph that it compiled: {error}",
        ) from error
