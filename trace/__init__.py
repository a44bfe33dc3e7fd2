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
    leave_out,
    log_enabled,
    nothing,
    phase_seconds,
    remove_sink,
    reports,
    stage,
    stage_path,
    staged_seconds,
    warn,
)
from tc.trace.ids import CompileId, cause_id, plain_function, process_rank
from tc.trace.places import StackFrame
from tc.trace.setup import setup_from_environment

if TYPE_CHECKING:
    from tc.trace.events import *  # noqa: F403
    from tc.trace.remembered import Remembered, packed, unpacked
    from tc.trace.run_events import *  # noqa: F403
    from tc.trace.source_events import *  # noqa: F403
    from tc.trace.stage_events import *  # noqa: F403

__all__ = [
    "CapturedEvents",
    "CompileId",
    "Remembered",
    "Sink",
    "StackFrame",
    "add_sink",
    "capture_events",
    "cause_id",
    "compiling",
    "current_compile",
    "emit",
    "emit_all",
    "enabled",
    "instant",
    "leave_out",
    "log_enabled",
    "nothing",
    "packed",
    "phase_seconds",
    "plain_function",
    "process_rank",
    "remove_sink",
    "reports",
    "setup_from_environment",
    "stage",
    "stage_path",
    "staged_seconds",
    "unpacked",
    "warn",
]


def __getattr__(name: str) -> Any:
    """Return what a file of events defines, loaded when it is first asked for."""
    if name[0].isupper() or name in ("packed", "unpacked"):
        files = import_module("tc.trace.all_events").FILES
        for home in (*files, import_module("tc.trace.remembered")):
            value = getattr(home, name, None)
            if name == "EVENTS" or getattr(value, "__module__", "") == home.__name__:
                globals()[name] = value
                return value
    raise AttributeError(f"module 'tc.trace' has no attribute {name!r}")
