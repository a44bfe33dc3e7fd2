"""The life of a frame: captured, compiled, guarded, recompiled, or left to Python.

In: frames that the hook offers. Out: what the hook is to do with each. The graph that a frame holds
goes through `pipeline`; with it this is the only module that knows more than one stage.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import CodeType, FrameType
from typing import Any

import torch
from torch import fx
from torch.fx._symbolic_trace import is_fx_symbolic_tracing

from tc import trace
from tc.compiler.backends.builtin import aot_eager
from tc.compiler.backends.cut.choice import parts_for
from tc.compiler.backends.cut.parts import Part, compile_parts
from tc.compiler.backends.registry import BACKENDS
from tc.compiler.backends.verify import copied, verify
from tc.compiler.capture import breaks, hook
from tc.compiler.capture.bytecode.resume_functions import is_resumed
from tc.compiler.capture.dynamism import DynamicSizes, Memory
from tc.compiler.capture.entries import was_entered
from tc.compiler.capture.guards import fast_path
from tc.compiler.capture.guards.guard_list import Failure, refusals
from tc.compiler.capture.guards.in_c import InC
from tc.compiler.capture.skips import (
    can_be_captured,
    in_transform,
    is_being_imported,
    runs_on_for_now,
    skip_reason,
)
from tc.compiler.capture.torch_api.transforms import LEVELLED
from tc.compiler.capture.traceable import breaks_are_errors
from tc.compiler.capture.translate import BreakRecord, Captured, is_handler_resumption, translate
from tc.compiler.core import ahead, garbage, levels, modes
from tc.compiler.core.gate import Gate
from tc.compiler.core.graphtext import PLACE, emit_captured, with_code
from tc.compiler.core.graphview import shown
from tc.compiler.core.modes import SETS_MODES
from tc.compiler.core.symbolic import SYMBOLIC
from tc.compiler.errors import (
    BackendError,
    ErrorContext,
    FailOnRecompileLimitHit,
    NestedTraceError,
    OptionError,
    RecompileError,
    StageError,
    TcError,
    TorchRuntimeError,
    Unsupported,
    UserError,
    attach_context,
)
from tc.compiler.freezing import frozen_inputs, while_unchanged
from tc.compiler.frontend import background, stance
from tc.compiler.options import Config, Options, settings_changed, warn_of_settings_of_torch
from tc.compiler.pipeline import Inductor
from tc.compiler.process import PROCESS, Process
from tc.compiler.ranks import follow_setting
from tc.compiler.runtime.fast_path import close_fast_paths, make_fast_path
from tc.compiler.runtime.launch import offer_type
from tc.compiler.runtime.memo import memo_type
from tc.compiler.runtime.relation import make_relation
from tc.compiler.runtime.watch import watch_type
from tc.compiler.sentinel.graph import Graph
from tc.compiler.sentinel.pace import paced
from tc.compiler.sentinel.sampling import Watch, setting_of, watched
from tc.compiler.telemetry.counters import with_counter
from tc.compiler.telemetry.profile import programs
from tc.compiler.telemetry.reporter import (
    CompileReporter,
    as_failure,
    break_event,
    break_text,
    callers,
    report_failure,
)
from tc.trace import CompileId, cells
from tc.trace.ids import in_users_words

Compiled = Callable[..., Any]
#: code of a break -> the error it is where breaks are errors
ERRORS = {breaks.OP_FAILED.code: TorchRuntimeError, breaks.DATA_GUARD.code: UserError}
#: stages that ``config.check`` compares, besides the finished program
COMPARED = ("aot", "loops", "schedule", "kernels")
#: times that code without tensor operations is looked at before it is left to Python
IDLE_TRIES = 4

#: what checks guards in C
IN_C = InC(memo_type, watch_type, make_relation)

hook.offer_by(offer_type)
hook.use_fast_paths(fast_path.FastPaths(make_fast_path, close_fast_paths, PROCESS.gate))


#: module of the wrapper that picks one of two functions by a boolean argument
DISPATCHING = "torch._jit_internal"


def is_one_call(frame: hook.Frame, caller: FrameType) -> bool:
    """Return whether Python code calls a function that capture would have recorded as one call.

    Python runs the caller because it cannot be captured, often because of this very call. Neither a
    graph of one call nor a second graph break in it would be of use, except to who asked for it.
    """
    asked = was_entered(frame.code)
    while caller.f_globals.get("__name__") == DISPATCHING and caller.f_back is not None:
        asked = asked or was_entered(caller.f_code)
        caller = caller.f_back
    return frame.globals.get("__name__") == torch.nn.functional.__name__ and not asked


def is_below_limit(code: CodeType, caller: FrameType | None, compiler: FrameCompiler) -> bool:
    """Return whether a frame is resumed inside of one that reached the limit of a compiler.

    A graph break in an inlined function resumes each frame of the stack, and each resume function
    calls the next inner one. What the outer one was compiled again for, a list that grows say, is
    an argument of the inner ones: compiling those up to their limits too would gain nothing. What
    these frames call later is compiled as always.
    """
    while is_resumed(code) and caller is not None:
        code = caller.f_code
        if is_resumed(code) and compiler in hook.state_of(code).done:
            return True
        caller = caller.f_back
    return False


@dataclass(frozen=True, eq=False)
class FrameCompiler:
    """Compiles the frames offered under a `tc.compile` call; equal options share compiled code."""

    options: Options
    config: Config
    process: Process

    @property
    def built_in(self) -> bool:
        """Whether the backend is tc's own, which runs the pipeline."""
        return isinstance(self.options.backend, Inductor)

    @property
    def recompile_limit(self) -> int:
        """How often a function is compiled before it runs eagerly."""
        asked = self.options.recompile_limit
        return self.config.recompile_limit if asked is None else asked

    def __eq__(self, other: object) -> bool:
        if other is self:  # asked of every entry of a code object
            return True
        return isinstance(other, FrameCompiler) and other.options == self.options

    def __hash__(self) -> int:
        return hash((FrameCompiler, id(self.options.backend), self.options.dynamic))

    def glance(self, frame: hook.Frame, state: dict[Any, Any]) -> hook.Outcome | None:
        """Return a skip for frames that are left to Python, without the compile lock; else None."""
        reason = skip_reason(frame)
        if reason is not None and not reason[1]:
            return hook.Skip(reason[0])
        if torch._C._get_tracing_state() is not None or is_being_imported(frame):
            return hook.RunOnce()
        caller = sys._getframe(2)
        if (
            runs_on_for_now(frame, state)
            or is_one_call(frame, caller)
            or is_below_limit(frame.code, caller, self)
        ):
            return hook.RunOnce()
        if in_transform() and not (self.options.backend_name == "eager" and can_be_captured()):
            return self._inside_transform(frame)
        if is_fx_symbolic_tracing() and self.config.error_on_nested_fx_trace:
            raise NestedTraceError(
                "Detected that you are using FX to symbolically trace a compiled function: trace "
                "the function itself, or set config.error_on_nested_fx_trace = False"
            )
        return None

    def must_compile(self) -> bool:
        """Return whether Python may not run a frame while something else is compiled."""
        return self.options.fullgraph or breaks_are_errors() is True

    def __call__(
        self, frame: hook.Frame, cache: hook.CacheView, state: dict[Any, Any]
    ) -> hook.Outcome:
        """Compile a frame, skip it for good, or run it as it is once; with the compile lock."""
        standing = stance.in_place_of_compiling(frame, state)
        if standing is stance.FIRST_RUN:
            return self._first_run(frame, cache, state)
        if standing is not None:
            return standing
        entries = list(iter(cache))  # a list of the view itself would ask for its length first
        if not hook.puts_last_used_first():
            entries.sort(key=lambda entry: CompileId.parse(entry.compile_id), reverse=True)
        follow_setting(self.config.rank_check)
        reporter = self._reporter(frame, len(entries), state)
        reason = skip_reason(frame)
        if reason is not None:
            reporter.report_skip(reason[0])
            return hook.Skip(reason[0])
        if is_handler_resumption(frame.code):
            reporter.report_skip("it resumes in an exception handler", harmless=True)
            return hook.Skip("it resumes in an exception handler")
        guards = [entry.guards for entry in entries]
        nearest, failures = refusals(guards, frame.locals, frame.globals)
        if len(entries) >= self.recompile_limit:
            return self._limit(reporter, failures)
        if entries and self.config.error_on_recompile:
            raise RecompileError(
                f"{frame.code.co_qualname} would be compiled again (config.error_on_recompile): "
                + changes(failures)
            )
        gone = state.pop("gone", None)
        if gone is not None and not entries and reporter.compile_id.compile:  # not since a reset
            reporter.report_recompile(gone, gone.failures(frame.locals, frame.globals), set())
        elif entries:
            dynamic = self._dynamic_now(_seen(state), failures)
            reporter.report_recompile(guards[nearest], failures, dynamic)
        reporter.restart()
        compile_id = reporter.compile_id
        with (
            trace.compiling(compile_id),
            trace.stage("entire_frame_compile"),
            self.process.names.taken(frame.globals, compile_id) as name,
        ):
            return self._compile(frame, state, reporter, name)

    def _first_run(
        self, frame: hook.Frame, cache: hook.CacheView, state: dict[Any, Any]
    ) -> hook.Outcome:
        """Compile for one call, by the backend that gives the operations to ATen one by one."""
        options = replace(self.options, backend=aot_eager, backend_name="aot_eager")
        found = replace(self, options=options)(frame, cache, state)
        if isinstance(found, hook.Compiled):
            stance.STANDING.runs_once(found.guards)
        return found

    def _inside_transform(self, frame: hook.Frame) -> hook.Outcome:
        """Leave a frame to Python: only graphs that run eagerly take wrapped tensors."""
        if not self.options.fullgraph:
            return hook.RunOnce()
        raise Unsupported(
            f"{frame.code.co_qualname} was compiled with fullgraph=True and is called inside a "
            "transform of torch.func that runs eagerly. Compile what calls the transform, or use "
            "backend='eager'."
        )

    def _reporter(self, frame: hook.Frame, entries: int, state: dict[Any, Any]) -> CompileReporter:
        if "frame_id" not in state:
            state["frame_id"] = self.process.frames
            state["compiles"] = 0
            self.process.frames += 1
            self.process.code_objects[id(frame.code)] = frame.code
        compile_id = CompileId(state["frame_id"], state["compiles"])
        return CompileReporter(compile_id, frame.code, self.options, entries)

    def _dynamic_now(self, memory: Memory, failures: Sequence[Failure]) -> set[str]:
        """Return the sources among the failures that the compile to come makes dynamic."""
        dynamic = self.options.dynamic
        if dynamic is False or not (dynamic or self.config.automatic_dynamic_shapes):
            return set()
        sizes = {f.source for f in failures if not dynamic and ".shape[" in f.source}
        numbers = {
            f.source
            for f in failures
            if f.guard is not None
            and f.guard.kind == "EQUALS"
            and f.guard.source.name in memory.numbers
        }
        return sizes | numbers

    def _limit(self, reporter: CompileReporter, failures: Sequence[Failure]) -> hook.Outcome:
        limit, code = self.recompile_limit, reporter.code
        reporter.report_limit(limit, failures)
        strict = self.options.fullgraph and self.options.recompile_limit is not None
        if strict or self.config.fail_on_recompile_limit_hit:
            raise FailOnRecompileLimitHit(
                f"{in_users_words(code.co_qualname)} was compiled {limit} times "
                "(config.recompile_limit): " + changes(failures)
            )
        cached = hook.RunCached(f"recompile_limit ({limit}) reached", self.options.fullgraph)
        if trace.log_enabled("recompiles"):
            return cached
        trace.warn(
            f"{in_users_words(code.co_qualname)} "
            f"({cells.place(code.co_filename, code.co_firstlineno)}) was compiled "
            f"{limit} times (config.recompile_limit) and runs eagerly from now on; "
            f"the last change: {changes(failures)}. TC_LOGS=recompiles shows each change."
        )
        return cached

    @garbage.paused()
    @levels.dispatch_modes_unseen()  # the user's modes and hooks see what runs, not the compiler
    @levels.autograd_unseen()
    def _compile(
        self, frame: hook.Frame, state: dict[Any, Any], reporter: CompileReporter, name: str
    ) -> hook.Outcome:
        self.process.counters["frames"]["total"] += 1
        warn_of_settings_of_torch()
        # Whatever comes of it: readers take an id that begins twice for a reset of the compiler.
        state["compiles"] = max(state.get("compiles", 0), reporter.compile_id.compile + 1)
        if trace.enabled():
            reporter.begin(callers(sys._getframe(2)))
        captured: Captured | None = None
        memory = _seen(state).copy()  # of a compile that Ctrl-C ends nothing is remembered
        try:
            with trace.stage("capture"):
                captured = self._capture(frame, memory, name, reporter)
            with captured.tracer.overrides.left_out():
                reporter.report_capture(captured)
                watch = self._install_graph(frame, captured, reporter)
                captured.rebuild_guards()
            if watch is not None:
                watch.graph.guarded_by(captured.guards, captured.code)
        except breaks.SkipFrame as skip:
            state["memory"] = memory
            reporter.report_skip(str(skip), skip.fix, skip.harmless)
            reporter.finish(None)
            if self.options.fullgraph and not skip.harmless:
                raise Unsupported(f"no graph under fullgraph=True: {skip}") from None
            state["idle"] = state.get("idle", 0) + 1
            again = in_transform() or (skip.harmless and state["idle"] < IDLE_TRIES)
            alone = skip.idle and (again or self.options.fullgraph)
            return hook.RunOnce(alone) if again else hook.Skip(str(skip), alone)
        except (Unsupported, OptionError) as error:  # of the program, or of what it asks for
            reporter.finish(None, error)
            raise
        except Exception as error:
            return self._failed(reporter, captured, error)
        state["memory"] = memory
        self.process.counters["frames"]["ok"] += 1
        reporter.report_guards(captured.guards)
        holds = partial(captured.guards.check, frame.locals)
        programs.guarded(reporter.compile_id, holds, len(captured.guards.guards))
        reporter.finish(captured)
        captured.tracer.forget()
        captured.guards.ended = partial(state.__setitem__, "gone")
        return hook.Compiled(captured.code, captured.guards, str(reporter.compile_id))

    def _capture(
        self, frame: hook.Frame, memory: Memory, graph_name: str, reporter: CompileReporter
    ) -> Captured:
        asked = self.options.shapes
        sizes = DynamicSizes(
            self._dynamic(),
            self.config.automatic_dynamic_shapes,
            memory,
            scalars=self.config.capture_scalar_outputs or self.options.fullgraph,
            shapes=self.config.capture_dynamic_output_shape_ops or self.options.fullgraph,
            fixed_numbers=self.config.specialize_int,
            fixed_floats=self.config.specialize_float,
            lenient=self.config.allow_ignore_mark_dynamic,
            specified=None if asked is None else asked.of_frame(frame.code),
        )

        def on_break(record: BreakRecord) -> None:
            reporter.report_break(record)
            if (noted := ahead.noted()) is not None:
                noted.breaks.append(break_event(record))
            self.process.breaks += 1
            self.process.counters["graph_break"][record.cause.title] += 1
            if self.options.fullgraph or record.strict:
                kind = ERRORS.get(record.cause.reason.code, Unsupported)
                error = kind(break_text(record, self.options.fullgraph))
                attach_context(
                    error, ErrorContext("", "", tuple(record.stack), record.cause.reason.code)
                )
                raise error

        return translate(
            frame, sizes, str(reporter.compile_id), graph_name, on_break, self.options.fullgraph,
            self.options.guard_filter, IN_C,
        )  # fmt: skip

    def _dynamic(self) -> bool | None:
        if self.options.dynamic is None and not self.config.assume_static_by_default:
            return True
        return self.options.dynamic

    def _install_graph(
        self, frame: hook.Frame, captured: Captured, reporter: CompileReporter
    ) -> Watch | None:
        if captured.module is None:
            return None
        if not self.built_in:
            captured.module = shown(with_code(captured.module))
            emit_captured(captured.module)
        captured.module.meta[PLACE] = reporter.place
        self.process.graphs += 1
        stats = self.process.counters["stats"]
        stats["unique_graphs"] += 1
        calls = ("call_function", "call_method", "call_module")
        stats["calls_captured"] += sum(n.op in calls for n in captured.module.graph.nodes)
        for listener in tuple(self.process.on_graph):
            listener(shown(captured.module))
        setting = setting_of(self.config)
        paces = self.config.profile_eager and trace.enabled()
        reference = None
        if setting is not None or paces:
            reference = copied(captured.module)
            reference.meta = dict(captured.module.meta)
        with trace.stage("backend_compile"):
            compiled = self._in_background(captured, reporter) or self._run_backend(frame, captured)
        by_eager, watch = runs_by_eager(compiled), None
        if captured.module.meta.get(LEVELLED):
            compiled = levels.keeping(compiled)
        if captured.module.meta.get(SETS_MODES) and (by_eager or not self.built_in):
            compiled = modes.restoring(compiled)
        called = with_counter(untraced(compiled), reporter.compile_id, reporter.place)
        if reference is not None and not by_eager:
            check = setting.check if setting is not None else ""
            graph = self._graph(reference, captured, reporter, check)
            if paces:
                facts = programs.facts(reporter.compile_id, reporter.place)
                called = paced(called, graph, facts.paced, self.config.sentinel_memory)
            if setting is not None:
                called, watch = watched(called, graph, setting)
        self.process.names.put(frame.globals, captured.graph_name, called, captured.code)
        return watch

    def _graph(
        self, module: fx.GraphModule, captured: Captured, reporter: CompileReporter, check: str
    ) -> Graph:
        """Return what the sentinel compares a compiled graph with."""
        eager = modes.restoring(module.forward) if module.meta.get(SETS_MODES) else module.forward
        if module.meta.get(LEVELLED):
            eager = levels.keeping(eager)
        names = {"stages": COMPARED, "kernels": ("checked",)}.get(check, ())
        gpus = any(isinstance(v, torch.Tensor) and v.is_cuda for v in captured.examples)
        stages = {
            name: Inductor(name, Gate())(
                copied(module), captured.examples, None, self.options.inductor
            )
            for name in (names if self.built_in and not gpus else ())
        }
        return Graph(
            module,
            untraced(eager),
            reporter.place,
            reporter.compile_id,
            compile_call(self.options, captured),
            not self.built_in
            or (self.options.inductor.fallback_random and self.config.fallback_random),
            stages,
        )

    def _in_background(self, captured: Captured, reporter: CompileReporter) -> Compiled | None:
        """Return what runs a graph until another thread has compiled it; None: it is not to."""
        options, module = self.options.inductor, captured.module
        if not self.built_in or not options.background or module is None:
            return None
        why = background.refusal(captured.examples)
        if not why and any(module.meta.get(mark) for mark in (LEVELLED, SETS_MODES)):
            why = "it enters modes of torch"
        if why or options.freezing or setting_of(self.config) is not None:
            why = why or "freezing or the sentinel is on"
            trace.emit(trace.Artifact("tc_background", f"compiled before it is called: {why}"))
            return None
        eager = copied(module)
        given: Any = (module, captured.examples, self.process.gate, options, {})
        work = background.Work(
            lambda: untraced(self.options.backend(*given)),
            reporter.place,
            reporter.compile_id,
            strict=self.options.fullgraph,
        )
        return background.compiled_later(untraced(eager.forward), work)

    def _run_backend(self, frame: hook.Frame, captured: Captured) -> Compiled:
        assert captured.module is not None
        if self.built_in:
            in_parts = self._in_parts(frame, captured)
            if in_parts is not None:
                return in_parts
            frozen = frozen_inputs(captured, frame) if self.options.inductor.freezing else {}
            given = (captured.module, captured.examples, self.process.gate, self.options.inductor)
            return while_unchanged(self.options.backend(*given, frozen), captured, frozen)
        inputs = captured.real_inputs(frame)
        reference = copied(captured.module) if self.config.verify_correctness else None
        try:
            compiled = self.options.backend(captured.module, inputs, **self._settings())
        except TcError:
            raise
        except Exception as error:
            raise BackendError(
                "backend",
                f"backend {self.options.backend_name!r} raised {type(error).__name__}: {error}",
            ) from error
        if not callable(compiled):
            raise BackendError(
                "backend",
                f"backend {self.options.backend_name!r} returned "
                f"{type(compiled).__name__}, not a callable",
            )
        if reference is not None:
            verify(reference, compiled, inputs, self.options.backend_name)
        return compiled

    def _in_parts(self, frame: hook.Frame, captured: Captured) -> Compiled | None:
        """Return what runs a graph that is cut into parts; None: it is not."""
        module, inductor = captured.module, self.options.inductor
        assert module is not None

        def compile_part(part: Part) -> Compiled:
            return self.options.backend(part.module, part.examples, self.process.gate, inductor)

        parts = parts_for(module, lambda: captured.real_inputs(frame), inductor.freezing)
        if not parts:
            return None
        emit_captured(module)
        return compile_parts(module, parts, compile_part)

    def _settings(self) -> dict[str, Any]:
        """Return what the user asked of a backend other than tc's, where anything."""
        found: dict[str, Any] = {}
        if self.options.mode is not None and self.options.mode != "default":
            found["mode"] = self.options.mode
        if self.options.extra:
            found["options"] = dict(self.options.extra)
        return found

    def _failed(
        self, reporter: CompileReporter, captured: Captured | None, error: Exception
    ) -> hook.Outcome:
        stage = "capture" if captured is None else "inductor"
        if isinstance(error, StageError):
            stage = error.stage
        if captured is not None and captured.module is not None:
            emit_captured(captured.module)
        text = report_failure(error, stage, reporter.place)
        reporter.finish(None, error)
        if captured is None and not self.options.fullgraph and isinstance(error, RecursionError):
            return hook.Skip(text, recursive=True)  # Python says where a recursion has no end
        if self.config.suppress_errors:
            if text not in self.process.warned:
                self.process.warned.add(text)
                trace.warn(f"{text}; it runs eagerly (config.suppress_errors)")
            return hook.Skip(text)
        raise as_failure(error, stage, text)


