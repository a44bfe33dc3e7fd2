"""Everything the compiler says about its work: `emit` typed events, read by logs and tools.

The events are loaded on first use: a process that nobody listens to has none.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tc.trace.emit import (
    CapturedEvents,
    Sink,
    add_sink,
    capture_events,
    compiling,
    current_compile,
    emit,
    emit_all,
    enabled,
    instant,
    log_enabled,
    phase_seconds,
    remove_sink,
    stage,
    stage_path,
    warn,
)
from tc.trace.ids import CompileId, cause_id, plain_function, process_rank
from tc.trace.places import StackFrame
from tc.trace.setup import setup_from_environment

if TYPE_CHECKING:
    from tc.trace.events import (
        EVENTS,
        Artifact,
        AtenGraph,
        Autotune,
        Cache,
        CompileError,
        Counters,
        CreateSymbol,
        Event,
        FrameSkipped,
        FrameStart,
        Fusion,
        GraphBreak,
        Guards,
        Kernel,
        Kernels,
        Metrics,
        OutputCode,
        OutputGraph,
        Partition,
        Provenance,
        Recompile,
        RecompileCause,
        RecompileLimit,
        Span,
        Stamped,
    )
    from tc.trace.remembered import Remembered, packed, unpacked
    from tc.trace.run_events import CudaGraph, Region, RegionsRan
    from tc.trace.source_events import FunctionLines, SourceLines
    from tc.trace.stage_events import Edit, Fired, PassRan, StageRan, Steps

_LATE = tuple(
    f"tc.trace.{name}"
    for name in ("events", "remembered", "run_events", "source_events", "stage_events")
)

__all__ = [
    "EVENTS",
    "Artifact",
    "AtenGraph",
    "Autotune",
    "Cache",
    "CapturedEvents",
    "CompileError",
    "CompileId",
    "Counters",
    "CreateSymbol",
    "CudaGraph",
    "Edit",
    "Event",
    "Fired",
    "FrameSkipped",
    "FrameStart",
    "FunctionLines",
    "Fusion",
    "GraphBreak",
    "Guards",
    "Kernel",
    "Kernels",
    "Metrics",
    "OutputCode",
    "OutputGraph",
    "Partition",
    "PassRan",
    "Provenance",
    "Recompile",
    "RecompileCause",
    "RecompileLimit",
    "Region",
    "RegionsRan",
    "Remembered",
    "Sink",
    "SourceLines",
    "Span",
    "StackFrame",
    "StageRan",
    "Stamped",
    "Steps",
    "add_sink",
    "capture_events",
    "cause_id",
    "compiling",
    "current_compile",
    "emit",
    "emit_all",
    "enabled",
    "instant",
    "log_enabled",
    "packed",
    "phase_seconds",
    "plain_function",
    "process_rank",
    "remove_sink",
    "setup_from_environment",
    "stage",
    "stage_path",
    "unpacked",
    "warn",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        for home in [import_module(one) for one in _LATE]:  # all: each puts rows into `EVENTS`
            if hasattr(home, name):
                value = globals()[name] = getattr(home, name)
                return value
    raise AttributeError(f"module 'tc.trace' has no attribute {name!r}")
