"""Takes a captured graph that needs no gradients and returns its functional ATen graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx
from torch._prims_common import is_non_overlapping_and_dense_or_false as dense
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    UnsupportedOperatorException,
)
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from tc.compiler.aot.alias import Outputs, analyse_outputs, check_inputs, layout_of
from tc.compiler.aot.artifact import AotGraph, Fallback, is_mutable
from tc.compiler.aot.passes import layout_key, run_passes, separate_outputs
from tc.compiler.aot.record import Made, OriginInterpreter, Recorder, run_recorded, storage_key
from tc.compiler.core.gate import Gate

aten = torch.ops.aten

UNTRACEABLE = (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedOperatorException,
    GuardOnDataDependentSymNode,
)

# Methods whose effect is not an op on memory; what they do cannot be read off the trace.
OPAQUE_METHODS = {
    "requires_grad_",
    "retain_grad",
    "backward",
    "register_hook",
    "set_",
    "resize_",
    "resize_as_",
    "share_memory_",
    "untyped_storage",
    "storage",
}


def inference(gm: fx.GraphModule, examples: Sequence[Any], gate: Gate) -> AotGraph:
    """Trace a captured graph to ATen ops, without mutation but for trailing writes to inputs.

    Args:
        gm: calls of torch functions and tensor methods, returning a flat tuple or list.
        examples: a fake tensor, symbolic or plain number for each placeholder.
        gate: asked for each decomposition and pass.

    Raises:
        Fallback: the result could not be proven to do what the captured graph does.
    """
    refuse_opaque(gm)
    with torch.no_grad():
        try:
            return _trace(gm, examples, gate)
        except UNTRACEABLE as error:
            raise Fallback(f"an op needs a tensor's values: {first_line(error)}") from error


def _trace(gm: fx.GraphModule, examples: Sequence[Any], gate: Gate) -> AotGraph:
    fake_mode = fake_mode_of(examples)
    inputs = as_inputs(examples, fake_mode)
    before = [layout_of(value) for value in inputs]
    recorder, interpreter = start(gm, inputs, fake_mode, gate)
    outputs = flat_outputs(run_recorded(recorder, interpreter.run, inputs))
    mutated = check_inputs(inputs, before, recorder.written)
    results = analyse_outputs(outputs, inputs, interpreter.made)
    if recorder.mutable_ops:
        made = interpreter.made
        _refuse_written_constants(recorder)
        recorder, returned = _trace_functional(gm, inputs, outputs, results, made, fake_mode, gate)
        _check_writes(recorder.graph, mutated)
    else:
        returned = [recorder.node_of(value) for value in results.returned]
    module = recorder.module(returned)
    run_passes(module.graph, gate)
    separate_outputs(module.graph)
    module.recompile()
    return AotGraph(
        kind="inference",
        module=module,
        outputs=tuple(results.plan),
        mutated=mutated,
        eager=gm,
        autocast=autocast_devices(),
        decomposed=tuple(sorted(recorder.decomposed.items())),
    )


def _trace_functional(
    gm: fx.GraphModule,
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    results: Outputs,
    made: dict[int, Made],
    fake_mode: FakeTensorMode,
    gate: Gate,
) -> tuple[Recorder, list[Any]]:
    """Trace again below torch's functionalisation, which writes to inputs only at the end."""
    places = _places(results, outputs, made)
    recorder, interpreter = start(gm, inputs, fake_mode, gate)

    def program(*args: Any) -> Any:
        again = flat_outputs(interpreter.run(*args))
        return [
            again[place] if isinstance(place, int) else interpreter.found(place) for place in places
        ]

    function = torch.func.functionalize(program)
    tensors = iter(run_recorded(recorder, function, inputs))
    returned = [
        match_layout(recorder, next(tensors), value)
        if isinstance(value, torch.Tensor)
        else recorder.node_of(value)
        for value in results.returned
    ]
    move_writes_last(recorder.graph)
    return recorder, returned


def _refuse_written_constants(recorder: Recorder) -> None:
    """Refuse to write to tensors the captured graph holds."""
    for node in recorder.graph.find_nodes(op="get_attr"):
        if storage_key(node.meta["val"]) in recorder.written:
            raise Fallback("it writes to a tensor that the graph holds as a constant")


