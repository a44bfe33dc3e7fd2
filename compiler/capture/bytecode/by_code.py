"""Caches and tables by code object, in which each code object is told from all others.

Code objects of two files are equal where the text of a function and the line it begins at are the
same: neither file name nor globals count. What is known of one must not be taken for the other.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from types import CodeType
from typing import Any, Generic, TypeVar, cast
from weakref import finalize, ref

F = TypeVar("F", bound=Callable[..., Any])
V = TypeVar("V")


class CodeKey:
    """A key that equals another where both are of one code object, which it does not keep alive."""

    __slots__ = ("code", "number")

    def __init__(self, code: CodeType) -> None:
        self.code, self.number = ref(code), id(code)

    def __hash__(self) -> int:
        return self.number

    def __eq__(self, other: object) -> bool:
        code = self.code()
        return code is not None and isinstance(other, CodeKey) and other.code() is code


def cached_by_code(maxsize: int) -> Callable[[F], F]:
    """Keep the results of a function of a code object and of hashable arguments.

    Args:
        maxsize: results kept; those used least recently go.
    """

    def decorate(function: F) -> F:
        @lru_cache(maxsize)
        def cached(key: CodeKey, *args: Any, **kwargs: Any) -> Any:
            return function(key.code(), *args, **kwargs)

        @wraps(function)
        def call(code: CodeType, *args: Any, **kwargs: Any) -> Any:
            return cached(CodeKey(code), *args, **kwargs)

        return cast(F, call)

    return decorate


class ByCode(Generic[V]):
    """What is known of code objects, each as long as it lives."""

    def __init__(self) -> None:
        self._values: dict[CodeKey, V] = {}

    def get(self, code: CodeType) -> V | None:
        """Return what is known of a code object, None if nothing is."""
        return self._values.get(CodeKey(code))

    def set(self, code: CodeType, value: V) -> None:
        """Keep what is known of a code object until that dies.

        The key is found by its hash and by being the same object, also after the code is gone.
        """
        key = CodeKey(code)
        if key not in self._values:
            finalize(code, self._values.pop, key, None).atexit = False
        self._values[key] = value
