"""Provides `Watch`, the check that classes, modules and functions keep their definitions."""

from __future__ import annotations

from typing import Any

from tc.compiler.runtime.extension import extension


def watch_type() -> Any:
    """Return ``Watch(names, classes, (dictionary, names) pairs, functions)``; None without gcc.

    Calling a watch compares version tags, and definitions only where a tag differs (``watch.c``).
    Its ``changed()`` lists what differs.
    """
    module = extension("watch")
    return module.Watch if module is not None else None
