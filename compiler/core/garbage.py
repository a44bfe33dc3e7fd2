"""Compiling without passes of the cyclic garbage collector.

A compile makes many objects that live as long as it does, so the collector walks over everything
the process holds, again and again, and finds nothing: a third of the time of a small compile.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class _Blocks:
    """Counts the blocks at work in all threads."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.count = 0

    def enter(self) -> bool:
        """Turn the collector off; returns whether there is anything to undo."""
        with self.lock:
            ours = self.count > 0 or gc.isenabled()
            self.count += ours
            if ours:
                gc.disable()
            return ours

    def leave(self) -> None:
        """Turn the collector on again with the last block."""
        with self.lock:
            self.count -= 1
            if not self.count:
                _settle()
                gc.enable()


def _settle() -> None:
    """Count what was made as old without a pass over it: it lives as long as what was compiled."""
    if not gc.get_freeze_count():  # else the user has frozen objects, which would thaw
        gc.freeze()
        gc.unfreeze()


_BLOCKS = _Blocks()


@contextmanager
def paused() -> Iterator[None]:
    """Keep the collector off in a block, where it was on; blocks may nest and run in threads."""
    ours = _BLOCKS.enter()
    try:
        yield
    finally:
        if ours:
            _BLOCKS.leave()
