"""Lowers a captured graph that needs gradients to forward and backward ATen graphs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx
from torch._prims_common import is_non_overlapping_and_dense_or_false as dense

from tc.compiler.aot.artifact import (
    AotGraph,
    Constant,
    Contract,
    Fallback,
    Fresh,
    Output,
    RerunPlan,
    SameInput,
    TrainingContract,
    as_module,
    first_line,
)
from tc.compiler.aot.decompositions import Chosen
from tc.compiler.aot.functional import functionalised
from tc.compiler.aot.inference import (
    check_record,
    falling_back,
    finish,
    move_writes_last,
    pick,
    record,
    returned_nodes,
    start,
)
from tc.compiler.aot.layouts import layout_key, wants_grad
from tc.compiler.aot.observe import Observation, flat_outputs, observe
from tc.compiler.aot.partition import Partition, partition
from tc.compiler.aot.passes import choose_gradients, run_passes, separate_outputs
from tc.compiler.aot.record import Recorder
from tc.compiler.aot.rerun_plan import devices_drawn_from, inputs_of_gradients, rerun_plan
from tc.compiler.aot.run import PASSED_ON, RAISED, Runner, run_watched
from tc.compiler.aot.saved import run_once_in_eager, saved_by_eager
from tc.compiler.aot.undefined import without
from tc.compiler.core.artifacts import Artifact
from tc.compiler.core.gate import Gate
from tc.compiler.core.memory import REPLACED

aten = torch.ops.aten
#: changes a graph in place to an equivalent one, asking the gate
Arrange = Callable[[fx.GraphModule, Gate], None]


@dataclass(frozen=True)
class Training(Artifact):
    """A captured graph with its gradients.

    Attributes:
        joint: forward and backward as one graph, with the formulas for recomputed values.
        forward: returns the user's outputs, and after them the saved values.
        backward: from the saved values and the gradients of `differentiable` outputs to a gradient
            (or None) for each input. None if no output has gradients.
        partition: the saved values and the reasons.
        returned: the number of forward's outputs that are the user's.
        differentiable: which of these have gradients.
        again: how the captured graph is run again; None if no output has gradients.
        watched: inputs and outputs that eager saves and this backward does not use.
        run_once, computed_from, strided: see `TrainingContract`.
        unconnected: inputs that require gradients and get none.
    """

    joint: AotGraph | None
    forward: AotGraph
    backward: AotGraph | None
    partition: Partition | None
    returned: int
    differentiable: tuple[int, ...]
    again: RerunPlan | None = None
    watched: tuple[tuple[str, int], ...] = ()
    computed_from: tuple[tuple[int, ...], ...] = ()
    strided: tuple[bool, ...] = ()
    unconnected: tuple[int, ...] = ()
    run_once: tuple[int, ...] = ()

    @property
    def contract(self) -> TrainingContract:
        """The calling contract if there is a backward."""
        assert self.partition is not None and self.backward is not None
        assert self.again is not None
        results: Any = self.forward.module.graph.output_node().args[0]
        made = [results[i].meta["val"] for i in self.differentiable]
        return TrainingContract(
            self.forward.contract,
            self.backward.outputs,
            tuple((where, index) for where, index in self.partition.saved_from),
            self.partition.saved_tensors,
            self.returned,
            self.differentiable,
            tuple(str(value.dtype).removeprefix("torch.") for value in made),
            tuple(str(value.device) for value in made),
            self.strided,
            self.again,
            self.watched,
            self.computed_from,
            self.unconnected,
            self.run_once,
        )

    def without(self, missing: Collection[int]) -> tuple[AotGraph, Contract]:
        """Return backward for calls where the tangents at some positions are undefined.

        See `undefined.without`. It is a copy if none is.
        """
        assert self.backward is not None
        return without(self.backward, len(self.differentiable), missing)

    def __str__(self) -> str:
        parts = [self.forward, self.partition, self.backward]
        return "\n\n".join(str(part) for part in parts if part is not None)

    def verify(self) -> None:
        """Check both graphs."""
        for part in (self.forward, self.backward):
            if part is not None:
                part.verify()


def training(
    gm: fx.GraphModule,
    examples: Sequence[Any],
    gate: Gate,
    decompositions: Chosen | None = None,
    arrange: Arrange | None = None,
) -> Training:
    """Trace a captured graph and its gradients, and partition the result.

    Args:
        gm: calls of torch functions and tensor methods, returning a flat tuple or list.
        examples: fake inputs; those that require grad get gradients.
        gate: asked for each decomposition, pass and recomputation.
        decompositions: used in place of the table.
        arrange: changes the joint graph to an equivalent one before the partition.

    Raises:
        Fallback: the result could not be proven equivalent to eager autograd.
    """
    with falling_back():
        observed = observe(gm, examples, wants_grad)
        diffs = tuple(
            i for i, value in enumerate(observed.results.returned)
            if wants_grad(value)
        )  # fmt: skip
        if not diffs:
            with torch.no_grad():
                recorder, returned = record(gm, observed, gate, decompositions)
            forward = finish("inference", gm, observed, recorder, returned, gate)
            return Training(None, forward, None, None, len(returned), ())
        joint = Joint(gm, observed, diffs, start(gm, observed, gate, decompositions))
        recorder, returned, gradients = joint.record()
    sources = _computed_from(recorder.graph, gradients, len(observed.inputs))
    nodes = [*returned, *gradients]
    graph = finish("joint", gm, observed, recorder, nodes, gate)
    if arrange is not None:
        arrange(graph.module, gate)
    made = _cut(graph, observed, diffs, recorder, len(returned), gate)
    strided = tuple(takes_strides(observed.results.returned[i]) for i in diffs)
    return replace(made, computed_from=sources, strided=strided)


def _computed_from(
    graph: fx.Graph, gradients: Sequence[Any], inputs: int
) -> tuple[tuple[int, ...], ...]:
    """Return for each gradient the tangents (placeholders after the inputs) that lead to it."""
    found: dict[fx.Node, frozenset[int]] = {}
    tangents = {
        node: i for i, node in enumerate(graph.find_nodes(op="placeholder")[inputs:])
    }  # fmt: skip
    for node in graph.nodes:
        own = frozenset([tangents[node]]) if node in tangents else frozenset()
        found[node] = own.union(*(found[one] for one in node.all_input_nodes))
    return tuple(tuple(sorted(found[one])) if isinstance(one, fx.Node) else () for one in gradients)


class Joint:
    """One recording of forward and backward."""

    def __init__(
        self, gm: fx.GraphModule, observed: Observation, diffs: Sequence[int], recorder: Recorder
    ) -> None:
        self.observed = observed
        self.recorder = recorder
        self.runner = Runner(gm, recorder, before=observed.runner)
        self.rewritten = {i for i, _ in observed.rewritten}
        self.tangents = _tangents(recorder, observed, diffs)
        tensors = [value for value in observed.results.returned if isinstance(value, torch.Tensor)]
        self.differentiable = [i for i, value in enumerate(tensors) if value.requires_grad]
        self.tensors = len(tensors)

    def record(self) -> tuple[Recorder, list[Any], list[Any]]:
        """Run forward and backward and return their results as nodes.

        Always functionalised, as autograd's formulas write to temporaries.
        """
        recorder, observed = self.recorder, self.observed
        inputs = [*observed.inputs, *self.tangents]
        try:
            results = run_watched(recorder, functionalised, [self._forward_backward, inputs])
        except PASSED_ON:
            raise
        except RAISED as error:
            raise Fallback(f"its gradients cannot be traced: {first_line(error)}") from error
        check_record(recorder.graph, observed.mutated, self.runner.layouts_differ)
        returned = returned_nodes(recorder, observed, results[: self.tensors])
        nodes: list[Any] = [None] * len(observed.inputs)
        for i, gradient in zip(observed.wanting, results[self.tensors :], strict=True):
            nodes[i] = recorder.node_of(gradient)
        move_writes_last(recorder.graph)
        return recorder, returned, nodes

    def _forward_backward(self, args: Sequence[Any]) -> list[Any]:
        """Return forward's results, and a gradient or None for each input that requires one."""
        count, wanting = len(self.observed.inputs), self.observed.wanting
        leaves = [
            value.detach().requires_grad_() if i in wanting else value
            for i, value in enumerate(args[:count])
        ]
        own = [leaf.clone() if i in self.rewritten else leaf for i, leaf in enumerate(leaves)]
        picked = pick(self.runner, self.observed, flat_outputs(self.runner.run(*own)))
        with torch.autocast("cpu", enabled=False):
            found = torch.autograd.grad(
                [picked[i] for i in self.differentiable],
                [leaves[i] for i in wanting],
                args[count:],
                allow_unused=True,
            )
        return [*picked, *found]


