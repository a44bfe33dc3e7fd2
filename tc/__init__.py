"""The public face of tc: names are loaded on first use, so that the viewers never import torch."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from tc.compiler import errors as exc
    from tc.compiler.api import (
        OptimizedModule,
        compile,
        config,
        counters,
        disable,
        explain,
        graph_break,
        is_compiling,
        list_backends,
        lookup_backend,
        mark_dynamic,
        mark_static,
        maybe_mark_dynamic,
        register_backend,
        reset,
    )
    from tc.trace.logs import set_logs

_HOMES = {
    "tc.compiler.api": (
        "OptimizedModule",
        "compile",
        "config",
        "counters",
        "disable",
        "explain",
        "graph_break",
        "is_compiling",
        "list_backends",
        "lookup_backend",
        "mark_dynamic",
        "mark_static",
        "maybe_mark_dynamic",
        "register_backend",
        "reset",
    ),
    "tc.trace.logs": ("set_logs",),
}
_MODULES = {"exc": "tc.compiler.errors"}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "OptimizedModule",
    "__version__",
    "compile",
    "config",
    "counters",
    "disable",
    "exc",
    "explain",
    "graph_break",
    "is_compiling",
    "list_backends",
    "lookup_backend",
    "mark_dynamic",
    "mark_static",
    "maybe_mark_dynamic",
    "register_backend",
    "reset",
    "set_logs",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(_MODULES[name])
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'tc' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
