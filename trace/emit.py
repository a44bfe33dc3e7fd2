"""The compiler emits events here; each open sink gets every event."""

from __future__ import annotations

import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache, wraps
from types import ModuleType
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

from tc.trace.ids import CompileId

if TYPE_CHECKING:  # where nobody listens there are no events
    from tc.trace.events import Event, Stamped

E = TypeVar("E", bound="Event")
P = ParamSpec("P")
R = TypeVar("R")


class Sink(Protocol):
    """Something that receives events. It may raise: `emit` then removes it.

    One whose ``takes_records`` is true gets replayed events as `Remembered`, not as the events.
    One with ``write_all`` gets events that are emitted together as one list, of either kind.
    One with ``mark`` gets marks on the timeline as their text.
    """

    def write(self, stamped: Stamped) -> None:
        """Take one event."""


class _State:
    """Process-wide, because backward compiles run in threads that inherit no context."""

    def __init__(self) -> None:
        self.sinks: tuple[Sink, ...] = ()  # replaced whole, so that emit needs no lock
        self.lock = threading.RLock()

    def forget_locks(self) -> None:
        """In a forked child: another thread of the parent may have held the lock."""
        self.lock = threading.RLock()


@dataclass
class _Compiling:
    id: CompileId
    text: str
    phases: dict[str, float] = field(default_factory=dict)


_state = _State()
os.register_at_fork(after_in_child=_state.forget_locks)
_compiling: ContextVar[_Compiling | None] = ContextVar("tc_compiling", default=None)
_stages: ContextVar[tuple[str, ...]] = ContextVar("tc_stages", default=())


class _Spent(threading.local):
    """The time that a thread has spent in stages, for what measures the time around them."""

    seconds = 0.0


_spent = _Spent()


# --- sinks --------------------------------------------------------------------------------------


def enabled() -> bool:
    """Return whether a sink is open; ask before building an expensive event."""
    return bool(_state.sinks)


def add_sink(sink: Sink) -> None:
    """Send all events to a sink from now on."""
    with _state.lock:
        _state.sinks = (*_state.sinks, sink)


def remove_sink(sink: Sink) -> None:
    """Send no more events to a sink; no error if it is gone already."""
    with _state.lock:
        _state.sinks = tuple(other for other in _state.sinks if other is not sink)


def log_enabled(topic: str) -> bool:
    """Return whether the readable log of that topic is switched on (``TC_LOGS``)."""
    return any(getattr(sink, "levels", {}).get(topic, 0) for sink in _state.sinks)


def emit(event: Event, compile_id: CompileId | None = None) -> None:
    """Send an event to all sinks; never raises. The compile is the current one unless given."""
    sinks = _state.sinks
    if sinks:
        origin, now = sys._getframe(1), time.time_ns()
        at = origin.f_code.co_filename, origin.f_lineno
        stamped = _events().Stamped(event, compile_id or current_compile(), now, *at)
        _deliver(sinks, lambda sink: _write(sink, stamped))


def emit_all(events: Sequence[Event]) -> None:
    """Send several events to all sinks together; as `emit` one by one, but a file has one write."""
    sinks = _state.sinks
    if not sinks or not events:
        return
    origin, now, compile_id = sys._getframe(1), time.time_ns(), current_compile()
    at = origin.f_code.co_filename, origin.f_lineno
    stamped = [_events().Stamped(event, compile_id, now, *at) for event in events]

    def write(sink: Sink) -> None:
        write_all = getattr(sink, "write_all", None)
        if write_all is not None:
            write_all(stamped)
            return
        for one in stamped:
            _write(sink, one)

    _deliver(sinks, write)


@cache
def _events() -> ModuleType:
    from tc.trace import events  # here, because where nobody listens there are none

    return events


def _deliver(sinks: tuple[Sink, ...], write: Callable[[Sink], None]) -> None:
    """Call ``write`` with each sink; a sink that raises is removed."""
    for sink in sinks:
        try:
            write(sink)
        except Exception as error:
            _remove_broken(sink, error)


def _write(sink: Sink, stamped: Stamped) -> None:
    if not getattr(sink, "takes_records", False):
        from tc.trace.remembered import Remembered

        if isinstance(stamped.event, Remembered):
            stamped = stamped._replace(event=stamped.event.original)
    sink.write(stamped)


def _remove_broken(sink: Sink, error: Exception) -> None:
    """Remove a broken sink and say so once; the user's program must not notice more."""
    with _state.lock:
        known = any(sink is other for other in _state.sinks)
        remove_sink(sink)
    if known:
        warn(f"{sink} stopped ({type(error).__name__}: {error}); the program continues without it")


def warn(text: str) -> None:
    """Log one sentence through the ``tc`` logger, by default on stderr; never raises."""
    import logging  # here, because a quiet process never needs it

    with suppress(Exception):
        logging.getLogger("tc").warning("tc: %s", text)