def runs_by_eager(compiled: Compiled) -> bool:
    """Return whether a backend left a graph to eager: there is nothing to compare."""
    return isinstance(getattr(compiled, "__self__", None), fx.GraphModule)


def compile_call(options: Options, captured: Captured) -> str:
    """Return how a program compiles a graph as it was compiled here; empty if no text does."""
    given = {}
    if not isinstance(options.backend, Inductor):
        row = BACKENDS.get(options.backend_name)
        if row is None or row.compile is not options.backend:
            return ""  # a function of the user's
        given = {"backend": options.backend_name, **dict(options.extra)}
    elif options.mode not in (None, "default"):
        given = {"mode": options.mode}
    else:
        changed = {
            name.removeprefix("options."): value
            for name, (value, _) in settings_changed(options).items()
            if name.startswith("options.")
        }
        given = {"options": changed} if changed else {}
    sizes = [s for v in captured.examples if isinstance(v, torch.Tensor) for s in v.shape]
    if any(isinstance(value, SYMBOLIC) for value in (*captured.examples, *sizes)):
        given["dynamic"] = True
    return f"tc.compile({', '.join(['graph', *(f'{k}={v!r}' for k, v in given.items())])})"


def changes(failures: Sequence[Failure]) -> str:
    """Return what differs from the last compile, for messages."""
    texts = ", ".join(f"{f.source}: {f.old} -> {f.new}" for f in failures[:3])
    return in_users_words(texts) or "unknown"


def _seen(state: dict[Any, Any]) -> Memory:
    memory: Memory = state.setdefault("memory", Memory())
    return memory


def untraced(compiled: Compiled) -> Compiled:
    """Keep frames of compiled code from being offered for compilation."""
    owner = getattr(compiled, "__self__", None)
    module = getattr(compiled, "__module__", "") or ""
    if isinstance(owner, fx.GraphModule) or module.startswith("tc."):
        try:
            kept: Compiled = hook.never_trace(compiled)
            return kept
        except TypeError:
            pass
    return hook.disabled(compiled)
