"""Freezing: the parameters of modules are constants of a compiled graph while they stay the same.

In: what was captured. Out: the values that are taken as constants, with guards that they are these
objects, and a compiled graph that looks at each call whether they were written to since.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

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


class _Constants:
    """The tensors that one graph takes as constants, as they were when it was compiled.

    A write shows in a tensor's version, and ``tensor.data = ...`` in its address. The steps of
    fused optimizers show in neither, so a step of any optimizer counts as a write.
    """

    def __init__(self, tensors: Iterable[torch.Tensor]) -> None:
        self._rows = [(tensor, tensor._version, tensor.data_ptr()) for tensor in tensors]
        self._stepped = False
        _all.add(self)

    def are_unchanged(self) -> bool:
        """Return whether nothing has written to any of them since."""
        return not self._stepped and all(
            tensor._version == version and tensor.data_ptr() == address
            for tensor, version, address in self._rows
        )

    def note_step(self, parameters: Collection[int]) -> None:
        """Note that an optimizer has updated parameters, given by their ``id()``."""
        if not self._stepped:
            self._stepped = any(id(tensor) in parameters for tensor, _, _ in self._rows)


_all: weakref.WeakSet[_Constants] = weakref.WeakSet()


@functools.cache
def _watch_optimizers() -> None:
    register_optimizer_step_post_hook(_after_step)


def _after_step(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    constants = list(_all)
    if constants:
        updated = {id(one) for group in optimizer.param_groups for one in group["params"]}
        for one in constants:
            one.note_step(updated)


def while_unchanged(
    compiled: Compiled, captured: Captured, frozen: Mapping[str, torch.Tensor]
) -> Compiled:
    """Return what runs a frozen graph, and the captured graph once a parameter was written to."""
    assert captured.module is not None
    if not frozen:
        return compiled
    eager = captured.module.forward
    _watch_optimizers()
    constants = _Constants(frozen.values())
    reported: list[str] = []

    def call(*args: Any) -> Any:
        if constants.are_unchanged():
            return compiled(*args)
        if not reported:
            reported.append(CHANGED)
            trace.emit(trace.Artifact("tc_graph_runs_eagerly", CHANGED))
        return eager(*args)

    return hook.never_trace(call)
