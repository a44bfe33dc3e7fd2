"""Offers `Door`, the way past the frame hook for calls that compiled code was made for."""

from __future__ import annotations

from types import FunctionType
from typing import Any

from tc.compiler.runtime.extension import extension


def make_door(fn: FunctionType) -> tuple[Any, Any] | None:
    """Return a closed door of a function, and what it returns for calls it does not let through.

    ``door(args)`` calls compiled code with a tuple of arguments; ``door.add`` (``door.c``) adds an
    entry. The result is None without a C compiler.
    """
    module = extension("door")
    return (module.Door(fn), module.MISS) if module is not None else None


def close_doors() -> None:
    """Close all doors of the process, in calls that other threads are just making as well."""
    module = extension("door")
    if module is not None:
        module.close_all()