def reports(missing: Callable[[], Any]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Mark a function that only reports what happens: where it fails the program does not.

    Args:
        missing: makes what is returned then.
    """

    def marked(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def reporting(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return function(*args, **kwargs)
            except Exception as error:
                report_loss(function.__name__, error)
                instead: R = missing()
                return instead

        return reporting

    return marked


def report_loss(name: str, error: Exception) -> None:
    """Warn that an event could not be made."""
    found = f"{name} failed ({type(error).__name__}: {error})"
    warn(f"the trace lacks an event: {found}; this is a bug in tc, and the program continues")


def after_fork_in_child(method: Callable[[], None]) -> None:
    """Call a bound method in each forked child, as long as its object lives."""
    # The hook cannot be taken back, so it must not keep the object alive.
    known = weakref.WeakMethod(method)
    os.register_at_fork(after_in_child=lambda: (known() or nothing)())


def nothing() -> None:
    """Do nothing, for an object that is gone or in place of a function that fails."""


class CapturedEvents(list["Event"]):
    """The events emitted so far, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.stamped: list[Stamped] = []

    def write(self, stamped: Stamped) -> None:
        """See `Sink`."""
        self.stamped.append(stamped)
        self.append(stamped.event)

    def of(self, kind: type[E]) -> list[E]:
        """Return the events of one kind."""
        return [event for event in self if isinstance(event, kind)]


@contextmanager
def capture_events() -> Iterator[CapturedEvents]:
    """Collect all events of the process in a list, for tests and for `tc.explain`."""
    events = CapturedEvents()
    add_sink(events)
    try:
        yield events
    finally:
        remove_sink(events)


# --- where we are -------------------------------------------------------------------------------


@contextmanager
def compiling(compile_id: CompileId) -> Iterator[None]:
    """Mark all that happens inside as part of that compile.

    Attempts nested in one compile share its table of phases.
    """
    outer = _compiling.get()
    inner = _Compiling(compile_id, str(compile_id))
    if outer is not None and _same_compile(outer.id, compile_id):
        inner.phases = outer.phases
    token = _compiling.set(inner)
    try:
        yield
    finally:
        _compiling.reset(token)


def _same_compile(one: CompileId, other: CompileId) -> bool:
    return (one.frame, one.compile) == (other.frame, other.compile)


def current_compile() -> CompileId | None:
    """Return the compile this code works for, or None."""
    current = _compiling.get()
    return None if current is None else current.id


def stage_path() -> tuple[str, ...]:
    """Return the names of the stages we are in, outermost first."""
    return _stages.get()


def staged_seconds() -> float:
    """Return the seconds that this thread has spent in stages so far, no instant counted twice."""
    return _spent.seconds


def leave_out(seconds: float) -> None:
    """Count seconds as spent in stages: what measures the time around them is to leave them out."""
    _spent.seconds += seconds


def phase_seconds() -> dict[str, float]:
    """Return stage name -> seconds the current compile has spent in it, inner stages included."""
    current = _compiling.get()
    return {} if current is None else dict(current.phases)


@contextmanager
def stage(name: str, **args: object) -> Iterator[None]:
    """Put a named stretch of work on the timeline and into the compile's phase table."""
    path = _stages.get()
    token = _stages.set((*path, name))
    _mark(name, "B", args)
    began = time.perf_counter()
    ended_by: dict[str, object] = {}
    try:
        yield
    except BaseException as error:
        ended_by["error"] = type(error).__name__
        raise
    finally:
        seconds = time.perf_counter() - began
        _mark(name, "E", ended_by)
        _stages.reset(token)
        if not path:
            _spent.seconds += seconds
        current = _compiling.get()
        # A stage inside itself is timed once, by the outer one.
        if current is not None and name not in path:
            current.phases[name] = current.phases.get(name, 0.0) + seconds


def instant(name: str, **args: object) -> None:
    """Put a point on the timeline."""
    _mark(name, "i", args)


def _mark(name: str, ph: str, args: dict[str, object]) -> None:
    sinks = _state.sinks
    if not sinks:
        return
    current = _compiling.get()
    known: dict[str, object] = {} if current is None else {"compile_id": current.text}
    known["stage"] = "/".join(_stages.get())
    known.update(args)
    now, origin = time.time_ns(), sys._getframe()
    compile_id = None if current is None else current.id
    at = now, origin.f_code.co_filename, origin.f_lineno
    mark = name, ph, now / 1000, os.getpid(), threading.get_native_id(), known
    events = _events()

    def write(sink: Sink) -> None:
        write_mark = getattr(sink, "mark", None)
        if write_mark is not None:
            write_mark(events.mark_text(*mark), compile_id, *at)
        else:
            _write(sink, events.Stamped(events.Span(*mark), compile_id, *at))

    _deliver(sinks, write)


# --- the environment ----------------------------------------------------------------------------
