"""Caches and tables keyed by the identity of a code object.

Code objects of two files compare equal if the text of a function and its first line are the same:
neither the file name nor the globals count. An entry of one must not be used for the other.

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
    """A weak key for a code object: two keys are equal if they refer to the same object."""

    __slots__ = ("code", "number")

    def __init__(self, code: CodeType) -> None:
        self.code, self.number = ref(code), id(code)

    def __hash__(self) -> int:
        return self.number

    def __eq__(self, other: object) -> bool:
        code = self.code()
        return code is not None and isinstance(other, CodeKey) and other.code() is code


def cached_by_code(maxsize: int) -> Callable[[F], F]:
    """Cache the results of a function whose first argument is a code object.

    Args:
        maxsize: the number of results kept; the least recently used ones are evicted.
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
    """A weak dictionary keyed by the identity of code objects."""

    def __init__(self) -> None:
        self._values: dict[CodeKey, V] = {}

    def get(self, code: CodeType) -> V | None:
        """Return the entry of a code object, or None."""
        return self._values.get(CodeKey(code))

    def set(self, code: CodeType, value: V) -> None:
        """Store an entry that lives as long as the code object.

        The key is found by its hash and by identity, also after the code object has died.

        The key is found by its hash and by being the same object, also after the code is gone.
        """
        key = CodeKey(code)
        if key not in self._values:
            finalize(code, self._values.pop, key, None).atexit = False
        self._values[key] = value
