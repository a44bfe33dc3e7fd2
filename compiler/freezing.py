"""Freezing: the parameters of modules are constants of a compiled graph while they stay the same.

In: what was captured. Out: the values that are taken as constants, with guards that they are these
objects, and a compiled graph that looks at each call whether they were written to since.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from tc import trace
from tc.compiler.capture import hook
from tc.compiler.capture.translate import Captured

Compiled = Callable[..., Any]
CHANGED = "a parameter that was frozen has been written to"


def frozen_inputs(captured: Captured, frame: hook.Frame) -> dict[str, torch.Tensor]:
    """Return parameters and buffers among a graph's inputs by the names of the placeholders.

    There are none where gradients may be computed. The code captured is guarded from here on to
    meet these very objects.
    """
    assert captured.module is not None
    found: dict[str, torch.Tensor] = {}
    if torch.is_grad_enabled():
        return found
    nodes = captured.module.graph.find_nodes(op="placeholder")
    given = zip(nodes, captured.tracer.output.inputs, captured.real_inputs(frame), strict=True)
    for node, entry, real in given:
        source = entry.value.source
        assert source is not None
        if type(real) not in (torch.Tensor, torch.nn.Parameter) or real.is_inference():
            continue
        if isinstance(real, torch.nn.Parameter) or "_buffers" in source.name:
            captured.tracer.guards.recorded.add("ID", source, real)
            found[node.name] = real
    if found:
        captured.guards = captured.build_guards()
    return found


def while_unchanged(
    compiled: Compiled, captured: Captured, frozen: Mapping[str, torch.Tensor]
) -> Compiled:
    """Return what runs a frozen graph, and the captured graph once a parameter was written to."""
    assert captured.module is not None
    if not frozen:
        return compiled
    eager = captured.module.forward
    versions = [(tensor, tensor._version) for tensor in frozen.values()]
    reported: list[str] = []

    def call(*args: Any) -> Any:
        if all(tensor._version == version for tensor, version in versions):
            return compiled(*args)
        if not reported:
            reported.append(CHANGED)
            trace.emit(trace.Artifact("tc_graph_runs_eagerly", CHANGED))
        return eager(*args)

    return hook.never_trace(call)
