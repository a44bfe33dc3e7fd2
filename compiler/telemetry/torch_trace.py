"""Puts events of tc into PyTorch's own TORCH_TRACE log, where PyTorch captured the graph.

In: events of compiles that PyTorch numbers. Out: records of its log, each under its compile id.
"""

from __future__ import annotations

import importlib
import json
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch._logging import _internal as torch_logging
from torch._logging.structured import intern_string

from tc import trace
from tc.trace import CompileId, StackFrame
from tc.trace.wire import Payload, RawJson, plain


@dataclass(frozen=True, order=True)
class TorchCompileId(CompileId):
    """A compile that PyTorch numbers.

    Attributes:
        theirs: PyTorch's own id of it, which may name a compile of its compiled autograd.
    """

    theirs: Any = field(default=None, compare=False)


def current_torch_compile() -> TorchCompileId | None:
    """Return the compile that PyTorch works on now, or None."""
    found = torch._guards.CompileContext.current_trace_id()
    if found is None:
        return None
    theirs = found.compile_id
    return TorchCompileId(theirs.frame_id or 0, theirs.frame_compile_id or 0, found.attempt, theirs)


class TorchTrace:
    """Hears events; writes those of PyTorch's compiles to PyTorch's log."""

    def __str__(self) -> str:
        return "events in TORCH_TRACE"

    def write(self, stamped: Any) -> None:
        """See `trace.Sink`."""
        compile_id = stamped.compile_id
        if not isinstance(compile_id, TorchCompileId) or _known_to_torch(stamped.event):
            return
        for record in stamped.event.to_records():
            payload = record.payload
            text = payload.text if isinstance(payload, Payload) else payload
            metadata = _encoded(record.metadata)
            torch_logging.trace_structured(
                record.key,
                metadata_fn=partial(_given, metadata),
                payload_fn=partial(_given, text),
                suppress_context=not record.in_compile,
                compile_id=compile_id.theirs,
            )


def _known_to_torch(event: trace.Event) -> bool:
    """Return whether PyTorch's log has its own record of what an event reports."""
    if isinstance(event, trace.Metrics):
        return event.is_forward
    return isinstance(event, trace.FrameStart | trace.OutputGraph)


def _given(value: Any) -> Any:
    return value


_SINK = TorchTrace()


def follow_torch_trace() -> None:
    """Hear events while PyTorch writes a log, and stop when it no longer does."""
    trace.remove_sink(_SINK)
    if torch_logging.trace_log.handlers:
        trace.add_sink(_SINK)


def follow_torch_logs() -> None:
    """Report what the program has switched on in TORCH_LOGS of what tc does here."""
    names = torch_logging.log_state.artifact_names
    if names or _FOLLOWED:
        logs = importlib.import_module("tc.trace.logs")  # which few programs need
        logs.follow(names)
        _FOLLOWED[:] = names


#: what was asked for at the last compile
_FOLLOWED: list[str] = []


def _encoded(value: Any) -> Any:
    """Return metadata as JSON holds it, file names of stacks by their numbers in PyTorch's log."""
    if isinstance(value, StackFrame):
        return {
            "line": value.line,
            "name": value.name,
            "filename": intern_string(value.file),
            "loc": value.loc,
        }
    if isinstance(value, RawJson):
        return json.loads(value)
    if isinstance(value, dict):
        return {str(key): _encoded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_encoded(item) for item in value]
    if value is None or isinstance(value, str | bool | int | float):
        return value
    return _encoded(plain(value))
