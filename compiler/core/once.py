"""What a process makes once however many threads ask for it first; which modules it has loaded."""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def loaded(name: str) -> Any:
    """Return a module that the program has imported; None if it has not, or is still doing so.

    `sys.modules` has a module as soon as some thread begins to import it, when it is still empty.
    """
    module = sys.modules.get(name)
    is_being_imported = getattr(getattr(module, "__spec__", None), "_initializing", False)
    return None if is_being_imported else module


class _Lock:
    """One lock for all: what is made once is made in no time, or in the first second."""

    def __init__(self) -> None:
        self.start_over()

    def start_over(self) -> None:
        """Also in a forked child: another thread of the parent may have held the lock."""
        self.lock = threading.RLock()


_LOCK = _Lock()
os.register_at_fork(after_in_child=_LOCK.start_over)


def once(make: F) -> F:
    """Return a function that calls ``make`` once for each tuple of arguments.

    `functools.cache` calls it twice where two threads ask at once, and so makes two of a thing of
    which there may be one: an extension module, a folder, an operation of torch.
    """
    made: dict[tuple[Hashable, ...], Any] = {}

    @functools.wraps(make)
    def get(*key: Any) -> Any:
        try:
            return made[key]
        except KeyError:
            with _LOCK.lock:
                if key not in made:
                    made[key] = make(*key)
                return made[key]

    get.cache_clear = made.clear  # type: ignore[attr-defined]
    return get  # type: ignore[return-value]
