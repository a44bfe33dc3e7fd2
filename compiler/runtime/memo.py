"""Provides `Memo`, a check that is cached while the dictionaries that it reads do not change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tc.compiler.runtime.extension import extension

Step = tuple[int, Any]
"""The step that this one starts at (-1: the root itself), and a key, or None for ``__dict__``."""
Check = Callable[[Any], bool]
MakeMemo = Callable[[tuple[Step, ...], Check | None, tuple[int, ...], Check | None], Any]


def memo_type() -> MakeMemo | None:
    """Return ``Memo(steps, full check, wanted steps, check of their values)``.

    Without a full check it returns the wanted values instead of whether all checks pass. The
    result is None if dictionaries have no versions (from Python 3.13 on), or if there is no C
    compiler to build the code that reads them.
    """
    module = extension("memo")
    return module.Memo if module is not None else None