def _check_writes(graph: fx.Graph, mutated: tuple[int, ...]) -> None:
    """Check that the functional trace writes to the inputs that the first run wrote to."""
    inputs = graph.find_nodes(op="placeholder")
    writes = graph.find_nodes(op="call_function", target=aten.copy_.default)
    if {inputs.index(node.args[0]) for node in writes} != set(mutated):
        raise Fallback("two traces disagree on which inputs are written to")


def _places(results: Outputs, outputs: Sequence[Any], made: dict[int, Made]) -> list[int | Made]:
    """Say where another run finds the tensors that the compiled graph returns.

    Those are outputs, or values inside the captured graph that outputs are views of.
    """
    places: list[int | Made] = []
    for value in results.returned:
        if isinstance(value, torch.Tensor):
            at = next((i for i, out in enumerate(outputs) if out is value), None)
            places.append(made[storage_key(value)] if at is None else at)
    return places


def match_layout(recorder: Recorder, value: torch.Tensor, wanted: torch.Tensor) -> Any:
    """Return the node of ``value``, copied into the strides of ``wanted`` if it has others.

    Functional forms of writes allocate anew and may choose other strides than eager had.
    """
    if layout_key(value) != layout_key(wanted):
        if (
            not dense(wanted)
            or layout_key(value)[: value.dim()] != layout_key(wanted)[: wanted.dim()]
        ):
            raise Fallback("a tensor written to has a layout that a fresh one cannot have")
        order = sorted(range(wanted.dim()), key=lambda dim: -int(wanted.stride()[dim]))
        back = [order.index(dim) for dim in range(wanted.dim())]
        with recorder.fake_mode, recorder:
            dense_copy = value.permute(order).clone(memory_format=torch.contiguous_format)
            value = dense_copy.permute(back)
    return recorder.node_of(value)


def move_writes_last(graph: fx.Graph) -> None:
    """Put the writes to inputs after everything else.

    Raises:
        Fallback: something reads an input after it was written, or writes to anything else.
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
    last = next(reversed(graph.nodes))
    for node in writes:
        if node is not last:
            last.append(node)
        last = node


def start(
    gm: fx.GraphModule, inputs: Sequence[Any], fake_mode: FakeTensorMode, gate: Gate
) -> tuple[Recorder, OriginInterpreter]:
    """Return a recorder that knows the inputs, and an interpreter that reports to it."""
    recorder = Recorder(fake_mode, gate)
    names = [node.name for node in gm.graph.find_nodes(op="placeholder")]
    for name, value in zip(names, inputs, strict=True):
        recorder.placeholder(name, value)
    return recorder, OriginInterpreter(gm, recorder)


def fake_mode_of(examples: Sequence[Any]) -> FakeTensorMode:
    """Return the mode of the example inputs; a new one if no tensor is among them."""
    for value in examples:
        if isinstance(value, FakeTensor):
            return value.fake_mode
    return FakeTensorMode()


def as_inputs(examples: Sequence[Any], fake_mode: FakeTensorMode) -> list[Any]:
    """Return stand-ins for the inputs that may be written to: same memory, no gradients.

    Raises:
        Fallback: an input is of a tensor subclass.
    """
    inputs: list[Any] = []
    stand_ins: dict[int, torch.Tensor] = {}
    with fake_mode:
        for value in examples:
            if isinstance(value, torch.Tensor):
                if not isinstance(value, FakeTensor):
                    raise Fallback(f"an input is a {type(value).__name__}, not a plain tensor")
                inputs.append(stand_ins.setdefault(id(value), value.detach()))
            else:
                inputs.append(value)
    return inputs


def flat_outputs(result: Any) -> list[Any]:
    """Return a graph's outputs as a flat list.

    Raises:
        Fallback: they are nested.
    """
    outputs = list(result) if isinstance(result, (list, tuple)) else [result]
    if any(isinstance(value, (list, tuple, dict)) for value in outputs):
        raise Fallback("its outputs are nested")
    return outputs


def refuse_opaque(gm: fx.GraphModule) -> None:
    """Refuse graphs with calls whose effect the trace does not show.

    Raises:
        Fallback: there is such a call.
    """
    for node in gm.graph.nodes:
        if node.op == "call_method" and node.target in OPAQUE_METHODS:
            raise Fallback(f"it calls .{node.target}()")


def autocast_devices() -> tuple[str, ...]:
    """Return the device types for which autocast is on now, so that its casts are recorded."""
    return tuple(d for d in ("cpu", "cuda") if torch.is_autocast_enabled(d))


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or its type if it has none."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
