"""The stages of a compile go in; where one takes long, a line on a terminal reports it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, TextIO

from tc.trace.chains import clean
from tc.trace.emit import after_fork_in_child
from tc.trace.events import FrameStart, Span, Stamped
from tc.trace.ids import plain_function
from tc.trace.timing import phase_of

PATIENCE: Final = 10.0  # seconds before the first line
EVERY: Final = 1.0
WIDTH: Final = 79
ERASE: Final = "\r\x1b[K"


@dataclass
class _Open:
    """A compile under way in one thread: when it began, what it is of, the stages it is in."""

    began: float
    compile: str
    function: str = ""
    stages: list[str] = field(default_factory=list)

    def line(self, now: float) -> str:
        name = " ".join(part for part in (self.function, f"[{self.compile}]") if part)
        text = f"tc: compiling {name}: {phase_of(self.stages[-1])}, {now - self.began:.0f} s"
        return clean(text)[:WIDTH]


class Heartbeat:
    """A sink that rewrites one line of a terminal during long compiles, and erases it.

    One thread looks, started at the first compile. While compiles are short it wakes once in
    `patience` seconds of compiling, and never while none is under way.

    Args:
        stream: a terminal.
        clock: seconds; only differences count.
        threaded: False leaves it to the caller to call `beat`.
    """

    takes_records = True

    def __init__(
        self,
        stream: TextIO,
        *,
        clock: Callable[[], float] = time.monotonic,
        patience: float = PATIENCE,
        every: float = EVERY,
        threaded: bool = True,
    ) -> None:
        self._stream = stream
        self._clock = clock
        self._patience = patience
        self._every = every
        self._threaded = threaded
        self._start_over()
        after_fork_in_child(self._start_over)

    def __str__(self) -> str:
        return "the line about long compiles"

    def _start_over(self) -> None:
        self._changed = threading.Condition()
        self._open: dict[int, _Open] = {}
        self._thread: threading.Thread | None = None
        self._idle = False
        self._closed = False
        self._shown = False

    def write(self, stamped: Stamped) -> None:
        """Take one event; see `tc.trace.emit.Sink`. Sinks that come after find a clean line."""
        event = stamped.event
        with self._changed:
            if isinstance(event, Span):
                self._stage(event)
                return
            self._erase()
            current = self._open.get(threading.get_native_id())
            if isinstance(event, FrameStart) and event.stack and current is not None:
                current.function = plain_function(event.stack[-1].name)

    def close(self) -> None:
        """End the thread; nothing more is written."""
        with self._changed:
            self._erase()
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def _stage(self, span: Span) -> None:
        current = self._open.get(span.tid)
        if span.ph == "B":
            if current is None:
                compiled = str(span.args.get("compile_id", ""))
                if not compiled:
                    return
                current = self._open[span.tid] = _Open(self._clock(), compiled)
                self._awake()
            current.stages.append(span.name)
        elif span.ph == "E" and current is not None:
            current.stages.pop()
            if not current.stages:
                del self._open[span.tid]
                self._erase()

    def _awake(self) -> None:
        """See to it that somebody looks at the clock."""
        if self._threaded and self._thread is None:
            self._thread = threading.Thread(target=self._run, name="tc-heartbeat", daemon=True)
            self._thread.start()
        elif self._idle:
            self._changed.notify()

    def _erase(self) -> None:
        if self._shown:
            self._shown = False
            self._stream.write(ERASE)
            self._stream.flush()

    def beat(self) -> float | None:
        """Write the line if it is due; return the seconds until the next look, None when idle."""
        with self._changed:
            if not self._open:
                return None
            now = self._clock()
            longest = min(self._open.values(), key=lambda one: one.began)
            left = longest.began + self._patience - now
            if left > 0:
                return left
            self._stream.write(f"{ERASE}{longest.line(now)}")
            self._stream.flush()
            self._shown = True
            return self._every

    def _run(self) -> None:
        with suppress(Exception), self._changed:  # the terminal may be gone
            while not self._closed:
                wait = self.beat()
                self._idle = wait is None
                self._changed.wait(wait)