def takes_strides(output: torch.Tensor) -> bool:
    """Return whether an output's gradient is laid out like it: not if its memory has gaps.

    Such a gradient is contiguous.
    """
    return bool(dense(output))


def _tangents(recorder: Recorder, observed: Observation, diffs: Sequence[int]) -> list[Any]:
    """Add a placeholder for the gradient of each differentiable output."""
    tangents = []
    for position, i in enumerate(diffs):
        value = observed.results.returned[i]
        with observed.fake_mode:
            kind: dict[str, Any] = {"dtype": value.dtype, "device": value.device}
            tangent = (
                torch.empty_strided(value.shape, value.stride(), **kind)
                if takes_strides(value)
                else torch.empty(value.shape, **kind)
            )
        recorder.placeholder(f"tangent{position}", tangent, defines_sizes=False)
        tangents.append(tangent)
    return tangents


def _cut(
    joint: AotGraph,
    observed: Observation,
    diffs: tuple[int, ...],
    recorder: Recorder,
    returned: int,
    gate: Gate,
) -> Training:
    """Partition the joint graph and make the artifacts."""
    placeholders = observed.captured.graph.find_nodes(op="placeholder")
    replaced = [i for i, node in enumerate(placeholders) if node.meta.get(REPLACED)]
    written = (*joint.contract.written, *replaced)  # backward finds other values there
    graph = joint.module.graph
    choose_gradients(graph)
    needed = inputs_of_gradients(graph, len(observed.inputs), returned)
    draws = devices_drawn_from(graph)
    with gate.watching("aot.partition", graph, "joint"):  # it adds formulas to the joint graph
        parts = partition(graph, len(observed.inputs), returned, written, gate)
    again = rerun_plan(observed, diffs, parts, written, needed, draws)
    with gate.watching("aot.separate_outputs", parts.forward, "forward"):
        separate_outputs(parts.forward, saved_from=returned)
    _take_as_made(parts)
    forward = replace(joint, kind="forward", module=as_module(parts.forward, recorder.constants))
    backward = _backward_graph(parts, recorder, gate)
    watched = saved_by_eager(observed, parts.saved_from)
    none = tuple(i for i in observed.wanting if isinstance(backward.outputs[i], Constant))
    # what depends on no input would be no differentiable output any more
    apart = none if len(none) < len(observed.wanting) else ()
    once = () if parts.saved_tensors else run_once_in_eager(observed, diffs)
    return Training(
        joint, forward, backward, parts, returned, diffs, again, watched,
        unconnected=apart, run_once=once,
    )  # fmt: skip


