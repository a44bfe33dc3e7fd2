"""Built-in routines, which wrappers call where ATen's own are slower: a row and a C file each."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

from tc.compiler.routines.row import ROUTINES, Routine

__all__ = ["ROUTINES", "Routine", "modules"]

for _module in iter_modules(__path__):  # all: each puts its row into `ROUTINES`
    import_module(f"{__name__}.{_module.name}")


def modules() -> dict[str, ModuleType]:
    """Return name -> module of each routine that wrappers call, as they see them."""
    return {name: import_module(f"{__name__}.{name}") for name, row in ROUTINES.rows() if row.calls}
