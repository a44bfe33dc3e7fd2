"""A feed goes in; messages with what was read come out, from threads nobody has to wait for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from textual.message import Message

from tc.trace.findings import Diagnosis
from tc.trace.reader import Unreadable
from tc.trace.session import Session
from tc.trace.writers import Job
from tc.tui.feed import Feed
from tc.tui.views.log import Entry, records

PAUSE: Final = 0.5  # seconds between two looks at a growing trace
_REST: Final = 4  # reading may take one part in five of the time


class Arrived(Message):
    """The trace was read, or its beginning (`partial`)."""

    def __init__(self, diagnosis: Diagnosis, partial: bool) -> None:
        super().__init__()
        self.diagnosis, self.partial = diagnosis, partial


class Failed(Message):
    """The trace could not be read."""

    def __init__(self, reason: str) -> None:
        super().__init__()
        self.reason = reason


class Stands(Message):
    """How the program stands that writes the trace was looked at."""

    def __init__(self, job: Job) -> None:
        super().__init__()
        self.job = job


class Broke(Message):
    """A thread raised an error of tc's; the application has to show it."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error


class Listed(Message):
    """Some records of the log were listed."""

    def __init__(self, session: Session, batch: list[Entry], first: bool, last: bool) -> None:
        super().__init__()
        self.session, self.batch, self.first, self.last = session, batch, first, last


class Background:
    """Reads a trace in threads of its own.

    They are daemons and only post messages: to leave, nobody waits until a long trace is read.
    """

    def __init__(self, feed: Feed, post: Callable[[Message], object], following: bool) -> None:
        self.feed, self.post, self.following = feed, post, following
        self._threads: dict[str, threading.Thread] = {}
        self._stops: dict[str, threading.Event] = {}

    @property
    def busy(self) -> bool:
        """Whether something is still being read."""
        return any(thread.is_alive() for thread in self._threads.values())

    def read(self, first: bool) -> None:
        """Read the trace; while following, again whenever it has grown."""
        self._start("read", lambda stop: self._read(first, stop))

    def list_records(self, session: Session) -> None:
        """List the records of all logs of a session."""
        self._start("log", lambda stop: self._list(session, stop))

    def stop(self) -> None:
        """Let all threads end when they can."""
        for stop in self._stops.values():
            stop.set()

    def _start(self, name: str, job: Callable[[threading.Event], None]) -> None:
        """Run a job in a thread, in place of an earlier one of that name."""
        if name in self._stops:
            self._stops[name].set()
        stop = self._stops[name] = threading.Event()

        def run() -> None:
            try:
                job(stop)
            except Exception as error:
                self.post(Broke(error))

        self._threads[name] = threading.Thread(target=run, name=f"{name} of tc-tui", daemon=True)
        self._threads[name].start()

    def _read(self, first: bool, stop: threading.Event) -> None:
        while not stop.is_set():
            if first or self.feed.changed():
                self._read_once(first)
                first = False
            if not self.following:
                return
            if (job := self.feed.job()) is not None:
                self.post(Stands(job))
            stop.wait(max(PAUSE, _REST * self.feed.took))

    def _read_once(self, first: bool) -> None:
        try:
            if first and (glimpse := self.feed.glimpse()) is not None:
                self.post(Arrived(glimpse, partial=True))
            self.post(Arrived(self.feed.read(), partial=False))
        except Unreadable as error:
            self.post(Failed(str(error)))

    def _list(self, session: Session, stop: threading.Event) -> None:
        first = True
        for index, source in enumerate(session.sources):
            last_source = index == len(session.sources) - 1
            batches = records(source, index)
            batch: list[Entry] | None = next(batches, None)
            while batch is not None and not stop.is_set():
                following = next(batches, None)
                self.post(Listed(session, batch, first, last_source and following is None))
                batch, first = following, False
                time.sleep(0)  # the screen comes first
