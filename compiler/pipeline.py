"""The pipeline: the way of a graph from capture to code, named passes in order, one a line.

In: a captured graph. Out: a callable that computes it, or, where a compile stops early, one that
runs the artifact of the last stage by a reference interpreter (`replay`). The default backend, the
bisector and the minifier all come through here, with whatever options the user gave; with `frames`
this is the only module that knows more than one stage.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from tc import trace
from tc.compiler.aot import CALLED, Fallback
from tc.compiler.aot_dispatch import Compilers, compile_graph
from tc.compiler.cache.graph_cache import GraphCache, run
from tc.compiler.capture import hook
from tc.compiler.core import levels
from tc.compiler.core.artifacts import Program
from tc.compiler.core.gate import Gate
from tc.compiler.core.notes import Notes, noted_events, noting
from tc.compiler.devices.gpus import GraphSplit, gpu_of, in_turn, report_limits, split
from tc.compiler.options import InductorOptions, config
from tc.compiler.process import PROCESS
from tc.compiler.runtime.store import caches_disabled
from tc.compiler.runtime.triton import open_kernels
from tc.compiler.runtime.tuned import gpu_tuner, tuner
from tc.compiler.telemetry.reporter import emit_plan

if TYPE_CHECKING:
    from tc.compiler.codegen.triton import Tuning
    from tc.compiler.core.tune import Tuner
    from tc.compiler.loops.ir import LoopGraph
    from tc.compiler.schedule.plan import Plan
    from tc.compiler.telemetry.debug_folder import DebugFolder

Compiled = Callable[..., Any]
#: runs a graph: takes a list of inputs, which it may empty
Boxed = Callable[[list[Any]], tuple[Any, ...]]

#: the stages after which a compile can stop -> what runs the rest in place of the compiler
STAGES = {
    "capture": "the captured graph, run eagerly",
    "aot": "the ATen graph, interpreted op by op",
    "loops": "the loop IR, by the reference interpreter",
    "schedule": "the plan, its kernels by the reference interpreter",
    "kernels": "the plan, each kernel compiled and called by itself",
    "program": "the finished program",
}


@dataclass(frozen=True, eq=False)
class Inductor:
    """The default backend, or, with `stop_after`, as much of it as a tool wants to look at.

    Attributes:
        stop_after: the last stage that is used, a key of `STAGES`; or ``checked``: as ``kernels``,
            and each kernel is compared with its interpretation at each call (`KernelDiffers`).
        gate: asked before every optional step; None asks the gate of the process. At stage
            ``kernels`` it is also asked ``kernel.<name>`` for each: one refused is interpreted.
    """

    stop_after: str = "program"
    gate: Gate | None = None
    __name__ = "inductor"

    def __reduce__(self) -> str | tuple[Any, ...]:
        """Keep the default backend one object: copies of a compiled module share its code."""
        return "inductor" if self is inductor else (Inductor, (self.stop_after, self.gate))

    @levels.own_tensors()
    def __call__(
        self,
        gm: fx.GraphModule,
        example_inputs: Sequence[Any],
        gate: Gate | None = None,
        options: InductorOptions = InductorOptions(),  # noqa: B008 - frozen
        frozen: Mapping[str, torch.Tensor] | None = None,
    ) -> Compiled:
        """Compile a captured graph.

        Args:
            gm: torch-level graph; placeholders may carry fakes in ``meta["example_value"]``.
            example_inputs: used where a placeholder carries none.
            gate: asked where the backend has no gate of its own.
            options: what the user asked of this backend.
            frozen: inputs that are constants, by the names of their placeholders.

        Returns:
            A function of the graph's inputs that returns its outputs; see `compile_graph`.
        """
        if self.stop_after == "capture":
            return gm.forward
        gate = self.gate or gate or Gate.from_environment()
        options = replace(
            options,
            cpp_threads=options.cpp_threads or config.threads or torch.get_num_threads(),
            fallback_random=options.fallback_random and config.fallback_random,
        )
        cache = _cache(gate, options) if self.stop_after == "program" else None
        request = Request(gate, options, frozen or {}, self.stop_after)
        kernels = functools.partial(_aten_graph, request=request, cache=cache)
        whole = self.stop_after != "aot"
        compilers = Compilers(
            forward=functools.partial(kernels, kind="forward"),
            backward=functools.partial(kernels, kind="backward"),
            inference=functools.partial(kernels, kind="inference"),
            stage="inductor_compile",
            standalone=not whole,
            cache=cache,
            joint=functools.partial(_joint, options=options) if whole else None,
            draws_as_eager=options.fallback_random,
        )
        with cache or nullcontext():
            return compile_graph(gm, example_inputs, compilers, gate)


inductor = Inductor()


@dataclass(frozen=True)
class Request:
    """What the passes of a graph are asked for: see `Inductor`."""

    gate: Gate
    options: InductorOptions
    frozen: Mapping[str, torch.Tensor]
    stop_after: str = "program"


@dataclass
class Job:
    """The compile of one functional ATen graph: what its passes share.

    Attributes:
        kind: ``forward``, ``backward`` or ``inference``.
        gpu: the GPU that its kernels are for; None: the CPU.
        times: measures and keeps how long ways to compute something take on this machine.
        on_gpu: the same for the GPU.
        hints: what symbolic sizes were at capture.
        notes: optional steps taken, by stage.
        decisions: what the rewrites of the graph decided.
        tuning: times the kernels of a GPU.
    """

    kind: str
    request: Request
    gpu: torch.device | None
    times: Tuner
    on_gpu: Tuner | None
    hints: dict[str, int] = field(default_factory=dict)
    notes: dict[str, Notes | None] = field(default_factory=dict)
    decisions: tuple[Any, ...] = ()
    tuning: Tuning | None = None

    def gate(self, stage: str) -> Gate:
        """Return the gate to ask for the optional steps of a stage, which notes what it allows."""
        self.notes[stage] = noting()
        return self.request.gate.noted(self.notes[stage])


# -- the passes; none is imported for a graph that is found on disk --------------------------
def _rewrite(module: fx.GraphModule, job: Job) -> fx.GraphModule:
    """ATen graph → an equal ATen graph, arranged for library calls."""
    from tc.compiler import library

    steps = job.gate("library")
    job.decisions = tuple(library.arrange(module, steps, job.request.frozen, job.times, job.on_gpu))
    return module


def _lower(module: fx.GraphModule, job: Job) -> LoopGraph:
    """ATen graph → buffers and loop nests."""
    from tc.compiler import loops

    job.hints = loops.size_hints(module)
    draws = not job.request.options.fallback_random
    try:
        return loops.lower(module, job.gate("loops"), job.gpu or loops.CPU, draws)
    except loops.UnsupportedSizeExpr as why:
        raise Fallback(str(why)) from why


def _schedule(lowered: LoopGraph, job: Job) -> Plan:
    """Loop nests → fused kernels in order, with their memory planned."""
    from tc.compiler import schedule

    steps = job.gate("schedule")
    if job.gpu is None or job.on_gpu is None:
        plan = schedule.plan(lowered, steps, job.hints)
    else:
        from tc.compiler.codegen import triton

        asked = job.request.options.max_autotune
        job.tuning = triton.Tuning(job.on_gpu, open_kernels, job.gpu, asked, job.hints)
        plan = schedule.gpu_plan(lowered, steps, job.tuning.choose)
    return replace(plan, decisions=(*job.decisions, *plan.decisions))


def _generate(plan: Plan, job: Job) -> tuple[Program, list[trace.Event]]:
    """Plan → C or Triton kernels with the wrapper that calls them, and what is logged of it all."""
    from tc.compiler import codegen, schedule

    options, tuning = job.request.options, job.tuning
    if job.gpu is None or tuning is None:
        program = codegen.generate(plan, threads=options.cpp_threads, kind=job.kind)
    else:
        from tc.compiler.codegen import triton

        program = triton.generate(plan, job.gpu, job.kind, options.triton_cudagraphs, tuning)

    @trace.reports(list)
    def logged() -> list[trace.Event]:
        taken = [
            event
            for stage, notes in job.notes.items()
            for event in noted_events(notes, stage, job.kind)
        ]
        taken += [*job.times.events, *(job.on_gpu.events if job.on_gpu is not None else ())]
        memory = schedule.timeline(plan, job.kind, job.hints)
        lines = codegen.lines_of(plan, program)
        return [*taken, *emit_plan(plan, program, job.kind, lines, memory)]

    return program, logged() if trace.enabled() else []


@dataclass(frozen=True)
class Pass:
    """One pass: its name in the trace, what it does, and the stages that a compile may stop at."""

    name: str
    run: Callable[[Any, Job], Any]
    stages: tuple[str, ...] = ()


PASSES = (
    Pass("library", _rewrite),
    Pass("loops.lower", _lower, ("loops",)),
    Pass("schedule", _schedule, ("schedule", "kernels", "checked")),
    Pass("codegen", _generate, ("program",)),
)


def _debug_folder(module: fx.GraphModule, job: Job) -> DebugFolder | None:
    """Return where the files of a compile go, if its options ask for them."""
    options = job.request.options
    if not options.debugs:
        return None
    from tc.compiler.telemetry.debug_folder import DebugFolder

    return DebugFolder(module, job.kind, options.trace_graph_diagram)


def run_passes(module: fx.GraphModule, job: Job) -> Any:
    """Return the artifact of the last pass that a compile asks for."""
    artifact: Any = module
    folder = _debug_folder(module, job)
    for step in PASSES:
        with trace.stage(step.name):
            artifact = step.run(artifact, job)
        if folder is not None:
            folder.after(step.name, artifact)
        if job.request.stop_after in step.stages:
            break
    return artifact


# -- what the passes are run for -------------------------------------------------------------
@levels.own_tensors()
def _aten_graph(
    module: fx.GraphModule, kind: str, request: Request, cache: GraphCache | None
) -> Boxed:
    """Compile a functional ATen graph, a part of it for each GPU."""
    if request.stop_after == "aot":
        return _stopped(module, request)
    parts = None if request.frozen else split(module)
    if parts is not None:
        return _on_several_gpus(parts, kind, request)
    if request.stop_after != "program":
        return _stopped(_compile(module, kind, request), request)
    make = functools.partial(_compile, module, kind, request)
    if cache is not None and kind != "inference":
        return cache.program(kind, module, make)
    program, events = make()
    if cache is not None:
        cache.made(program, events)
    return run(program)


def _compile(
    module: fx.GraphModule, kind: str, request: Request, gpu: torch.device | None = None
) -> Any:
    """Run the passes, for a GPU if one is given or the graph asks for it."""
    gpu = gpu or gpu_of(module)
    job = Job(kind, request, gpu, *_tuners(request.options, gpu))
    return run_passes(module, job)


def _tuners(options: InductorOptions, gpu: torch.device | None) -> tuple[Tuner, Tuner | None]:
    """Return what measures on the CPU, and what measures on a GPU if there is one."""
    return tuner(options.max_autotune), None if gpu is None else gpu_tuner(gpu)


def _stopped(artifact: Any, request: Request) -> Boxed:
    from tc.compiler.replay import INTERPRETERS

    return INTERPRETERS[request.stop_after](artifact, request.gate, request.options.cpp_threads)


def _on_several_gpus(parts: GraphSplit, kind: str, request: Request) -> Boxed:
    """Compile the parts of a graph, a program each, which are not kept on disk."""
    report_limits(kind, request.options.fx_graph_cache, request.options.triton_cudagraphs)
    request = replace(request, options=replace(request.options, triton_cudagraphs=False))

    def compile_part(part: fx.GraphModule, gpu: torch.device | None) -> Any:
        made = _compile(part, kind, request, gpu)
        return run(made[0]) if request.stop_after == "program" else _stopped(made, request)

    return hook.never_trace(in_turn(parts, compile_part))


def _joint(module: fx.GraphModule, gate: Gate, options: InductorOptions) -> None:
    """Arrange forward and backward as one graph, so that what is kept has the chosen layout."""
    from tc.compiler import library, loops  # a graph found on disk needs none of it

    library.arrange_joint(module, gate, *_tuners(options, gpu_of(module)))
    for node in module.graph.nodes:
        value = node.meta.get("val")
        is_complex = isinstance(value, torch.Tensor) and value.is_complex()
        if node.op == "call_function" and (is_complex or not loops.made_of_loops(node)):
            node.meta[CALLED] = True


def _cache(gate: Gate, options: InductorOptions) -> GraphCache | None:
    """Return the entries on disk for a compile; None where it is not to depend on earlier ones.

    Whoever brings a gate counts steps, or refuses some: then all of them have to be taken.
    """
    asked = options.fx_graph_cache and config.fx_graph_cache and not caches_disabled()
    if not asked or gate is not PROCESS.gate or gate.refuse_from:
        return None
    if options.debugs:  # the files are to be there after each run
        return None
    if options.freezing:  # the values of parameters decide
        trace.emit(trace.Artifact("tc_graph_cache_bypass", "freezing is on"))
        return None
    threads = options.cpp_threads  # a matter of speed, see `graph_key.OF_MACHINE`
    options = replace(options, cpp_threads=0, background=False)
    return GraphCache({"options": options, "kernel threads": threads})