def _take_as_made(parts: Partition) -> None:
    """Give backward's inputs the layouts in which forward returns them.

    Raises:
        Fallback: a layout differs from the traced one, and backward uses positions in memory.
    """
    made = parts.forward.output_node().args[0]
    kept = parts.backward.find_nodes(op="placeholder")
    for node, (where, index) in zip(kept, parts.saved_from, strict=False):
        value = made[index].meta["val"] if where == "output" else None  # type: ignore[index, union-attr]
        if isinstance(value, torch.Tensor) and layout_key(value) != layout_key(node.meta["val"]):
            if parts.backward.find_nodes(op="call_function", target=aten.as_strided.default):
                raise Fallback(
                    "backward addresses memory whose layout differs from the recorded one"
                )
            node.meta["val"] = value


def _backward_graph(parts: Partition, recorder: Recorder, gate: Gate) -> AotGraph:
    """Return backward's artifact, in which gradients that are the same tensor are computed once."""
    graph = parts.backward
    inputs = {node: i for i, node in enumerate(graph.find_nodes(op="placeholder"))}
    output = graph.output_node()
    plan: list[Output] = []
    fresh: dict[fx.Node, int] = {}
    for value in output.args[0]:  # type: ignore[union-attr]
        if not isinstance(value, fx.Node):
            plan.append(Constant(value))
        elif value in inputs:
            plan.append(SameInput(inputs[value]))
        else:
            plan.append(Fresh(fresh.setdefault(value, len(fresh))))
    output.args = (list(fresh),)
    run_passes(graph, gate, "backward")
    module = as_module(graph, recorder.constants)
    return AotGraph(kind="backward", module=module, outputs=tuple(plan))
