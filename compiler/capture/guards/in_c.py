"""What checks guards in C, given to capture by who may build it: nothing here needs a compiler."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tc.compiler.capture.guards.definitions import MakeWatch
from tc.compiler.capture.guards.memo import MakeMemo
from tc.compiler.capture.guards.shape_guards import MakeRelation


@dataclass(frozen=True)
class InC:
    """The checks in C; without them, Python makes the same ones.

    Attributes:
        memo: returns the constructor of memos of checks (`memo.py`), or None; it is called only
            where one is needed.
        watch: returns the constructor of `Watch` (`definitions.py`), or None.
        relation: makes the check of conditions on sizes (`shape_guards.py`), or None.
    """

    memo: Callable[[], MakeMemo | None] = lambda: None
    watch: Callable[[], MakeWatch | None] = lambda: None
    relation: MakeRelation | None = None
