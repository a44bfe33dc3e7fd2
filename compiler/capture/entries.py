"""Entries of torch's cache: what C reads of them, and how they end while other threads run.

C++ walks the entries of a code object, a raw pointer to each guard tree in its hand. Checking a
tree gives up the GIL (each tree has a lock of its own, taken without the GIL), so anything may
happen in the middle of a walk:

* Entries are added at the front, or moved there: the walk may then miss one that holds. `Code`
  knows which answers C has not made entries of yet, and the hook looks again before a compile.
* An entry is emptied: its tree must live on until no thread can be in it. `_RETIRED` keeps it
  until no thread is inside a compiled call.
* All entries of a code object go away at once (torch's ``reset_code``): nothing protects a walk
  from that, so `tc` never asks for it; it empties entries one by one.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Container
from dataclasses import dataclass, field
from types import CodeType
from typing import Any, ClassVar, Protocol


class Guards(Protocol):
    """What the hook needs of guards."""

    root: Any
    """torch's C++ ``RootGuardManager``."""
    drop: Callable[[], None] | None
    """Set by the hook: call it to make the cached code unreachable for good."""


@dataclass(frozen=True, slots=True)
class _Verdict:
    """The answer to torch asking which guard failed: none of torch's concern."""

    result: bool = True
    verbose_code_parts: tuple[str, ...] = ()
    user_stack: None = None


class _SeenByTorch:
    """What torch.compile reads of entries on a code object that it compiles too, ours included."""

    id_matched_objs: ClassVar[dict[str, Any]] = {}
    global_scope: ClassVar[dict[str, Any]] = {"G": {}}
    closure_vars: ClassVar[dict[str, Any]] = {}
    guard_fail_fn = None
    diff_guard_sources: ClassVar[set[str]] = set()

    def __init__(self, code: CodeType | None, name: str) -> None:
        self.code = None if code is None else weakref.ref(code)  # the cache entry holds it
        self.name = name

    def check_verbose(self, f_locals: dict[str, Any]) -> _Verdict:
        """Say that all guards hold: what differs is the compiler.

        torch then looks up whose code the entry's is, in a table that it may have emptied since.
        """
        introduce(None if self.code is None else self.code(), self.name)
        return _Verdict()

    def collect_diff_guard_sources(self) -> set[str]:
        """Say that no guard of ours should be tried first."""
        return set()

    def populate_diff_guard_manager(self) -> None:
        """Keep the tree as it is."""


class Manager(_SeenByTorch):
    """The guard manager of an entry as C wants it: four attributes, all of them writable.

    Attributes:
        root: None from the moment on at which the entry ends before C has made it.
        cache_entry: set by C when it makes the entry, None again when the code object dies.
        dropped: the entry has ended.
    """

    def __init__(
        self, guards: Guards, frame_code: CodeType, code: CodeType, on_drop: Callable[[], None]
    ) -> None:
        super().__init__(code, frame_code.co_qualname)
        self.guards = guards
        self.root = guards.root
        self.diff_guard_root: Any = None
        self.cache_entry: Any = None
        self.extra_state: Any = None
        self.dropped = False
        self._frame_code = weakref.ref(frame_code)
        self._on_drop = on_drop

    def drop(self) -> None:
        """Empty the cache entry, if it is still there."""
        ending = sys is None or sys.is_finalizing()  # at exit Python empties modules
        if self.dropped or ending:
            return
        self.dropped = True
        self._on_drop()
        self.empty()
        self.root = None
        _RETIRED.free()

    def empty(self) -> None:
        """Let go of the code of the entry, if C has made it."""
        frame_code = self._frame_code()  # held, as C's part of the entry dies with it
        if frame_code is not None and self.cache_entry is not None:
            _RETIRED.add(self.root, self.diff_guard_root, self.cache_entry.code)
            emptied = Emptied(self.cache_entry.code, self.name)
            self.extra_state.invalidate(self.cache_entry, emptied)

    def narrow(self, root: Any) -> None:
        """Set the tree of the few guards that are checked where only some are; see `narrow`."""
        _RETIRED.add(self.diff_guard_root)
        self.diff_guard_root = root


