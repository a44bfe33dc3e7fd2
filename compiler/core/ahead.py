"""Whether a frame is compiled ahead: as it does not run, its compile changes nothing live.

What the compile meets is noted without a trace: entries of the cache differ with and without one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from tc import trace


@dataclass
class Noted:
    """What was met while a frame was compiled ahead.

    Attributes:
        breaks: graph breaks, in order.
        lookups: whether each graph was found in the cache.
    """

    breaks: list[trace.GraphBreak] = field(default_factory=list)
    lookups: list[bool] = field(default_factory=list)


_NOTED: ContextVar[Noted | None] = ContextVar("noted", default=None)


def is_ahead() -> bool:
    """Return whether what is captured now is not going to run."""
    return _NOTED.get() is not None


def noted() -> Noted | None:
    """Return where to note what is met; None if what is compiled is going to run."""
    return _NOTED.get()


@contextmanager
def compiled_ahead() -> Iterator[Noted]:
    """Mark what is captured in a block as not going to run."""
    made = Noted()
    token = _NOTED.set(made)
    try:
        yield made
    finally:
        _NOTED.reset(token)
