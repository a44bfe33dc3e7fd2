"""Names of the globals by which residual code calls compiled graphs: each has one meaning.

Ids of compiles are given out again after `tc.reset`, and to a compile inside of a compile of the
same code, while other threads still run what was compiled before. So an id alone is no name.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType
from typing import Any

from tc.compiler.errors import StageError
from tc.trace import CompileId


class GraphNames:
    """The names that were given out, each with the code that calls it; for the compile lock."""

    def __init__(self) -> None:
        self._callers: dict[tuple[int, str], weakref.ref[CodeType]] = {}

    @contextmanager
    def taken(self, names: dict[str, Any], of: CompileId) -> Iterator[str]:
        """Reserve a global for the length of a compile, and for good if `put` is called.

        It is one that does not exist, or that no code calls any more.
        """
        first = f"__compiled_fn_{of.frame}_{of.compile}"
        name, more = first, 0
        while name in names and self._is_called(names, name):
            more += 1
            name = f"{first}_{more}"
        names[name] = _unfinished
        try:
            yield name
        finally:
            if names.get(name) is _unfinished:
                del names[name]

    def put(
        self, names: dict[str, Any], name: str, graph: Callable[..., Any], caller: CodeType
    ) -> None:
        """Set the global of a graph, which residual code calls."""
        self._callers[id(names), name] = weakref.ref(caller)
        names[name] = graph

    def _is_called(self, names: dict[str, Any], name: str) -> bool:
        caller = self._callers.get((id(names), name))
        return caller is None or caller() is not None


def _unfinished(*args: Any) -> Any:
    """Placeholder for the graph of a compile that has not ended."""
    raise StageError("driver", "a graph was called before it was compiled")
