"""Entries of torch's cache: the objects that C reads, and their removal while other threads run.

C++ iterates over the entries of a code object with a raw pointer to each guard tree. Checking a
tree releases the GIL (each tree has its own lock, taken without the GIL), so other threads may
change the list during an iteration:

* An entry is added at the front or moved there: the iteration may then miss an entry that matches.
  `Code` knows which results C has not made entries of yet, and the hook looks again before a
  compile.
* An entry is emptied: its tree must live until no thread can be using it. `_RETIRED` keeps it
  until no thread is inside a compiled call.
* All entries of a code object are removed at once (torch's ``reset_code``): nothing protects an
  iteration from that, so `tc` never calls it; it empties entries one by one.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field
from inspect import CO_VARARGS, CO_VARKEYWORDS
from types import CodeType
from typing import Any, ClassVar

from tc.compiler.capture.bytecode.by_code import ByCode
from tc.compiler.capture.bytecode.resume_functions import user_code
from tc.compiler.capture.outcomes import CacheEntry, Guards
from tc.compiler.core.once import loaded
from tc.compiler.errors import StageError


@dataclass(frozen=True, slots=True)
class _Verdict:
    """The result that torch gets when it asks which guard failed: none."""

    result: bool = True
    verbose_code_parts: tuple[str, ...] = ()
    user_stack: None = None


class _SeenByTorch:
    """What torch.compile reads of tc's entries on a code object that it compiles too."""

    # Of no frame of torch's: its recompile limit does not count what tc has compiled.
    id_matched_objs: ClassVar[dict[str, Any]] = {"<tc>": lambda: True}
    global_scope: ClassVar[dict[str, Any]] = {"G": {}}
    closure_vars: ClassVar[dict[str, Any]] = {}
    guard_fail_fn = None
    diff_guard_sources: ClassVar[set[str]] = set()

    def __init__(self, code: CodeType | None, name: str) -> None:
        # the cache entry holds it
        self.code = None if code is None else weakref.ref(code)
        self.name = name

    def check_verbose(self, f_locals: dict[str, Any]) -> _Verdict:
        """Report that all guards hold, as the entry is another compiler's.

        torch then looks the entry's code up in its own table, which it may have emptied since.
        """
        introduce(None if self.code is None else self.code(), self.name)
        return _Verdict()

    def collect_diff_guard_sources(self) -> set[str]:
        """Return no sources: none of tc's guards should be tried first."""
        return set()

    def populate_diff_guard_manager(self) -> None:
        """Keep the tree as it is."""


