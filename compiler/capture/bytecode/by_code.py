"""Caches of functions of code objects, in which each code object is told from all others.

Code objects of two files are equal where the text of a function and the line it begins at are the
same: neither file name nor globals count. What is known of one must not be taken for the other.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from types import CodeType
from typing import Any, TypeVar, cast

from torch.utils.weak import WeakIdRef

F = TypeVar("F", bound=Callable[..., Any])


def cached_by_code(maxsize: int) -> Callable[[F], F]:
    """Keep the results of a function of a code object and of hashable arguments.

    Args:
        maxsize: results kept; those used least recently go.
    """

    def decorate(function: F) -> F:
        @lru_cache(maxsize)
        def cached(key: Any, *args: Any, **kwargs: Any) -> Any:
            return function(key(), *args, **kwargs)

        @wraps(function)
        def call(code: CodeType, *args: Any, **kwargs: Any) -> Any:
            return cached(WeakIdRef(code), *args, **kwargs)

        return cast(F, call)

    return decorate
