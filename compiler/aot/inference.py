"""Lowers a captured graph that needs no gradients to a functional ATen graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import fx
from torch._prims_common import is_non_overlapping_and_dense_or_false as dense

from tc.compiler.aot.artifact import (
    AotGraph,
    Fallback,
    SameInput,
    View,
    as_module,
    first_line,
    is_mutable,
)
from tc.compiler.aot.decompositions import Chosen
from tc.compiler.aot.functional import functionalised
from tc.compiler.aot.layouts import differ_in_layout_alone, layout_key
from tc.compiler.aot.observe import (
    Observation,
    ProgramRaises,
    flat_outputs,
    may_require_grad,
    observe,
)
from tc.compiler.aot.passes import run_passes
from tc.compiler.aot.record import Recorder
from tc.compiler.aot.run import PASSED_ON, RAISED, UNTRACEABLE, Runner, run_watched
from tc.compiler.core.gate import Gate
from tc.compiler.core.nodetext import short

aten = torch.ops.aten


def inference(
    gm: fx.GraphModule, examples: Sequence[Any], gate: Gate, decompositions: Chosen | None = None
) -> AotGraph:
    """Trace a captured graph to ATen ops, without mutation except trailing writes to inputs.

    Args:
        gm: calls of torch functions and tensor methods, returning a flat tuple or list.
        examples: a fake tensor, symbolic or plain number for each placeholder.
        gate: asked for each decomposition and pass.
        decompositions: used in place of the table.

    Raises:
        Fallback: the result could not be proven equivalent to the captured graph.
    """
    off = not torch.is_grad_enabled()
    with torch.no_grad(), falling_back():
        observed = _observe(gm, examples, off)
        recorder, returned = record(gm, observed, gate, decompositions)
    return finish("inference", gm, observed, recorder, returned, gate)


def _observe(gm: fx.GraphModule, examples: Sequence[Any], off: bool) -> Observation:
    """Observe a captured graph; where gradients are off, also which outputs are detached."""
    observed = observe(gm, examples, lambda value: False)
    views = [out for out in observed.results.plan if isinstance(out, View)]
    if off and any(isinstance(view.of, SameInput) for view in views):
        with suppress(ProgramRaises):  # it turns gradients on, and writes to what then has some
            return observe(gm, examples, may_require_grad)
    return observed


@contextmanager
def falling_back() -> Iterator[None]:
    """Convert errors of torch's fake tensors and functionalisation to a `Fallback`."""
    try:
        yield
    except UNTRACEABLE as error:
        raise Fallback(f"an op needs a tensor's values: {first_line(error)}") from error
    except NotImplementedError as error:
        raise Fallback(f"an op cannot run on fake tensors: {first_line(error)}") from error
    except ZeroDivisionError as error:  # torch computes means in Python, over no elements here
        raise Fallback("an op cannot run on fake tensors without elements") from error


def record(
    gm: fx.GraphModule, observed: Observation, gate: Gate, decompositions: Chosen | None = None
) -> tuple[Recorder, list[Any]]:
    """Record the functional graph; return its results as nodes and constants."""
    recorder = start(gm, observed, gate, decompositions)
    runner = Runner(gm, recorder, before=observed.runner)

    def program(args: list[Any]) -> list[Any]:
        return pick(runner, observed, flat_outputs(runner.run(*args)))

    tensors = run_functional(recorder, program, observed.inputs, observed.writes)
    check_record(recorder.graph, observed.mutated, runner.layouts_differ)
    returned = returned_nodes(recorder, observed, tensors)
    move_writes_last(recorder.graph)
    return recorder, returned


def start(
    gm: fx.GraphModule, observed: Observation, gate: Gate, decompositions: Chosen | None = None
) -> Recorder:
    """Return a recorder with placeholders for the graph's inputs."""
    recorder = Recorder(observed.fake_mode, gate, decompositions)
    for node, value in zip(gm.graph.find_nodes(op="placeholder"), observed.inputs, strict=True):
        recorder.placeholder(node.name, value)
    return recorder


def pick(runner: Runner, observed: Observation, outputs: Sequence[Any]) -> list[torch.Tensor]:
    """Return the tensors of a run that the compiled graph has to return."""
    return [
        outputs[place] if isinstance(place, int) else runner.found(place)
        for place in observed.places
    ]


def run_functional(
    recorder: Recorder,
    program: Callable[[list[Any]], list[Any]],
    inputs: list[Any],
    writes: bool,
) -> list[Any]:
    """Run a program under the recorder, functionalised if it writes."""
    if not writes:
        return list(run_watched(recorder, program, [inputs]))
    try:
        return list(run_watched(recorder, functionalised, [program, inputs]))
    except PASSED_ON:
        raise
    except RAISED as error:
        raise Fallback(
            f"its in-place operations have no functional form: {first_line(error)}"
        ) from error


def returned_nodes(
    recorder: Recorder, observed: Observation, tensors: Sequence[torch.Tensor]
) -> list[Any]:
    """Return the nodes of the compiled graph's results, in eager's layouts."""
    left = iter(tensors)
    return [
        match_layout(recorder, next(left), value)
        if isinstance(value, torch.Tensor)
        else recorder.node_of(value)
        for value in observed.results.returned
    ]