class Manager(_SeenByTorch):
    """The guard manager of an entry as C wants it: four attributes, all of them writable.

    Attributes:
        root: the guard tree; None if the entry was removed before C made it.
        cache_entry: set by C when it makes the entry; None again when the code object dies.
        dropped: whether the entry was removed.
    """

    def __init__(
        self,
        guards: Guards,
        frame_code: CodeType,
        code: CodeType,
        on_drop: Callable[[], None],
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
        # at exit Python clears the globals of modules
        ending = sys is None or sys.is_finalizing()
        if self.dropped or ending:
            return
        self.dropped = True
        self._on_drop()
        self.empty()
        self.root = None
        _RETIRED.free()

    def empty(self) -> None:
        """Release the code of the entry, if C has made the entry."""
        # kept alive, because C's part of the entry dies with it
        frame_code = self._frame_code()
        if frame_code is not None and self.cache_entry is not None:
            _RETIRED.add(self.root, self.diff_guard_root, self.cache_entry.code)
            emptied = Emptied(self.cache_entry.code, self.name)
            self.extra_state.invalidate(self.cache_entry, emptied)

    def narrow(self, root: Any) -> None:
        """Set the reduced guard tree for calls that check only some guards; see `narrow`."""
        _RETIRED.add(self.diff_guard_root)
        self.diff_guard_root = root


class Emptied(_SeenByTorch):
    """The guard manager of an entry that never matches (C sets attributes on it too)."""

    guards = None
    root = None
    diff_guard_root = None

    def __init__(self, code: CodeType | None = None, name: str = "") -> None:
        super().__init__(code, name)
        self.cache_entry: Any = None
        self.extra_state: Any = None

    def empty(self) -> None:
        """Release the code of the entry that C made with this manager."""
        if self.cache_entry is not None:
            emptied = Emptied(self.cache_entry.code, self.name)
            self.extra_state.invalidate(self.cache_entry, emptied)


def introduce(code: CodeType | None, name: str) -> None:
    """Register tc's code with torch.compile, if that is loaded, because it looks entries up.

    Args:
        code: the code of an entry; None is the code of an emptied entry.
    """
    originals = getattr(loaded("torch._dynamo.utils"), "orig_code_map", None)
    if originals is None:
        return
    originals.values[id(None)] = name  # None allows no weak references
    if code is not None:
        originals[code] = name  # the frame's code itself would never die


def check_fits(old: CodeType, new: CodeType) -> None:
    """Raise unless C can fill the new code's arguments from a frame of ``old``."""
    for what in ("co_argcount", "co_kwonlyargcount", "co_freevars"):
        if (a := getattr(old, what)) != (b := getattr(new, what)):
            raise StageError(
                "capture.hook",
                f"code for {old.co_name!r} has {what} {b!r}, the frame has {a!r}",
            )
    if (old.co_flags ^ new.co_flags) & (CO_VARARGS | CO_VARKEYWORDS):
        raise StageError(
            "capture.hook", f"code for {old.co_name!r} differs in *args or **kwargs"
        )


@dataclass(slots=True)
class GuardedCode:
    """What C reads of a callback's result that has code."""

    code: CodeType
    guard_manager: Any
    compile_id: str
    trace_annotation: str


@dataclass(frozen=True, slots=True)
class Pending:
    """A callback's result that was passed to C."""

    callback: Any
    result: GuardedCode
    thread: int = field(default_factory=threading.get_ident)

    @property
    def entry(self) -> CacheEntry:
        """The entry that C makes of it."""
        code, manager = self.result.code, self.result.guard_manager
        return CacheEntry(code, manager.guards, self.result.compile_id)

    @property
    def dropped(self) -> bool:
        """Whether the entry was removed."""
        return bool(self.result.guard_manager.dropped)

    def is_on_its_way(self) -> bool:
        """Return whether C has yet to make an entry of it.

        Ctrl-C may come before C gets the result.
        """
        if self.result.guard_manager.cache_entry is not None:
            return False
        # which then has moved on to another call
        here = self.thread == threading.get_ident()
        return not here and _is_in(_callbacks, sys._current_frames().get(self.thread))


class Code(dict[Any, Any]):
    """What is stored with a code object for as long as it lives; the items belong to the callbacks.

    Attributes:
        code: the code object.
        pending: results that C may not have made an entry of yet.
        spent: results for one call only, of which C makes entries that never match.
        done: the callbacks that compiled the code as often as they may -> whether what the code
            calls is not offered to them, either.
        has_regions: whether some call of `compile` isolates its recompiles.
    """

    has_regions: ClassVar[bool] = False

    def __init__(self, code: CodeType) -> None:
        super().__init__()
        self.code = weakref.ref(code)
        self.pending: tuple[Pending, ...] = ()
        self.prepared: tuple[Pending, ...] = ()
        self.done: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()
        self.spent: tuple[Pending, ...] = ()

    def has_to_be_offered(self) -> bool:
        """Return whether frames stay offered once a callback has reached its limit.

        Else C only runs code from its cache. It would ask neither for prepared results, nor an
        isolated region, which may compile what other callbacks may not.
        """
        return bool(self.waiting()) or self.has_regions

    def waiting(self) -> tuple[Pending, ...]:
        """Return the prepared results that were not removed, newest first."""
        return tuple(one for one in self.prepared if not one.dropped)

    def start_over(self) -> None:
        """Forget all that was compiled, and which callbacks reached their limit."""
        self.clear()
        self.prepared = ()
        self.done.clear()
        self.settle()  # what refers to the code in a cycle would never be freed

    def take(self, code: CodeType) -> GuardedCode | None:
        """Return a prepared result for C to make an entry of; None: C has got the code before."""
        for one in self.prepared:
            if one.result.code is code:
                self.prepared = tuple(
                    other for other in self.prepared if other is not one
                )
                self.pending = (Pending(one.callback, one.result), *self.pending)
                return one.result
        return None

    def settle(self) -> None:
        """Drop the pending results that C has made entries of; called with the compile lock."""
        pending, spent = self.pending, self.spent
        self.pending = tuple(one for one in pending if one.is_on_its_way())
        self.spent = tuple(one for one in spent if one.is_on_its_way())
        ended = [one for one in pending if one.dropped]
        for one in (*ended, *spent):
            one.result.guard_manager.empty()  # if C has made an entry of it


class Codes:
    """The states of code objects, each found by the id of its code object.

    Attributes:
        offered: of those whose frames C has offered, or whose state was asked for.
        early: of those whose frames C has not offered yet, kept until it does.
    """

    def __init__(self) -> None:
        self.offered: weakref.WeakValueDictionary[int, Code] = (
            weakref.WeakValueDictionary()
        )
        self.early: dict[int, Code] = {}

    def kept_with(self, code: CodeType, state: dict[Any, Any]) -> Code:
        """Return the state of a code object, from the dictionary that C stores with it."""
        own: Code | None = state.get("tc")
        if own is None:
            own = state.setdefault("tc", self.early.pop(id(code), None) or Code(code))
            self.offered[id(code)] = own
        return own

    def state_of(self, code: CodeType) -> Code:
        """Return the state of a code object, whether a frame of it was ever offered or not."""
        own = self.offered.get(id(code))
        if own is None or own.code() is not code:
            own = self.offered[id(code)] = self.early[id(code)] = Code(code)
            weakref.finalize(code, self.early.pop, id(code), None)
        return own

    def get(self, code: CodeType) -> Code | None:
        """Return the state of a code object, or None if it has none yet."""
        return self.offered.get(id(code))

    def __iter__(self) -> Iterator[Code]:
        return iter([*self.offered.values()])


CODES = Codes()


def owner_of(entry: Any) -> Any:
    """Return the callback that an entry of C was made for."""
    return getattr(entry.backend, "owner", entry.backend)


class _Retired:
    """Guard trees and code of removed entries, kept alive while a thread may be using them."""

    def __init__(self) -> None:
        self._kept: deque[Any] = deque()
        self._freeing = threading.Lock()

    def add(self, *things: Any) -> None:
        """Keep objects alive that C++ may hold raw pointers to."""
        self._kept.append(things)

    def free(self) -> None:
        """Free all objects added so far, if no thread is inside a compiled call."""
        if not self._freeing.acquire(blocking=False):
            return  # another thread frees, or a callback of the collector in this one
        try:
            count = len(self._kept)
            if nobody_inside():
                for _ in range(count):
                    self._kept.popleft()
        finally:
            self._freeing.release()

    def start_over(self) -> None:
        """Reset the lock in a forked child: another thread may have held it."""
        self._freeing = threading.Lock()


_RETIRED = _Retired()
#: each wrapper keeps it in a local while it runs, so that its references count their frames
INSIDE = object()
_OUTSIDE = 2
"""References to INSIDE where no wrapper runs: that of this module, and of what counts them."""
_entered: ByCode[bool] = ByCode()
_callbacks: dict[int, CodeType] = {}


def is_entered(code: CodeType) -> None:
    """Register code that wrappers call, which enable the hook."""
    _entered.set(code, True)


def replaces(code: CodeType, residual: CodeType) -> None:
    """Register residual code of code that may be registered."""
    if was_entered(code):
        is_entered(residual)


def was_entered(code: CodeType) -> bool:
    """Return whether code is what some wrapper calls, as the program has it or as residual code."""
    return _entered.get(user_code(code)) is not None


def is_callback(code: CodeType) -> None:
    """Register code that C calls as the callback."""
    _callbacks[id(code)] = code


def nobody_inside() -> bool:
    """Return whether no thread, this one included, is inside a call of compiled code."""
    return sys.getrefcount(INSIDE) <= _OUTSIDE


def _is_in(codes: Container[int], frame: Any) -> bool:
    """Return whether a frame, or one that it was called from, runs one of some code objects."""
    while frame is not None:
        if id(frame.f_code) in codes:
            return True
        frame = frame.f_back
    return False


def start_over() -> None:
    """Reset the state in a forked child, in which the other threads are gone."""
    _RETIRED.start_over()
