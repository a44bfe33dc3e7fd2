"""The environment goes in (TC_TRACE, TC_LOGS); open sinks come out."""

from __future__ import annotations

import functools
import os
import sys
from typing import TYPE_CHECKING

from tc.trace.emit import add_sink, warn
from tc.trace.ids import process_rank

if TYPE_CHECKING:
    from tc.trace.heartbeat import Heartbeat


@functools.cache
def setup_from_environment() -> None:
    """Open the sinks that TC_TRACE and TC_LOGS ask for; reads them once, never raises."""
    try:
        if (beating := heartbeat()) is not None:
            add_sink(beating)  # the first of all: what others print finds a clean line
        _open_trace(os.environ.get("TC_TRACE"))
        _open_logs(os.environ.get("TC_LOGS"))
    except Exception as error:
        warn(f"TC_TRACE/TC_LOGS had no effect ({type(error).__name__}: {error})")


def _open_trace(directory: str | None) -> None:
    if directory is None:
        return
    if directory.strip():
        from tc.trace.writer import TraceWriter  # hashlib: only when somebody wants a trace

        add_sink(TraceWriter(directory))
    else:
        warn("TC_TRACE is empty: nothing is recorded; set it to a folder, e.g. TC_TRACE=tc_trace")


def _open_logs(switches: str | None) -> None:
    if switches is None or not switches.strip():
        return
    from tc.trace.logs import setup_from_text  # structlog: only when somebody wants logs

    setup_from_text(switches, os.environ.get("TC_LOGS_FORMAT"), os.environ.get("TC_LOGS_OUT"))


def heartbeat() -> Heartbeat | None:
    """Return the reporter of long compiles, where it was asked for and stderr is a terminal."""
    asked = any(os.environ.get(name, "").strip() for name in ("TC_TRACE", "TC_LOGS"))
    if not asked or sys.stderr is None or not sys.stderr.isatty():
        return None
    if os.environ.get("TERM") == "dumb" or process_rank():
        return None  # one line that cannot be erased, or that several ranks write
    from tc.trace.heartbeat import Heartbeat  # only where there is a terminal

    return Heartbeat(sys.stderr)
