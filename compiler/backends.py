"""Backends by name: functions ``(gm, example_inputs) -> callable``."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from torch import fx

from tc.compiler.core.table import Table
from tc.compiler.errors import OptionError
from tc.compiler.options import nearest

Backend = Callable[..., Callable[..., Any]]
BACKENDS: Table[str, Backend] = Table("backends")


def register_backend(
    compiler_fn: Backend | None = None, name: str | None = None, tags: tuple[str, ...] = ()
) -> Any:
    """Register a backend; usable as a plain call or as a decorator.

    Args:
        compiler_fn: takes a graph module and example inputs, returns a callable.
        name: how `tc.compile` calls it; the function's own name if omitted.
        tags: accepted for compatibility with torch; not used.

    Raises:
        ValueError: the name is taken.
    """
    if compiler_fn is None:
        return lambda function: register_backend(function, name, tags)
    BACKENDS.add(name or compiler_fn.__name__, compiler_fn)
    return compiler_fn


def lookup_backend(backend: str | Backend) -> Backend:
    """Return a backend by name; a callable is returned as it is.

    Raises:
        OptionError: there is none of that name.
    """
    if not isinstance(backend, str):
        return backend
    found = BACKENDS.get(backend)
    if found is None:
        raise OptionError(
            f"there is no backend {backend!r}{nearest(backend, list(BACKENDS))}; "
            "tc.list_backends() names them all"
        )
    return found


def list_backends(exclude_tags: tuple[str, ...] = ("debug", "experimental")) -> list[str]:
    """Return the names of all backends, sorted."""
    return sorted(BACKENDS)


def eager(gm: fx.GraphModule, example_inputs: Any) -> Callable[..., Any]:
    """Run the captured graph as it is."""
    return gm.forward


def name_of(backend: str | Backend) -> str:
    """Return what to call a backend in logs."""
    if isinstance(backend, str):
        return backend
    return getattr(backend, "__name__", None) or re.sub(r"\W", "_", type(backend).__name__)


register_backend(eager, "eager")
