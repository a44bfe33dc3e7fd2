"""Takes a captured graph that needs gradients and returns its forward and backward ATen graphs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx

from tc.compiler.aot.artifact import AotGraph, Constant, Fallback, Fresh, Output, SameInput
from tc.compiler.aot.inference import (
    check_record,
    falling_back,
    finish,
    first_line,
    move_writes_last,
    pick,
    record,
    returned_nodes,
    run_functional,
    start,
)
from tc.compiler.aot.observe import Observation, flat_outputs, observe
from tc.compiler.aot.partition import Partition, partition
from tc.compiler.aot.passes import run_passes, separate_outputs
from tc.compiler.aot.record import Recorder
from tc.compiler.aot.run import Runner
from tc.compiler.core.artifacts import Artifact
from tc.compiler.core.gate import Gate


@dataclass(frozen=True)
class Training(Artifact):
    """A captured graph with its gradients.

    Attributes:
        joint: forward and backward as one graph, as it was before the partition.
        forward: returns the user's outputs, and after them what is kept for backward.
        backward: from what is kept and the gradients of `differentiable` outputs to one gradient
            (or None) an input. None if no output has gradients.
        partition: what is kept and why.
        returned: how many of forward's outputs are the user's.
        differentiable: which of those have gradients.
    """

    joint: AotGraph | None
    forward: AotGraph
    backward: AotGraph | None
    partition: Partition | None
    returned: int
    differentiable: tuple[int, ...]

    def __str__(self) -> str:
        parts = [self.forward, self.partition, self.backward]
        return "\n\n".join(str(part) for part in parts if part is not None)

    def verify(self) -> None:
        """Check both graphs."""
        for part in (self.forward, self.backward):
            if part is not None:
                part.verify()


def training(gm: fx.GraphModule, examples: Sequence[Any], gate: Gate) -> Training:
    """Trace a captured graph and its gradients, and cut the result in forward and backward.

    Args:
        gm: calls of torch functions and tensor methods, returning a flat tuple or list.
        examples: fake inputs; those that require grad get gradients.
        gate: asked for each decomposition, pass and recomputation.

    Raises:
        Fallback: the result could not be proven to do what eager autograd does.
    """
    with falling_back():
        observed = _observe(gm, examples)
        diffs = tuple(
            i for i, value in enumerate(observed.results.returned)
            if isinstance(value, torch.Tensor) and value.requires_grad
        )  # fmt: skip
        if not diffs:
            with torch.no_grad():
                recorder, returned = record(gm, observed, gate)
            forward = finish("inference", gm, observed, recorder, returned, gate)
            return Training(None, forward, None, None, len(returned), ())
        recorder, returned, gradients = _record_joint(gm, observed, diffs, gate)
    return _cut(gm, observed, diffs, recorder, returned, gradients, gate)


def _observe(gm: fx.GraphModule, examples: Sequence[Any]) -> Observation:
    """Run the graph as it is, with gradients; refuse writes that gradients would notice."""
    try:
        observed = observe(gm, examples, gradients=True)
    except RuntimeError as error:
        raise Fallback(f"it fails on stand-ins of its inputs: {first_line(error)}") from error
    for i in observed.mutated:
        if observed.inputs[i].requires_grad:
            raise Fallback("an input that has gradients is written to")
    return observed


def _record_joint(
    gm: fx.GraphModule, observed: Observation, diffs: Sequence[int], gate: Gate
) -> tuple[Recorder, list[Any], list[Any]]:
    """Record forward and backward; returns the nodes of the user's outputs and of gradients."""
    recorder = start(gm, observed, gate)
    runner = Runner(gm, recorder, before=observed.runner)
    count = len(observed.inputs)
    wanting = [
        i for i, value in enumerate(observed.inputs)
        if isinstance(value, torch.Tensor) and value.requires_grad
    ]  # fmt: skip
    tangents = _tangents(recorder, observed, diffs)
    tensors_before = [
        sum(isinstance(v, torch.Tensor) for v in observed.results.returned[:i]) for i in diffs
    ]
    missing: list[bool] = []

    def program(*args: Any) -> Any:
        leaves = [
            arg.detach().requires_grad_() if i in wanting else arg
            for i, arg in enumerate(args[:count])
        ]
        picked = pick(runner, observed, flat_outputs(runner.run(*leaves)))
        outputs = [picked[i] for i in tensors_before]
        with torch.autocast("cpu", enabled=False):
            found = torch.autograd.grad(
                outputs, [leaves[i] for i in wanting], args[count:], allow_unused=True
            )
        missing.extend(gradient is None for gradient in found)
        return [*picked, *(gradient for gradient in found if gradient is not None)]

    plain = [v.detach() if i in wanting else v for i, v in enumerate(observed.inputs)]
    for i in wanting:
        recorder.know(plain[i], observed.inputs[i])
    try:
        values = run_functional(recorder, program, [*plain, *tangents], observed.writes)
    except RuntimeError as error:
        raise Fallback(f"its gradients cannot be traced: {first_line(error)}") from error
    tensors = sum(isinstance(v, torch.Tensor) for v in observed.results.returned)
    returned = returned_nodes(recorder, observed, values[:tensors])
    found = iter(values[tensors:])
    gradients: list[Any] = [None] * count
    for i, absent in zip(wanting, missing, strict=True):
        if not absent:
            gradients[i] = recorder.node_of(next(found))
    move_writes_last(recorder.graph)
    check_record(recorder.graph, observed.mutated, runner.layouts_differ)
    return recorder, returned, gradients


def _tangents(recorder: Recorder, observed: Observation, diffs: Sequence[int]) -> list[Any]:
    """Add a placeholder for the gradient of each differentiable output, laid out like it."""
    tangents = []
    for position, i in enumerate(diffs):
        value = observed.results.returned[i]
        with observed.fake_mode:
            tangent = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype)
        recorder.placeholder(f"tangent{position}", tangent)
        tangents.append(tangent)
    return tangents


def _cut(
    gm: fx.GraphModule,
    observed: Observation,
    diffs: tuple[int, ...],
    recorder: Recorder,
    returned: Sequence[Any],
    gradients: Sequence[Any],
    gate: Gate,
) -> Training:
    """Partition the joint graph and make the artifacts."""
    joint = finish("joint", gm, observed, recorder, [*returned, *gradients], gate)
    parts = partition(
        joint.module.graph, len(observed.inputs), len(returned), observed.mutated, gate
    )
    separate_outputs(parts.forward)
    forward = replace(
        joint, kind="forward", module=fx.GraphModule(dict(recorder.constants), parts.forward)
    )
    backward = _backward_graph(parts, recorder, gate)
    return Training(joint, forward, backward, parts, len(returned), diffs)


def _backward_graph(parts: Partition, recorder: Recorder, gate: Gate) -> AotGraph:
    """Return backward's artifact: gradients that are the same tensor are computed once."""
    graph = parts.backward
    inputs = graph.find_nodes(op="placeholder")
    output = graph.output_node()
    plan: list[Output] = []
    fresh: list[fx.Node] = []
    for value in output.args[0]:  # type: ignore[union-attr]
        if not isinstance(value, fx.Node):
            plan.append(Constant(value))
        elif value in inputs:
            plan.append(SameInput(inputs.index(value)))
        else:
            if value not in fresh:
                fresh.append(value)
            plan.append(Fresh(fresh.index(value)))
    output.args = (fresh,)
    run_passes(graph, gate)
    separate_outputs(graph)
    module = fx.GraphModule(dict(recorder.constants), graph)
    return AotGraph(kind="backward", module=module, outputs=tuple(plan))
