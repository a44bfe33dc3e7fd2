"""Iterators over dictionaries, their views and sets at a place; for residual code."""

from __future__ import annotations

import itertools
from typing import Any


def later(container: Any, index: int) -> Any:
    """Return what `at` does, of a container that the residual code has yet to fill."""
    yield from itertools.islice(container, index, None)


def at(container: Any, index: int) -> Any:
    """Return an iterator over a container that has gone past some items; for residual code."""
    iterator = iter(container)
    for _ in range(index):
        next(iterator)
    return iterator
