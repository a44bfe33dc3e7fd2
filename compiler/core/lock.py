"""The compile lock: one thread compiles at a time, and no thread waits for it without end.

A compile reads and writes what all compiles of a process share: interned expressions, counters, the
state kept with a code object. `alone` runs a piece of it in one thread at a time. The thread that
has the lock may take it again. A thread that has waited `Config.compile_wait` seconds for one and
the same holder gives up, and does without: the holder may be waiting for that very thread, as it
may run functions of the user's (backends, listeners, kernels of fake tensors).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from tc.compiler.core import garbage
from tc.compiler.options import config

T = TypeVar("T")
U = TypeVar("U")


class _CompileLock:
    """The lock of this process, and how often it was taken."""

    def __init__(self) -> None:
        self.lock: Any = threading.RLock()
        self.holdings = 0
        self.in_background = False
        self.given_up = threading.local()

    def owned(self) -> bool:
        """Return whether this thread has the lock."""
        return bool(self.lock._is_owned())

    def wait(self, for_background: bool) -> bool:
        """Take the lock; returns False where one holder kept it for too long.

        Args:
            for_background: also wait for a compile that nobody waits for.
        """
        while not self.lock.acquire(blocking=False):
            if self.in_background and not for_background:
                return False
            holding = self.holdings
            if getattr(self.given_up, "holding", None) == holding:
                return False  # waiting again for the same holder would be as much in vain
            if self.lock.acquire(timeout=max(0.0, config.compile_wait)):
                break
            if self.holdings == holding:
                self.given_up.holding = holding
                return False
        self.holdings += 1
        return True

    def start_over(self) -> None:
        """In a forked child: a thread that is gone may have had the lock."""
        if not self.owned():
            self.lock = threading.RLock()
            self.in_background = False


_LOCK = _CompileLock()
os.register_at_fork(after_in_child=_LOCK.start_over)


def alone(
    work: Callable[[], T], otherwise: Callable[[], U], *, for_background: bool = True
) -> T | U:
    """Run ``work`` while no other thread compiles; ``otherwise``, without the lock, if it is kept.

    Args:
        for_background: wait for a compile in the background, too.

    Whatever ``work`` raises, Ctrl-C included, the lock is free afterwards.
    """
    if _LOCK.owned():
        return work()
    try:
        # An interrupt may come right after the lock is taken, so it is asked who has it.
        return work() if _LOCK.wait(for_background) else otherwise()
    finally:
        if _LOCK.owned():
            garbage.end_of_thread()
            _LOCK.lock.release()


def alone_in_background(work: Callable[[], None]) -> None:
    """Run ``work`` while no other thread compiles; calls of compiled functions do not wait for it.

    A call that would compile something meanwhile does without, that time.
    """
    with _LOCK.lock:
        _LOCK.holdings += 1
        _LOCK.in_background = True
        try:
            work()
        finally:
            _LOCK.in_background = False
            garbage.end_of_thread()
