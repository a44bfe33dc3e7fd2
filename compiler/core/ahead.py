"""Whether a frame is compiled ahead: as it does not run, its compile changes nothing live.

What the compile meets is noted without a trace: entries of the cache differ with and without one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from tc import trace


@dataclass(frozen=True)
class Question:
    """What traced code asked of sizes.

    Attributes:
        expression: of sympy, a condition or a number.
        answer: its value for the sizes that it was traced with.
        sources: symbol -> the size that it is, as Python over ``L`` and ``G``.
        line: file and line of the user's code, where known.
    """

    expression: Any
    answer: Any
    sources: Mapping[str, str]
    line: tuple[str, int] | None


@dataclass
class Noted:
    """What was found while a frame was compiled ahead.

    Attributes:
        breaks: graph breaks, in order.
        lookups: whether each graph was found in the cache.
        asks: whether every question on sizes is noted, and symbols are kept.
        questions: those, in order.
    """

    breaks: list[trace.GraphBreak] = field(default_factory=list)
    lookups: list[bool] = field(default_factory=list)
    asks: bool = False
    questions: list[Question] = field(default_factory=list)


_NOTED: ContextVar[Noted | None] = ContextVar("noted", default=None)


def is_ahead() -> bool:
    """Return whether what is captured now is not going to run."""
    return _NOTED.get() is not None


def noted() -> Noted | None:
    """Return where to note what is found; None if what is compiled is going to run."""
    return _NOTED.get()


@contextmanager
def compiled_ahead(asks: bool = False) -> Iterator[Noted]:
    """Mark what is captured in a block as not going to run.

    Args:
        asks: see `Noted`; what is captured so is not right for other sizes, and not to be used.
    """
    made = Noted(asks=asks)
    token = _NOTED.set(made)
    try:
        yield made
    finally:
        _NOTED.reset(token)
