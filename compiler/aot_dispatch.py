"""From a captured graph to functional ATen graphs: gradients, writes and aliases are seen to here.

In: a captured graph and functions that compile functional graphs. Out: a callable that does what
the captured graph does, gradients included. The pipeline and backends of users come through here.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd.grad_mode import _enter_inference_mode
from torch.fx._lazy_graph_module import _LazyGraphModule

from tc import trace
from tc.compiler import aot
from tc.compiler.aot import wants_grad
from tc.compiler.cache.graph_cache import PART, GraphCache, Part, Trained
from tc.compiler.capture.parts.output_graph import WANTS_GRAD
from tc.compiler.capture.torch_api import annotated
from tc.compiler.capture.torch_api.gradients import DIFFERENTIATED
from tc.compiler.capture.torch_api.lazy_modules import LEAF
from tc.compiler.capture.torch_api.torch_functions import CHANGES_STATE
from tc.compiler.capture.values.hooks import HOOKED, REGISTERING
from tc.compiler.capture.values.records import RESIZES
from tc.compiler.capture.values.subclasses import FAKED
from tc.compiler.core import levels
from tc.compiler.core.fakes import fake_mode_of
from tc.compiler.core.gate import Gate
from tc.compiler.core.graphtext import PLACE, emit_captured
from tc.compiler.core.memory import REPLACED
from tc.compiler.core.notes import noted_events, noting
from tc.compiler.core.origins import line_of
from tc.compiler.deferred import Deferred, Work, warn_of_no_compiler
from tc.compiler.errors import NoCompilerError

if TYPE_CHECKING:
    from tc.compiler.aot.training import Training

Compiled = Callable[..., Any]
#: runs a graph: takes a list of inputs, which it may empty
Boxed = Callable[[list[Any]], tuple[Any, ...]]
NOWHERE = trace.StackFrame("<unknown>", 0, "a graph")
#: marks of graphs that only eager torch runs right
EAGER_MARKS = {
    DIFFERENTIATED: "a gradient is asked of a tensor inside: eager autograd knows it",
    HOOKED: "a tensor inside has a hook: eager autograd calls it",
    LEAF: "a parameter is created inside the graph",
    CHANGES_STATE: "it changes a global state of torch that later operations depend on",
    REPLACED: "the data of a tensor that autograd saves is replaced",
    RESIZES: "a storage is resized",
    FAKED: "an input is a fake tensor, which has no memory for kernels",
}


@dataclass(frozen=True)
class Compilers:
    """What compiles the graphs that a captured graph becomes.

    Attributes:
        forward: graph of ATen operations -> what runs it; may change the graph.
        stage: name of the stage for the trace.
        standalone: pass graphs without writes, and with results that share no memory.
        cache: entries on disk for captured graphs without gradients.
        joint: rearranges forward and backward as one graph, before it is cut.
        draws_as_eager: whether random numbers are those that eager would draw.
    """

    forward: Callable[[fx.GraphModule], Boxed]
    backward: Callable[[fx.GraphModule], Boxed]
    inference: Callable[[fx.GraphModule], Boxed]
    stage: str = "aot_backend"
    standalone: bool = True
    cache: GraphCache | None = None
    joint: Callable[[fx.GraphModule, Gate], None] | None = None
    draws_as_eager: bool = True


def compile_graph(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    compilers: Compilers,
    gate: Gate,
    decompositions: Mapping[Any, Callable[..., Any]] | None = None,
) -> Compiled:
    """Compile a captured graph, for gradients where its inputs ask for them.

    Args:
        gm: torch-level graph; placeholders may carry fakes in ``meta["example_value"]``.
        example_inputs: used where a placeholder carries none.
        gate: asked before every optional step.
        decompositions: used in place of the compiler's own.

    Returns:
        A function of the graph's inputs that returns its outputs. Where a graph cannot be compiled
        with certainty (mutation of overlapping inputs), or without a C compiler, it runs eagerly,
        and the trace says so.
    """
    examples = graph_examples(gm, example_inputs)
    if (why := _kept_eager(gm, examples)) is not None:
        emit_captured(gm)
        return run_eagerly(gm, why, _hook_line(gm))
    trains = torch.is_grad_enabled() and any(map(wants_grad, examples))
    compiled = _training if trains else _inference
    with trace.stage(compilers.stage):
        try:
            found = _found(gm, examples, compilers, trains, gate, decompositions)
            captured = emit_captured(gm)
            if found is not None:
                return found
            return compiled(gm, examples, compilers, gate, decompositions, captured)
        except aot.Fallback as fallback:
            return run_eagerly(gm, str(fallback), fallback.line)
        except NoCompilerError as error:
            emit_captured(gm)
            warn_of_no_compiler(str(error))
            return run_eagerly(gm, str(error))


def _found(
    gm: fx.GraphModule, examples: list[Any], compilers: Compilers, trains: bool, gate: Gate,
    decompositions: Any,
) -> Compiled | None:  # fmt: skip
    """Return what runs a graph, from its entries on disk if there are any."""
    cache = compilers.cache
    if cache is None or not trains:
        return None if cache is None else cache.find(gm, examples)
    found = cache.find_training(gm, examples)
    if found is None:
        return None
    operations = found.operations

    def by_operations(args: list[Any]) -> tuple[Any, ...]:
        return aot.one_by_one(operations())(args)

    autocast = levels.Autocast.now()

    def backward_of(missing: tuple[int, ...]) -> tuple[aot.Contract | None, Boxed]:
        kept = found.backward(missing)
        if kept is not None:
            return kept
        with autocast.again():
            parts = _cut_again(found, gm, examples, compilers, gate, decompositions)
            if parts is None:
                return None, by_operations
            return _backward(parts, missing, compilers, by_operations)

    annotated.allow(by_operations)
    backward = BackwardPrograms(backward_of, by_operations, gm.meta.get(PLACE, NOWHERE))
    return aot.wrap_training_contract(
        found.contract, gm, found.forward, backward.whole, by_operations,
        compilers.draws_as_eager, backward.partial,
    )  # fmt: skip


class BackwardPrograms:
    """Backward's programs, each compiled when it is first needed.

    Args:
        build: from positions of tangents that are undefined, its contract and what runs it; the
            contract is None where it takes all tangents anyway.
        by_operations: runs backward with all tangents, by calls of torch.
        place: of the user's function that it is for.

    Attributes:
        whole: runs backward if all outputs have gradients.
    """

    #: so many patterns of undefined tangents are compiled for
    MOST = 8

    def __init__(
        self,
        build: Callable[[tuple[int, ...]], tuple[aot.Contract | None, Boxed]],
        by_operations: Boxed,
        place: trace.StackFrame,
    ) -> None:
        self._build, self._place = build, place
        self.whole = Deferred(Work(lambda: build(())[1], by_operations, place))
        self._partial: dict[tuple[int, ...], tuple[Deferred, list[aot.Contract | None]]] = {}

    def partial(
        self, missing: tuple[int, ...]
    ) -> tuple[aot.Contract, Callable[[list[Any]], Sequence[Any]]] | None:
        """Return what runs backward without some tangents; None: it is not compiled.

        Raises:
            StageError: it cannot be compiled.
        """
        if missing not in self._partial:
            if len(self._partial) >= self.MOST:
                return None
            contracts: list[aot.Contract | None] = []

            def build() -> Boxed:
                contract, run = self._build(missing)
                contracts.append(contract)
                return run

            work = Work(build, _not_compiled, self._place)
            self._partial.setdefault(missing, (Deferred(work, beside=self.whole), contracts))
        deferred, contracts = self._partial[missing]
        deferred.compile()
        if not contracts or contracts[0] is None:
            return None
        return contracts[0], aot.wrap_backward(contracts[0].outputs, deferred)


def _not_compiled(args: list[Any]) -> tuple[Any, ...]:
    raise NotImplementedError


@torch.enable_grad()
@levels.own_tensors()
def _cut_again(
    found: Trained, gm: fx.GraphModule, examples: list[Any], compilers: Compilers, gate: Gate,
    decompositions: Any,
) -> Training | None:  # fmt: skip
    """Cut a graph whose forward was found on disk, and whose backward is not there.

    Whoever compiled forward has not run backward, or was killed before. None: the graph is cut in
    another way now.
    """
    parts = _cut(gm, examples, compilers, gate, decompositions)
    if parts.backward is None or compilers.cache is None:
        return None
    events = _aten("backward", parts.backward)
    trace.emit_all(events)
    module = parts.backward.module
    return parts if compilers.cache.cut_again(found, gm, parts.contract, module, events) else None


def _inference(
    gm: fx.GraphModule, examples: list[Any], compilers: Compilers, gate: Gate, decompositions: Any,
    captured: tuple[trace.Event, ...],
) -> Compiled:  # fmt: skip
    """Compile a graph of which no gradients are wanted."""
    from tc.compiler.aot.inference import inference  # a graph found on disk needs none of it

    notes = noting()
    with trace.stage("aot"):
        functional = inference(gm, examples, gate.noted(notes), decompositions)
    events = _aten("inference", functional)
    trace.emit_all(events)
    events += noted_events(notes, "aot", "inference")
    run = _compiled(functional.module, compilers.inference, compilers)
    if compilers.cache is not None:
        compilers.cache.keep(gm, functional.contract, (*captured, *events))
    return aot.wrap(functional, run)


def _training(
    gm: fx.GraphModule, examples: list[Any], compilers: Compilers, gate: Gate, decompositions: Any,
    captured: tuple[trace.Event, ...],
) -> Compiled:  # fmt: skip
    """Compile forward and backward of a graph, cut where saving is cheapest."""
    notes = noting()
    parts = _cut(gm, examples, compilers, gate.noted(notes), decompositions)
    events = _cut_events(parts)
    events += noted_events(notes, "aot", "joint")
    if parts.backward is None:
        forward = _compiled(parts.forward.module, compilers.inference, compilers)
        return aot.wrap_training(parts, forward, None)
    later = _aten("backward", parts.backward)
    if compilers.cache is not None:
        events_of = {"forward": (*captured, *events), "backward": later}
        compilers.cache.cut(gm, parts.contract, parts.backward.module, events_of)
    forward = _compiled(parts.forward.module, compilers.forward, compilers)
    trace.emit_all(later)
    by_operations = aot.one_by_one(parts.backward.module)
    build = functools.partial(_backward, parts, compilers=compilers, by_operations=by_operations)
    annotated.allow(by_operations)  # compiled autograd captures what backward does
    backward = BackwardPrograms(build, by_operations, gm.meta.get(PLACE, NOWHERE))
    return aot.wrap_training(
        parts, forward, backward.whole, by_operations, compilers.draws_as_eager, backward.partial
    )


def _cut(
    gm: fx.GraphModule, examples: list[Any], compilers: Compilers, gate: Gate, decompositions: Any
) -> Training:
    """Record forward and gradients of a graph, and cut them apart where saving is cheapest."""
    from tc.compiler.aot.training import training  # a graph found on disk needs none of it

    with trace.stage("aot"):
        return training(gm, examples, gate, decompositions, compilers.joint)


@trace.reports(list)
def _aten(kind: str, graph: object) -> list[trace.Event]:
    """Return the event of a graph of ATen operations, where anyone listens."""
    return [trace.AtenGraph(kind, str(graph))] if trace.enabled() else []


@trace.reports(list)
def _cut_events(parts: Training) -> list[trace.Event]:
    """Report how a joint graph was cut, and return the events."""
    events: list[trace.Event] = []
    if trace.enabled() and parts.joint is not None and parts.partition is not None:
        events = [*_aten("joint", parts.joint), trace.Partition(parts.partition.facts())]
    events += _aten("forward", parts.forward)
    trace.emit_all(events)
    return events


def _backward(
    parts: Training, missing: tuple[int, ...], compilers: Compilers, by_operations: Boxed
) -> tuple[aot.Contract | None, Boxed]:
    """Compile backward without some tangents, and return its contract and what runs it."""
    graph, contract = parts.without(missing)
    if compilers.standalone or any(device != "cpu" for device in parts.contract.devices):
        contract = graph.contract  # others' programs, and CUDA graphs, take tensors for all inputs
    if missing:
        events = tuple(_aten("backward", graph))
        trace.emit_all(events)
        graph.module.meta[PART] = Part(missing, contract, events)
        by_operations = aot.one_by_one(graph.module)
    with trace.stage(compilers.stage):
        try:
            run = _compiled(graph.module, compilers.backward, compilers)
        except aot.Fallback as fallback:
            trace.emit(trace.Artifact("tc_graph_runs_eagerly", str(fallback)))
            run = by_operations
    return contract if missing else None, run


def _compiled(
    module: fx.GraphModule, compiler: Callable[[fx.GraphModule], Boxed], compilers: Compilers
) -> Boxed:
    if not compilers.standalone:
        return compiler(module)
    from tc.compiler.aot.standalone import standalone, writing

    module, written = standalone(module)
    return writing(compiler(module), written)


# -- what is compiled, and what is not -------------------------------------------------------
def _as_given(node: fx.Node) -> Any:
    """Return the fake input of a placeholder, without gradients that only a write gave it."""
    example = node.meta["example_value"]
    unasked = wants_grad(example) and not node.meta.get(WANTS_GRAD, True)
    return example.detach() if unasked else example


def graph_examples(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> list[Any]:
    """Return fake inputs of a graph, from its placeholders where they carry them."""
    nodes = [node for node in gm.graph.nodes if node.op == "placeholder"]
    if all("example_value" in node.meta for node in nodes):
        return [_as_given(node) for node in nodes]
    mode = fake_mode_of(example_inputs)
    return [
        mode.from_tensor(value, static_shapes=True)
        if isinstance(value, torch.Tensor) and not isinstance(value, FakeTensor)
        else value
        for value in example_inputs
    ]


def _kept_eager(gm: fx.GraphModule, examples: Sequence[Any]) -> str | None:
    """Return why a graph has to run operation by operation, or None."""
    marked = next((why for mark, why in EAGER_MARKS.items() if gm.meta.get(mark)), None)
    if marked is not None:
        return marked
    if torch.is_grad_enabled():
        held = any(wants_grad(value) for value in _constants(gm))
        return "it holds a parameter that is not an input" if held else None
    if any(map(wants_grad, examples)) and _enables_grad(gm):
        return "gradients are enabled inside the graph: eager autograd computes them"
    return None


def _hook_line(gm: fx.GraphModule) -> str:
    """Return the user's line that registers a hook inside of a graph; empty if there is none."""
    nodes = (one for one in gm.graph.nodes if one.op == "call_method")
    return next((line_of(one) for one in nodes if one.target in REGISTERING), "")


def _constants(gm: fx.GraphModule) -> list[Any]:
    """Return what a graph reads of its own attributes and of modules it calls."""
    found: list[Any] = []
    for node in gm.graph.nodes:
        if node.op == "get_attr":
            path, _, name = node.target.rpartition(".")
            found.append(getattr(gm.get_submodule(path), name))
        elif node.op == "call_module":
            found += gm.get_submodule(node.target).parameters()
    return found


def _enables_grad(gm: fx.GraphModule) -> bool:
    return any(
        (node.target is torch._C._set_grad_enabled and node.args[0])
        or (node.target is _enter_inference_mode and not node.args[0])
        for node in gm.graph.nodes
    )


def run_eagerly(gm: fx.GraphModule, why: str, line: str = "") -> Compiled:
    """Return what runs a captured graph operation by operation, and report the reason.

    Args:
        line: the user's line that the reason is about, ``file:line``; on the event's second line.
    """
    trace.emit(trace.Artifact("tc_graph_runs_eagerly", f"{why}\n{line}" if line else why))
    _LazyGraphModule.force_recompile(gm)
    return gm.forward
