"""Reports what the driver did as trace events."""

from __future__ import annotations

import linecache
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

from tc import trace
from tc.compiler.capture.bytecode.resume_functions import traced_name
from tc.compiler.capture.guards.guard_list import CheckedGuards, Failure, Gone
from tc.compiler.capture.lines import lines_of
from tc.compiler.capture.translate import BreakRecord, Captured
from tc.compiler.core.artifacts import Program
from tc.compiler.core.graphtext import UNREPORTED
from tc.compiler.errors import (
    StageError,
    TcError,
    error_context,
    in_library,
    user_place,
    where_text,
)
from tc.compiler.options import Options, settings_changed
from tc.compiler.telemetry.counters import count_in_python
from tc.trace import CompileId, StackFrame, cells
from tc.trace.breakfixes import CONTEXT, fixes_at, is_of_context
from tc.trace.commands import command

#: guard kind -> what the guarded input was to the compiled code
ROLES = {
    "EQUALS": "a constant in the graph",
    "BOOL": "a constant in the graph",
    "NONE": "a constant in the graph",
    "TENSOR": "a fixed property of the graph",
    "SHAPE": "a condition on sizes",
    "TYPE": "a fixed type",
    "INTEGER": "an integer of few bits",
    "ID": "a fixed object",
    "CALLABLE_CODE": "a fixed function",
    "LENGTH": "a fixed length",
    "DICT_KEYS": "fixed keys",
    "CONTAINS": "fixed keys",
    "ITEMS": "fixed keys",
    "NOT_CONTAINS": "fixed keys",
    "GLOBAL_STATE": "state of torch",
    "ANSWER": "state of the process",
}


@dataclass
class CompileReporter:
    """The running account of one frame compile.

    Attributes:
        compile_id: which compile it is.
        code: of the frame.
        reasons: titles of the breaks, for the metrics.
    """

    compile_id: CompileId
    code: CodeType
    options: Options
    cache_size: int = 0
    started: float = field(default_factory=time.time)
    clock: float = field(default_factory=time.perf_counter)
    reasons: list[str] = field(default_factory=list)
    recompile: str | None = None
    restarted_after: float = 0.0

    @property
    def place(self) -> StackFrame:
        """Where the function is."""
        return StackFrame(self.code.co_filename, self.code.co_firstlineno, self.code.co_qualname)

    def restart(self) -> None:
        """Count time from now on."""
        self.started, self.clock = time.time(), time.perf_counter()

    # -- beginning -------------------------------------------------------------------------
    @trace.reports(trace.nothing)
    def begin(self, caller: Sequence[StackFrame]) -> None:
        """Report that a frame is being compiled."""
        place = StackFrame(
            self.code.co_filename,
            self.code.co_firstlineno,
            traced_name(self.code),
            linecache.getline(self.code.co_filename, self.code.co_firstlineno).strip(),
        )
        trace.emit(trace.FrameStart((*caller, place)))

    @trace.reports(trace.nothing)
    def report_recompile(
        self, of: CheckedGuards | Gone, failures: Sequence[Failure], dynamic: set[str]
    ) -> None:
        """Report why code that exists does not fit this call."""
        causes = tuple(cause_of(failure, failure.source in dynamic) for failure in failures)
        self.recompile = "; ".join(cause.guard for cause in causes) or None
        trace.emit(
            trace.Recompile(
                self.code.co_qualname,
                self.code.co_filename,
                self.code.co_firstlineno,
                CompileId.parse(of.compile_id),
                causes,
            ),
            self.compile_id,
        )

    # -- breaks ----------------------------------------------------------------------------
    @trace.reports(trace.nothing)
    def report_break(self, record: BreakRecord) -> None:
        """Report a graph break, as part of the attempt that it ended."""
        self.reasons.append(record.cause.title)
        self.restarted_after = time.perf_counter() - self.clock
        if trace.enabled():
            attempt = CompileId(self.compile_id.frame, self.compile_id.compile, record.attempt)
            trace.emit(break_event(record), attempt)

    # -- end -------------------------------------------------------------------------------
    @trace.reports(trace.nothing)
    def report_capture(self, captured: Captured) -> None:
        """Report what was captured, but for the graph itself; see `graphtext.emit_captured`."""
        if not trace.enabled():
            return
        for symbol in captured.tracer.shapes.events():
            line = symbol.user_line
            stack = (StackFrame(line[0], line[1], ""),) if line else ()
            trace.emit(
                trace.CreateSymbol(
                    symbol.symbol, str(symbol.hint), symbol.range, symbol.source, stack
                )
            )
        functions = tuple(lines_of(captured.tracer.walked or ()))
        if functions:
            trace.emit(trace.SourceLines(functions))
        if captured.module is not None:
            captured.module.meta[UNREPORTED] = "captured"  # the backend may find its text on disk

    @trace.reports(trace.nothing)
    def report_guards(self, guards: CheckedGuards) -> None:
        """Report the guards of the compiled code."""
        if guards.event is not None:
            trace.emit(guards.event)
            guards.event = None

    @trace.reports(trace.nothing)
    def finish(
        self,
        captured: Captured | None,
        failure: BaseException | None = None,
        place: StackFrame | None = None,
    ) -> None:
        """Report the figures of the compile."""
        if not trace.enabled():
            return
        graph = captured.module.graph if captured is not None and captured.module else None
        phases = trace.phase_seconds()
        changed = settings_changed(self.options)
        trace.emit(
            trace.Metrics(
                compile_id=str(self.compile_id),
                co_name=traced_name(self.code),
                co_filename=self.code.co_filename,
                co_firstlineno=self.code.co_firstlineno,
                cache_size=self.cache_size,
                accumulated_cache_size=self.cache_size,
                guard_count=len(captured.guards.guards) if captured else None,
                graph_op_count=captured.calls if captured else None,
                graph_node_count=len(graph.nodes) if graph is not None else 0,
                graph_input_count=len(captured.examples) if captured else None,
                start_time=self.started,
                entire_frame_compile_time_s=time.perf_counter() - self.clock,
                backend_compile_time_s=phases.get("backend_compile"),
                inductor_compile_time_s=phases.get("inductor_compile"),
                code_gen_time_s=phases.get("runtime.build"),
                fail_type=type(failure).__name__ if failure is not None else None,
                fail_reason=str(failure) if failure is not None else None,
                fail_user_frame_filename=place.file if place else None,
                fail_user_frame_lineno=place.line if place else None,
                restart_reasons=tuple(self.reasons),
                dynamo_time_before_restart_s=self.restarted_after,
                has_guarded_code=captured is not None,
                num_graph_breaks=len(self.reasons),
                recompile_reason=self.recompile,
                config={
                    "backend": self.options.backend_name,
                    "dynamic": self.options.dynamic,
                    **{name: value for name, (value, _) in changed.items()},
                },
                config_defaults={name: default for name, (_, default) in changed.items()},
                phases=phases,
            )
        )

    @trace.reports(trace.nothing)
    def report_skip(self, why: str, fix: str = "", harmless: bool = False) -> None:
        """Report that a frame runs as it is."""
        if not harmless:
            count_in_python(self.code, self.compile_id)
        trace.emit(
            trace.FrameSkipped(
                self.code.co_qualname,
                self.code.co_filename,
                self.code.co_firstlineno,
                why,
                fix,
                harmless,
            ),
            self.compile_id,
        )

    @trace.reports(trace.nothing)
    def report_limit(self, limit: int, failures: Sequence[Failure]) -> None:
        """Report that a function was compiled too often and runs eagerly from now on."""
        causes = tuple(cause_of(failure, False) for failure in failures)
        count_in_python(self.code, self.compile_id)
        trace.emit(
            trace.RecompileLimit(
                self.code.co_qualname,
                self.code.co_filename,
                self.code.co_firstlineno,
                limit,
                causes,
            ),
            self.compile_id,
        )


