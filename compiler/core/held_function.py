"""A function as a node's target whose name a printed graph cannot call.

The code of an ``fx.GraphModule`` calls functions of torch by their names. Where the name leads to
another function, or is no name that Python can spell (the overload ``aten.random.from``), the graph
holds the function in an object of its own.
"""

from __future__ import annotations

import keyword
from collections.abc import Callable
from typing import Any


class HeldFunction:
    """A function that a graph calls directly, not by its name."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.__name__ = self.__qualname__ = function.__name__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


def is_spelled(name: str) -> bool:
    """Return whether code can spell a name with dots: no part of it is a word of Python."""
    return not any(map(keyword.iskeyword, name.split(".")))