class Emptied(_SeenByTorch):
    """The guard manager of an entry that is never found (C sets attributes on it too)."""

    guards = None
    root = None
    diff_guard_root = None

    def __init__(self, code: CodeType | None = None, name: str = "") -> None:
        super().__init__(code, name)
        self.cache_entry: Any = None
        self.extra_state: Any = None

    def empty(self) -> None:
        """Let go of the code of the entry that C made with this manager."""
        if self.cache_entry is not None:
            emptied = Emptied(self.cache_entry.code, self.name)
            self.extra_state.invalidate(self.cache_entry, emptied)


def introduce(code: CodeType | None, name: str) -> None:
    """Let torch.compile, where it is loaded, look tc's code up when it meets tc's entries.

    Args:
        code: of an entry; None: of one that was emptied, where torch finds None.
    """
    loaded = sys.modules.get("torch._dynamo.utils")
    originals = getattr(loaded, "orig_code_map", None)
    if originals is None:
        return
    originals.values[id(None)] = name  # nothing can refer weakly to None
    if code is not None:
        originals[code] = name  # the frame's code itself would never die


@dataclass(slots=True)
class GuardedCode:
    """What C reads of an answer that has code."""

    code: CodeType
    guard_manager: Any
    compile_id: str
    trace_annotation: str


@dataclass(frozen=True, slots=True)
class Pending:
    """An answer of a callback that C was given."""

    callback: Any
    answer: GuardedCode
    thread: int = field(default_factory=threading.get_ident)

    def is_on_its_way(self) -> bool:
        """Whether C is still to make an entry of it: Ctrl-C may come before C gets the answer."""
        if self.answer.guard_manager.cache_entry is not None:
            return False
        here = self.thread == threading.get_ident()  # which has got as far as the next question
        return not here and _is_in(_answering, sys._current_frames().get(self.thread))


class Code(dict[Any, Any]):
    """What is kept with a code object for as long as it lives; the items are the callbacks' own.

    Attributes:
        code: the code object.
        pending: answers that C may not have made an entry of yet.
        spent: answers for one call, of which C makes entries that are never found.
    """

    def __init__(self, code: CodeType) -> None:
        super().__init__()
        self.code = weakref.ref(code)
        self.pending: tuple[Pending, ...] = ()
        self.spent: tuple[Pending, ...] = ()

    def settle(self) -> None:
        """Forget what C has taken over; called with the compile lock."""
        pending, spent = self.pending, self.spent
        self.pending = tuple(one for one in pending if one.is_on_its_way())
        self.spent = tuple(one for one in spent if one.is_on_its_way())
        ended = [one for one in pending if one.answer.guard_manager.dropped]
        for one in (*ended, *spent):
            one.answer.guard_manager.empty()  # if C has made an entry of it


class _Retired:
    """Guard trees and code of entries that have ended, kept while a thread may be using them."""

    def __init__(self) -> None:
        self._kept: deque[Any] = deque()
        self._freeing = threading.Lock()

    def add(self, *things: Any) -> None:
        """Keep things that C++ may hold pointers to."""
        self._kept.append(things)

    def free(self) -> None:
        """Free all that was added so far, if no thread is inside a compiled call."""
        if not self._freeing.acquire(blocking=False):
            return  # another thread does, or this one in a callback of the garbage collector
        try:
            count = len(self._kept)
            if nobody_inside():
                for _ in range(count):
                    self._kept.popleft()
        finally:
            self._freeing.release()

    def start_over(self) -> None:
        """In a forked child: another thread may have been freeing."""
        self._freeing = threading.Lock()


_RETIRED = _Retired()
_callers: dict[int, CodeType] = {}
_answering: dict[int, CodeType] = {}


def is_caller(code: CodeType) -> None:
    """Note code that turns the hook on: while its frames run, C++ may be walking entries."""
    _callers[id(code)] = code


def answers(code: CodeType) -> None:
    """Note code that C calls for an answer."""
    _answering[id(code)] = code


def nobody_inside() -> bool:
    """Return whether no thread, this one included, is inside a call of compiled code."""
    return not any(_is_in(_callers, frame) for frame in sys._current_frames().values())


def _is_in(codes: Container[int], frame: Any) -> bool:
    """Return whether a frame, or one that it was called from, runs one of some code objects."""
    while frame is not None:
        if id(frame.f_code) in codes:
            return True
        frame = frame.f_back
    return False


def start_over() -> None:
    """In a forked child: forget the locks of threads that are gone."""
    _RETIRED.start_over()