def report_backward(
    compile_id: trace.CompileId | None, place: StackFrame, started: float, seconds: float
) -> None:
    """Report the figures of a backward that was compiled at its first call, without its frame."""
    _report_part(compile_id, place, started, seconds, is_forward=False)


def report_forward(
    compile_id: trace.CompileId | None, place: StackFrame, started: float, seconds: float
) -> None:
    """Report the figures of a graph that was compiled without its frame: PyTorch captured it."""
    _report_part(compile_id, place, started, seconds, is_forward=True)


@trace.reports(trace.nothing)
def _report_part(
    compile_id: trace.CompileId | None,
    place: StackFrame,
    started: float,
    seconds: float,
    is_forward: bool,
) -> None:
    if not trace.enabled():
        return
    trace.emit(
        trace.Metrics(
            compile_id=None if compile_id is None else str(compile_id),
            co_name=place.name.rpartition(".")[2],
            co_filename=place.file,
            co_firstlineno=place.line,
            start_time=started,
            entire_frame_compile_time_s=seconds,
            is_forward=is_forward,
            has_guarded_code=is_forward,
            phases=trace.phase_seconds(),
        )
    )


def report_failure(error: Exception, stage: str, place: StackFrame, part: str = "") -> str:
    """Report that compiling failed; returns that as a sentence.

    Args:
        place: of the function; the place in the error's context is preferred.
        part: of the function, that failed: ``the backward of ``.
    """
    found = error_context(error)
    line = found.place if found is not None else place
    _emit_error(error, stage, line)
    where = f"{place.name} ({cells.place(place.file, place.line)})"
    failed_at = cells.place(line.file, line.line)
    at = f" at {failed_at}, in {found.callee or found.opcode}" if found else ""
    return f"compiling {part}{where} failed in {stage}{at}: {error}"


@trace.reports(trace.nothing)
def _emit_error(error: Exception, stage: str, line: StackFrame) -> None:
    kind, text, command = type(error).__name__, str(error), minify_command()
    trace.emit(trace.CompileError(stage, kind, text, line.file, line.line, command))


