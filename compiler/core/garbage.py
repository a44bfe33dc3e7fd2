"""Compiling without passes of the cyclic garbage collector.

A compile makes many objects that live as long as it does, so the collector walks over everything
the process holds, again and again, and finds nothing: a third of the time of a small compile.
"""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

#: how many blocks end before the user's frozen objects are counted again: that walks over them
COUNTED_AGAIN = 100


class _Blocks:
    """Counts the blocks at work in each thread; none where the user has the collector off."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.of: dict[int, int] = {}
        self.uncounted = 0

    def enter(self) -> bool:
        """Turn the collector off; returns whether there is anything to undo."""
        me = threading.get_ident()
        with self.lock:
            was_on = bool(self.of) or gc.isenabled()
            if was_on:
                self.of[me] = self.of.get(me, 0) + 1
                gc.disable()
            return was_on

    def leave(self, all_of_thread: bool = False) -> None:
        """Turn the collector on again with the last block."""
        me = threading.get_ident()
        with self.lock:
            left = self.of.pop(me, 0) - 1
            if left > 0 and not all_of_thread:
                self.of[me] = left
            elif left >= 0 and not self.of:
                self._settle()
                gc.enable()

    def _settle(self) -> None:
        """Count what was made as old without a pass over it: it lives as long as what was compiled.

        Not where the user has frozen objects, which would thaw.
        """
        if self.uncounted:
            self.uncounted -= 1
        elif gc.get_freeze_count():
            self.uncounted = COUNTED_AGAIN
        else:
            gc.freeze()
            gc.unfreeze()

    def start_over(self) -> None:
        """In a forked child: the blocks of all other threads are gone."""
        self.lock = threading.Lock()
        mine = self.of.pop(threading.get_ident(), 0)
        others, self.of = self.of, {}
        if mine:
            self.of[threading.get_ident()] = mine
        elif others:
            gc.enable()


_BLOCKS = _Blocks()
os.register_at_fork(after_in_child=_BLOCKS.start_over)


@contextmanager
def paused() -> Iterator[None]:
    """Keep the collector off in a block, where it was on; blocks may nest and run in threads."""
    was_on = _BLOCKS.enter()
    try:
        yield
    finally:
        if was_on:
            _BLOCKS.leave()


def end_of_thread() -> None:
    """End the blocks of this thread that are still open: Ctrl-C may come as one is entered."""
    if _BLOCKS.of:
        _BLOCKS.leave(all_of_thread=True)
