"""What the frame hook offers to a callback, and what it takes back: plain data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType
from typing import Any, Protocol, TypeAlias


class Guards(Protocol):
    """The interface of guards that the hook uses."""

    root: Any
    """torch's C++ ``RootGuardManager``."""
    drop: Callable[[], None] | None
    """Set by the hook: call it to make the cached code unreachable for good."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame about to run. ``locals`` holds arguments and free variables, cells opened."""

    code: CodeType
    locals: dict[str, Any]
    globals: dict[str, Any]
    builtins: dict[str, Any]
    closure: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """Code that runs instead of a frame's own while its guards hold."""

    code: CodeType
    guards: Any
    compile_id: str


@dataclass(frozen=True, slots=True)
class Compiled:
    """Run ``code`` now, and again whenever ``guards`` hold."""

    code: CodeType
    guards: Guards
    compile_id: str


@dataclass(frozen=True, slots=True)
class Skip:
    """Run the frame uncompiled and never offer its code again; ``recursive``: nor its callees."""

    reason: str
    recursive: bool = False


@dataclass(frozen=True, slots=True)
class RunOnce:
    """Run the frame uncompiled this time; its next call is offered, and so are its callees.

    Attributes:
        recursive: whether its callees are not offered this time.
    """

    recursive: bool = False


@dataclass(frozen=True, slots=True)
class RunCached:
    """Stop offering the code: run cached code if its guards hold, else run the frame uncompiled.

    Attributes:
        recursive: whether its callees are not offered, either. Those of a strict function may be
            ones that can be captured as a part of it alone.
    """

    reason: str
    recursive: bool = False


Outcome: TypeAlias = Compiled | Skip | RunOnce | RunCached