def finish(
    kind: str,
    gm: fx.GraphModule,
    observed: Observation,
    recorder: Recorder,
    returned: Sequence[Any],
    gate: Gate,
) -> AotGraph:
    """Run the passes and make the artifact."""
    graph = recorder.finish(returned)
    run_passes(graph, gate, kind)
    return AotGraph(
        kind=kind,
        module=as_module(graph, recorder.constants),
        outputs=tuple(observed.results.plan),
        mutated=observed.mutated,
        rewritten=observed.rewritten,
        eager=gm,
        autocast=autocast_devices(),
        decomposed=tuple(sorted(recorder.decomposed.items())),
    )


# Functional variants of in-place random ops; they draw in the order of a contiguous result.
DRAWN_IN_PLACE = {
    "aten.bernoulli.p",
    "aten.bernoulli.Tensor",
    "aten.cauchy",
    "aten.exponential",
    "aten.geometric",
    "aten.log_normal",
    "aten.normal_functional",
    "aten.random",
    "aten.random.from",
    "aten.random.to",
    "aten.uniform",
}


def check_record(graph: fx.Graph, mutated: tuple[int, ...], layouts_differ: bool) -> None:
    """Check a functional trace against the observed run.

    Raises:
        Fallback: it writes to other inputs or to a tensor of its own, or uses positions in memory
            whose layout has changed.
    """
    inputs = graph.find_nodes(op="placeholder")
    writes = [node for node in graph.nodes if is_mutable(node.target)]
    for node in writes:
        if node.target is not aten.copy_.default or node.args[0].op != "placeholder":
            raise Fallback("an op writes inside of another, which functionalisation does not see")
    if {inputs.index(node.args[0]) for node in writes} != set(mutated):
        raise Fallback("two traces disagree on which inputs are written to")
    for node in graph.nodes:
        if short(node.target) in DRAWN_IN_PLACE and not node.args[0].meta["val"].is_contiguous():
            raise Fallback("random numbers are drawn into memory that is not contiguous")
    for op in (aten.as_strided.default, aten.as_strided_scatter.default):
        for node in graph.find_nodes(op="call_function", target=op):
            if layouts_differ and node.args[0].op != "placeholder":
                raise Fallback(
                    "as_strided addresses memory whose layout differs from the recorded one"
                )


def match_layout(recorder: Recorder, value: torch.Tensor, wanted: torch.Tensor) -> Any:
    """Return the node of ``value``, copied into the strides of ``wanted`` if it has others.

    Functional variants of writes allocate new memory and may choose other strides than eager's.
    Those of writes through a conjugated or negated view leave the view's bit on the whole tensor.
    """
    if value.is_conj() > wanted.is_conj() or value.is_neg() > wanted.is_neg():
        with recorder.fake_mode, recorder:
            value = value if wanted.is_conj() else value.resolve_conj()
            value = value if wanted.is_neg() else value.resolve_neg()
    if layout_key(value) == layout_key(wanted):
        return recorder.node_of(value)
    if layout_key(value)[: value.dim()] != layout_key(wanted)[: wanted.dim()] or (
        differ_in_layout_alone(value, wanted) and not dense(wanted)
    ):
        raise Fallback("a tensor that is written to has a layout that a new tensor cannot have")
    if differ_in_layout_alone(value, wanted):
        order = sorted(range(wanted.dim()), key=lambda dim: -int(wanted.stride()[dim]))
        back = [order.index(dim) for dim in range(wanted.dim())]
        with recorder.fake_mode, recorder:
            dense_copy = value.permute(order).clone(memory_format=torch.contiguous_format)
            value = dense_copy.permute(back)
    node = recorder.node_of(value)
    if layout_key(value) != layout_key(wanted):
        node = with_strides(recorder, node, value, wanted)
    return node


def with_strides(
    recorder: Recorder, node: fx.Node, value: torch.Tensor, wanted: torch.Tensor
) -> fx.Node:
    """Return the node of a value whose strides differ where no element lies elsewhere.

    Those are the strides of dimensions of size one, and of tensors without elements. Code that is
    generated for an elementwise operation gives its result the strides of its node; a kernel of
    torch's gives it those of its own.
    """
    is_generated = recorder.decompositions is None and (
        node.op == "call_function" and torch.Tag.pointwise in getattr(node.target, "tags", ())
    )
    with recorder.fake_mode:
        strided = wanted.new_empty_strided(wanted.shape, wanted.stride(), dtype=value.dtype)
    if not is_generated or "restrided" in node.meta:
        with recorder.fake_mode, recorder:
            node = recorder.node_of(value.as_strided(wanted.shape, wanted.stride()))
    else:
        node.meta["val"], node.meta["restrided"] = strided, True
    return node


def move_writes_last(graph: fx.Graph) -> None:
    """Move the writes to inputs after everything else.

    Raises:
        Fallback: a node reads an input after it was written, or writes to another tensor.
    """
    writes = []
    for node in graph.nodes:
        if node.op != "call_function" or not is_mutable(node.target):
            continue
        target = node.args[0]
        plain = node.target is aten.copy_.default and target.op == "placeholder"
        if not plain or node.users:
            raise Fallback(f"a write ({node.target}) cannot be moved to the end of the graph")
        writes.append(node)
    for node in writes:
        last = next(iter(reversed(graph.nodes)))
        if node is not last:
            last.append(node)


def autocast_devices() -> tuple[str, ...]:
    """Return the device types for which autocast is on, so that casts are recorded."""
    return tuple(d for d in ("cpu", "cuda") if torch.is_autocast_enabled(d))
