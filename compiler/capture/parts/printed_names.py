"""Checks that functions of torch are found under the names that a printed graph calls.

The code of an ``fx.GraphModule`` looks a function of torch up by its name at each call. Traced code
may hold the function itself while the name refers to another one, because somebody patched it
before the capture or after. So the guard on definitions covers the name, and a function that is not
found under its name is called through an object of its own. Nor can the code name an argument with
a word of Python (``x.random_(**{"from": 2})``): such an argument is given by its place.
"""

from __future__ import annotations

import functools
import keyword
import sys
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch.fx.graph import _is_from_torch
from torch.fx.node import _get_qualified_name

from tc.compiler.core.held_function import HeldFunction

if TYPE_CHECKING:
    from tc.compiler.capture.guards.definitions import Definitions
    from tc.compiler.capture.values.base import Args, Kwargs

FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType)


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


def by_place(args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs]:
    """Give arguments by their place whose names code cannot spell.

    Torch has one such name, `from`, and it is that of the first argument after the tensor.
    """
    if not any(map(keyword.iskeyword, kwargs)):
        return args, kwargs
    placed = list(args)
    rest = {}
    for name, value in kwargs.items():
        if keyword.iskeyword(name):
            placed.append(value)
        else:
            rest[name] = value
    return placed, rest
