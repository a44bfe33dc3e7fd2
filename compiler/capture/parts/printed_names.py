"""Checks that functions of torch are found under the names that a printed graph calls.

The code of an ``fx.GraphModule`` looks a function of torch up by its name at each call. Traced code
may hold the function itself while the name refers to another one, because somebody patched it
before the capture or after. So the guard on definitions covers the name, and a function that is not
found under its name is called through an object of its own.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch.fx.graph import _is_from_torch
from torch.fx.node import _get_qualified_name

if TYPE_CHECKING:
    from tc.compiler.capture.guards.definitions import Definitions

FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType)


class HeldFunction:
    """A function that a graph calls directly, not by its name."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.__name__ = self.__qualname__ = function.__name__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


def by_name(target: Callable[..., Any], definitions: Definitions) -> Callable[..., Any]:
    """Return the target of a node for a function: the function itself if its name leads to it."""
    place = (
        _place(target)
        if isinstance(target, FUNCTIONS) and _is_from_torch(target)
        else None
    )
    if place is None:
        return target
    module, name = place
    definitions.look_up(module.__dict__, name)
    return target if module.__dict__.get(name) is target else HeldFunction(target)


@functools.lru_cache(1 << 12)
def _place(target: Callable[..., Any]) -> tuple[types.ModuleType, str] | None:
    """Return the module and the name that fx prints for a function of torch."""
    module, _, name = _get_qualified_name(target).rpartition(".")
    found = sys.modules.get(module)
    return None if found is None or not name.isidentifier() else (found, name)