def as_failure(error: Exception, stage: str, text: str) -> TcError:
    """Return the error to raise: one of tc's classes as it is, any other as a bug."""
    if isinstance(error, TcError):
        return error
    context = error_context(error)
    calls = (
        f"\n{where_text(context.stack)}" if context is not None and len(context.stack) > 1 else ""
    )
    failure = StageError(
        stage,
        f"{text}. This is a bug in tc; tc.config.suppress_errors = True runs eagerly instead. "
        f"To reduce it: {minify_command()}{calls}",
    )
    failure.__cause__ = error
    return failure


def minify_command() -> str:
    """Return the command that reduces a failure of the running script.

    What an installed package starts (pytest, the kernel of a notebook) is no script.
    """
    started = sys.argv[0] if sys.argv else ""
    script = started if started.endswith(".py") and not in_library(started) else "SCRIPT"
    return str(command("tc-minify", script))


def break_event(record: BreakRecord) -> trace.GraphBreak:
    """Return the event of a graph break."""
    cause = record.cause
    place = user_place(record.stack)
    innermost = place is record.stack[-1]
    end_line, col, end_col = record.span if innermost else (None, None, None)
    detail = cause.note or cause.detail
    code, source = cause.reason.code, linecache.getline(place.file, place.line).rstrip("\n")
    known, within = cause.reason.fix, record.stack[-1].file
    callers = [(at.file, at.line) for at in record.stack[:-1]]
    title, why = cause.title, cause.reason.why
    if is_of_context(title, place.file, place.line, in_library(within)):
        code, title, of_all, known = *CONTEXT[:3], CONTEXT[3:]
        why = f"{of_all}: {cause.title}"
    return trace.GraphBreak(
        code=code,
        title=title,
        why=why,
        file=place.file,
        line=place.line,
        function=place.name,
        detail=detail,
        fix=fixes_at(code, place.file, place.line, source, known, title, within, callers),
        end_line=end_line,
        col=col,
        end_col=end_col,
        source_line=source,
        stack=record.stack,
        resume=record.resume,
    )


def cause_of(failure: Failure, now_dynamic: bool) -> trace.RecompileCause:
    """Return one changed input of a function as the trace records it."""
    kind = failure.guard.kind if failure.guard is not None else "SHAPE"
    file, line = failure.user_line or ("", 0)
    return trace.RecompileCause(
        source=failure.source,
        guard=failure.text,
        old=failure.old,
        new=failure.new,
        kind=role_of(kind, failure.source),
        now_dynamic=now_dynamic,
        file=file,
        line=line,
    )


def role_of(kind: str, source: str) -> str:
    """Return what a changed input was to the compiled code, in the user's words."""
    if ".shape[" in source and kind != "SHAPE":
        return "a fixed size"
    return ROLES.get(kind, kind.lower().replace("_", " "))


def emit_plan(
    plan: Any, program: Program, kind: str, lines: Mapping[str, Any], memory: trace.MemoryPlan
) -> list[trace.Event]:
    """Emit a plan, its memory and its program; returns the events."""
    computes = dict(program.provenance)
    called = [cost.name for cost in program.costs if cost.name in computes]
    functions = dict(zip((kernel.name for kernel in plan.kernels()), called, strict=True))
    events: list[trace.Event] = [trace.Artifact("tc_plan", plan.text(functions))]
    alike: dict[tuple[str, bool, str], list[list[str]]] = {}
    for d in plan.decisions:
        alike.setdefault((d.kind, d.taken, d.reason), []).append(list(d.nodes))
    decisions = [
        {"kind": step, "taken": taken, "reason": reason, "nodes": nodes}
        for (step, taken, reason), nodes in alike.items()
    ]
    events.append(trace.Fusion({"graph": kind, "decisions": decisions}))
    kernels = [
        trace.Kernel(spec.name, source_lines=tuple(computes.get(spec.name, ())))
        for spec in program.kernels
    ]
    events.append(trace.Kernels(tuple(kernels)))
    events.append(trace.Provenance({"graph": kind, "lines": lines}))
    events.append(memory)
    trace.emit_all(events)
    return events


@trace.reports(list)
def callers(frame: Any) -> list[StackFrame]:
    """Return the user's Python stack above the frame being compiled, outermost first."""
    found: list[StackFrame] = []
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if not name.startswith("tc.") and name != "tc":
            file = frame.f_code.co_filename
            line = frame.f_lineno or frame.f_code.co_firstlineno
            text = linecache.getline(file, line).strip()
            found.append(StackFrame(file, line, traced_name(frame.f_code), text))
        frame = frame.f_back
    return found[::-1]


def break_text(record: BreakRecord, fullgraph: bool) -> str:
    """Return the message of a break that is an error, by ``fullgraph`` or a mark in the code."""
    asked = "fullgraph=True" if fullgraph else "error_on_graph_break(True)"
    event = break_event(record)
    fixes = "".join(f"\n  fix: {fix}" for fix in event.fix)
    note = f"\n  note: {record.cause.note}" if record.cause.note else ""
    return (
        f"{event.code} graph break under {asked}: {event.title}\n"
        f"{where_text(record.stack)}\n"
        f"  why: {event.why}{note}{fixes}"
    )
