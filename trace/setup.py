"""The environment goes in (TC_TRACE, TC_LOGS); open sinks come out."""

from __future__ import annotations

import functools
import os

from tc.trace.emit import add_sink, warn


@functools.cache
def setup_from_environment() -> None:
    """Open the sinks that TC_TRACE and TC_LOGS ask for; reads them once, never raises."""
    try:
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
