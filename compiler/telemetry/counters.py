"""Counts how often compiled graphs are called, and takes the time of some calls, for the trace;
and how often functions run in Python that are not compiled (any more).

Only what is compiled, or given up, while a trace is open is counted; all else runs as it is.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

from torch import fx

from tc import trace
from tc.compiler.capture import hook
from tc.compiler.telemetry.calls import CallCount
from tc.compiler.telemetry.profile import programs
from tc.trace import CompileId, StackFrame

#: of so many calls of a graph, the first is timed
SAMPLED = 16
#: seconds between two records of a running process
PERIOD = 30.0
#: the number of graphs in a record, those called most
MOST = 1000


@dataclass
class _Counts:
    """What is known so far of one graph.

    Attributes:
        lock: held while a timed call is added, so that none is lost.
    """

    compile_id: CompileId
    place: StackFrame
    how: str
    calls: CallCount = field(default_factory=CallCount)
    sampled: int = 0
    seconds: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def sample(self, seconds: float) -> None:
        """Add what a call took."""
        with self.lock:
            self.seconds += seconds
            self.sampled += 1

    def start_over(self) -> None:
        """Forget the calls so far, and who had the lock."""
        self.calls.start_over()
        self.sampled, self.seconds = 0, 0.0
        self.lock = threading.Lock()


class _Counters:
    """The counted graphs of this process."""

    def __init__(self) -> None:
        self.graphs: list[_Counts] = []
        self.reported_at = time.monotonic()
        self.calls_emitted = 0

    def add(self, counts: _Counts) -> None:
        if not self.graphs:
            atexit.unregister(self.report)
            atexit.register(self.report)
        self.graphs.append(counts)

    @trace.reports(trace.nothing)
    def report(self) -> None:
        """Emit the counts, if there is anything new."""
        self.reported_at = time.monotonic()
        programs.report()
        numbered = [(int(one.calls), one) for one in tuple(self.graphs)]
        calls = sum(number for number, _ in numbered)
        if calls == self.calls_emitted:
            return
        self.calls_emitted = calls
        called = sorted((row for row in numbered if row[0]), key=lambda row: -row[0])
        regions = tuple(
            trace.Region(
                str(one.compile_id), one.place.name, one.place.file, one.place.line, one.how,
                number, one.sampled, one.seconds,
            )
            for number, one in called[:MOST]
        )  # fmt: skip
        trace.emit(trace.RegionsRan(regions, len(called) - len(regions)))

    def forget(self) -> None:
        """Emit the counts, and forget the graphs: other compiles get their ids."""
        self.report()
        self.graphs.clear()
        programs.forget()
        self.calls_emitted = 0

    def start_over(self) -> None:
        """In a forked child: the calls so far were the parent's."""
        self.calls_emitted = 0
        for one in self.graphs:
            one.start_over()
        programs.start_over()


_counters = _Counters()
os.register_at_fork(after_in_child=_counters.start_over)


def with_counter(
    compiled: Callable[..., Any], compile_id: CompileId, place: StackFrame
) -> Callable[..., Any]:
    """Return what calls a compiled graph and counts that; the graph itself if no sink is open.

    Args:
        place: of the function that the graph is of.
    """
    if not trace.enabled():
        return compiled
    ran_as = "operations" if isinstance(_owner(compiled), fx.GraphModule) else "compiled"
    counts = _Counts(compile_id, place, ran_as)
    _counters.add(counts)
    facts = programs.facts(compile_id, place)
    calls, clock = counts.calls, time.perf_counter

    def call(*args: Any) -> Any:
        if next(calls.numbers) % SAMPLED != 1:
            return compiled(*args)
        began, staged = clock(), trace.staged_seconds()
        result = compiled(*args)
        seconds = clock() - began
        counts.sample(seconds)
        facts.whole.append(seconds - (trace.staged_seconds() - staged))
        if time.monotonic() - _counters.reported_at > PERIOD:
            _counters.report()
        return result

    return hook.never_trace(call)


class _Monitor:
    """Counts the frames of given code objects that Python's own interpreter starts.

    Torch's hook runs code that is given up without asking anybody. Compiled entries of a code
    object are code objects of their own, so what is counted of the user's is what ran in Python.
    Needs `sys.monitoring` (Python 3.12) and one of its two free numbers for tools.
    """

    def __init__(self) -> None:
        self._tool: int | None = None
        self.watched: dict[int, tuple[CodeType, _Counts]] = {}

    def watch(self, code: CodeType, counts: _Counts) -> bool:
        """Count the frames of a code object from now on; return whether that is possible."""
        if sys.version_info < (3, 12):
            return False
        events = sys.monitoring.events
        if self._tool is None:
            free = [one for one in _TOOLS if sys.monitoring.get_tool(one) is None]
            if not free:
                return False
            self._tool = free[0]
            sys.monitoring.use_tool_id(self._tool, "tc")
            sys.monitoring.register_callback(self._tool, events.PY_START, self._started)
        self.watched[id(code)] = code, counts
        sys.monitoring.set_local_events(self._tool, code, events.PY_START)
        return True

    def forget(self) -> None:
        """Count nothing any more: what was given up may be compiled again."""
        if sys.version_info >= (3, 12) and self._tool is not None:
            for code, _ in list(self.watched.values()):
                sys.monitoring.set_local_events(self._tool, code, sys.monitoring.events.NO_EVENTS)
        self.watched.clear()

    def _started(self, code: CodeType, offset: int) -> None:
        watched = self.watched.get(id(code))
        if watched is not None:  # another thread may have just forgotten it
            next(watched[1].calls.numbers)


_TOOLS = (3, 4)  # the others have names: debugger, coverage, profiler, optimizer
_monitor = _Monitor()


def count_in_python(code: CodeType, compile_id: CompileId) -> None:
    """Count the calls of a function that run in Python from now on, if somebody listens."""
    if not trace.enabled() or id(code) in _monitor.watched:
        return
    place = StackFrame(code.co_filename, code.co_firstlineno, code.co_qualname)
    counts = _Counts(compile_id, place, "python")
    if _monitor.watch(code, counts):
        _counters.add(counts)


def emit_counts() -> None:
    """Emit the counts now; that is done by itself now and then, and when the process ends."""
    _counters.report()


def reset() -> None:
    """Emit the counts now, and begin again."""
    _counters.forget()
    _monitor.forget()


def _owner(compiled: Callable[..., Any]) -> Any:
    while hasattr(compiled, "__wrapped__"):
        compiled = compiled.__wrapped__
    return getattr(compiled, "__self__", None)
