"""Provides `FastPath`, by which matching calls bypass the frame hook."""

from __future__ import annotations

from types import FunctionType
from typing import Any

from tc.compiler.runtime.extension import extension


def make_fast_path(fn: FunctionType) -> tuple[Any, Any] | None:
    """Return a fast path without entries, and the value that means a cache miss.

    ``fast_path(args)`` calls compiled code with a tuple of arguments; ``fast_path.add`` (see
    ``fast_path.c``) adds an entry. The result is None without a C compiler.
    """
    module = extension("fast_path")
    return (module.FastPath(fn), module.MISS) if module is not None else None


def close_fast_paths() -> None:
    """Close all fast paths of the process, also for calls that other threads have just begun."""
    module = extension("fast_path")
    if module is not None:
        module.close_all()
