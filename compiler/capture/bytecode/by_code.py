"""Caches and tables keyed by the identity of a code object.

Code objects of two files compare equal if the text of a function and its first line are the same:
neither the file name nor the globals count. An entry of one must not be used for the other.

An entry ends with its code object. It must not refer to that: a program that makes functions all
the time would keep each of them, with all that was compiled for it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from types import CodeType
from typing import Any, Generic, TypeVar, cast
from weakref import ref

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
        maxsize: the number of code objects whose results are kept; the oldest ones are evicted.
    """

    def decorate(function: F) -> F:
        kept: ByCode[dict[Any, Any]] = ByCode(maxsize)

        @wraps(function)
        def call(code: CodeType, *args: Any, **kwargs: Any) -> Any:
            results = kept.get(code)
            if results is None:
                results = {}
                kept.set(code, results)
            given = (args, *kwargs.items())
            if given not in results:
                results[given] = function(code, *args, **kwargs)
            return results[given]

        return cast(F, call)

    return decorate


class ByCode(Generic[V]):
    """A weak dictionary keyed by the identity of code objects.

    Args:
        maxsize: the number of entries that are kept, the newest; None for all.
    """

    def __init__(self, maxsize: int | None = None) -> None:
        self._values: OrderedDict[CodeKey, V] = OrderedDict()
        self._maxsize = maxsize

    def get(self, code: CodeType) -> V | None:
        """Return the entry of a code object, or None."""
        return self._values.get(CodeKey(code))

    def set(self, code: CodeType, value: V) -> None:
        """Store an entry that lives as long as the code object.

        The key is found by its hash and by identity, also after the code object has died.
        """
        values = self._values
        key = CodeKey(code)
        if key not in values:
            if len(values) == self._maxsize:
                with suppress(KeyError):  # the last code objects have just died
                    values.popitem(last=False)
            key.code = ref(code, lambda _: values.pop(key, None))
        values[key] = value
