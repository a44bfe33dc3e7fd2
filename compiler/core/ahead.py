"""Whether a frame is compiled ahead: it does not run, so its compile changes nothing that is live."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_AHEAD: ContextVar[bool] = ContextVar("ahead", default=False)


def is_ahead() -> bool:
    """Return whether what is captured now is not going to run."""
    return _AHEAD.get()


@contextmanager
def compiled_ahead() -> Iterator[None]:
    """Mark what is captured in a block as not going to run."""
    token = _AHEAD.set(True)
    try:
        yield
    finally:
        _AHEAD.reset(token)
