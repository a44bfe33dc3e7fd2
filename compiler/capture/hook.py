"""Offers each Python frame run under it to a callback; takes back guarded code to run instead.

The only file that touches `torch._C._dynamo.eval_frame`, torch's PEP 523 frame hook in C. Facts
about it that callers rely on:

* The hook is per thread. While the callback runs it is off, so nothing of ours is traced.
* An exception of the callback goes to the user's call. Should the user catch it inside the frame
  that was running, frames called later from there are no longer offered: C leaves the hook off.
* Cached code belongs to the callback (compared by ``==``): two `wrap` of one callback share it,
  another callback sees none of it. `Skip` and `never_trace` hold for all callbacks, torch's too.
* C imports nothing of `torch._dynamo` on any path taken here. It reads ``random``'s state before
  the callback and puts it back after. If `torch._dynamo` is loaded, its hook for errors in guards
  is set, but guards of ours never raise (see `tc.compiler.capture.guards`).
* The object given as guard manager gets attributes set by C, up to when the entry dies; one that
  refuses aborts the process. `_Manager` below is that object.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType, FunctionType, MethodType
from typing import Any, ClassVar, Protocol, TypeAlias, TypeVar

from torch._C._dynamo import eval_frame as _c

from tc.compiler.errors import StageError

F = TypeVar("F", bound=Callable[..., Any])

#: attribute of a compiled function: what it was made of
ORIGINAL = "_tc_original"
_VARARGS = 0x04 | 0x08  # CO_VARARGS | CO_VARKEYWORDS


class Guards(Protocol):
    """What the hook needs of guards."""

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
class CacheView:
    """The entries a callback has for one code object, most recently used first."""

    frame_code: CodeType
    callback: Any

    def __iter__(self) -> Iterator[CacheEntry]:
        return iter(cache_entries(self.frame_code, self.callback))

    def __len__(self) -> int:
        return len(cache_entries(self.frame_code, self.callback))


@dataclass(frozen=True, slots=True)
class Compiled:
    """Run ``code`` now, and again whenever ``guards`` hold."""

    code: CodeType
    guards: Guards
    compile_id: str


@dataclass(frozen=True, slots=True)
class Skip:
    """Run the frame as it is and never offer its code again; ``recursive``: nor what it calls."""

    reason: str
    recursive: bool = False


@dataclass(frozen=True, slots=True)
class RunOnce:
    """Run the frame as it is this time; what it calls is offered, and so is it the next time."""


@dataclass(frozen=True, slots=True)
class RunCached:
    """Offer the code no more: run what is cached where its guards hold, else the frame as it is."""

    reason: str


Outcome: TypeAlias = Compiled | Skip | RunOnce | RunCached
Callback: TypeAlias = Callable[[Frame, CacheView, dict[Any, Any]], Outcome]


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

    def __init__(self, code: CodeType, name: str) -> None:
        self.code = weakref.ref(code)  # the cache entry holds it
        self.name = name

    def check_verbose(self, f_locals: dict[str, Any]) -> _Verdict:
        """Say that all guards hold: what differs is the compiler.

        torch then looks up whose code the entry's is, in a table that it may have emptied since.
        """
        if (code := self.code()) is not None:
            _introduce(code, self.name)
        return _Verdict()

    def collect_diff_guard_sources(self) -> set[str]:
        """Say that no guard of ours should be tried first."""
        return set()

    def populate_diff_guard_manager(self) -> None:
        """Keep the tree as it is."""


class _Manager(_SeenByTorch):
    """The guard manager as C wants it: four attributes, all of them writable."""

    def __init__(self, guards: Guards, code: CodeType, name: str) -> None:
        super().__init__(code, name)
        self.guards = guards
        self.root = guards.root
        self.diff_guard_root: Any = None
        self.cache_entry: Any = None
        self.extra_state: Any = None

    def drop(self) -> None:
        """Empty the cache entry, if it is still there."""
        ending = sys is None or sys.is_finalizing()  # at exit Python empties modules
        if self.cache_entry is not None and not ending:
            dropped = _Dropped(self.cache_entry.code, self.name)
            self.extra_state.invalidate(self.cache_entry, dropped)
            _close_doors()


class _Dropped(_SeenByTorch):
    """Stands in for the guard manager of an emptied entry (C sets attributes on it too)."""

    guards = None
    root = None
    diff_guard_root = None


@dataclass(slots=True)
class _GuardedCode:
    """What C reads of a `Compiled`."""

    code: CodeType
    guard_manager: _Manager
    compile_id: str
    trace_annotation: str


@dataclass(slots=True)
class _Answer:
    """What C reads of an `Outcome`."""

    frame_exec_strategy: Any
    apply_to_code: bool
    guarded_code: _GuardedCode | None


def _strategy(here: int, below: int) -> Any:
    return _c._FrameExecStrategy(_c._FrameAction(here), _c._FrameAction(below))


_DEFAULT, _SKIP = int(_c._FrameAction.DEFAULT), int(_c._FrameAction.SKIP)
_RUN_ONLY = int(_c._FrameAction.RUN_ONLY)


def _answer(outcome: Outcome, frame_code: CodeType) -> _Answer:
    """Build the object that C reads; everything it reads is checked here."""
    match outcome:
        case Compiled(code, guards, compile_id):
            _check_fits(frame_code, code)
            if code is frame_code:  # its cache would hold the code that holds the cache
                code = code.replace()
            manager = _Manager(guards, code, frame_code.co_qualname)
            guards.drop = manager.drop
            label = f"tc {compile_id} {frame_code.co_name}"
            guarded = _GuardedCode(code, manager, compile_id, label)
            return _Answer(_strategy(_DEFAULT, _DEFAULT), False, guarded)
        case Skip(_, recursive):
            return _Answer(_strategy(_SKIP, _SKIP if recursive else _DEFAULT), True, None)
        case RunOnce():
            return _Answer(_strategy(_DEFAULT, _DEFAULT), False, None)
        case RunCached():
            return _Answer(_strategy(_RUN_ONLY, _DEFAULT), True, None)
        case _:
            raise StageError("capture.hook", f"the frame callback returned {outcome!r}")


def _introduce(code: CodeType, name: str) -> None:
    """Let torch.compile, where it is loaded, look our code up when it meets our cache entries."""
    loaded = sys.modules.get("torch._dynamo.utils")
    originals = getattr(loaded, "orig_code_map", None)
    if originals is not None:
        originals[code] = name  # the frame's code itself would never die


def _check_fits(old: CodeType, new: CodeType) -> None:
    """Refuse code whose arguments C could not fill from the frame of ``old``."""
    for what in ("co_argcount", "co_kwonlyargcount", "co_freevars"):
        if (a := getattr(old, what)) != (b := getattr(new, what)):
            raise StageError(
                "capture.hook", f"code for {old.co_name!r} has {what} {b!r}, the frame has {a!r}"
            )
    if (old.co_flags ^ new.co_flags) & _VARARGS:
        raise StageError("capture.hook", f"code for {old.co_name!r} differs in *args or **kwargs")


def _adapt(callback: Callback) -> Any:
    """Turn a callback of ours into one of C's."""

    def offer(c_frame: Any, _first: Any, state: dict[Any, Any]) -> _Answer:
        code = c_frame.f_code
        frame = Frame(
            code, c_frame.f_locals, c_frame.f_globals, c_frame.f_builtins, c_frame.closure or ()
        )
        own = state.setdefault("tc", {})
        return _answer(callback(frame, CacheView(code, callback), own), code)

    make = _offer_type()
    if make is not None:
        return make(offer, callback)
    # C takes this attribute, where there is one, as the owner of cached code.
    offer._torchdynamo_orig_backend = callback  # type: ignore[attr-defined]
    return offer


MakeOffer: TypeAlias = Callable[[Any, Callback], Any]
_find_offer_type: list[Callable[[], MakeOffer | None]] = []


def offer_by(find: Callable[[], MakeOffer | None]) -> None:
    """Set what finds the type of offers: ``(function, owner)``, called as the function.

    C asks an offer at each call who owns cached code; a type made for that answers more quickly
    than Python objects do. It is looked for once, when the first function is wrapped.
    """
    _find_offer_type[:] = [find]
    _offer_type.cache_clear()


@functools.cache
def _offer_type() -> MakeOffer | None:
    return _find_offer_type[0]() if _find_offer_type else None


def wrap(fn: F, callback: Callback) -> F:
    """Return a function that calls ``fn`` with its frames offered to ``callback``.

    Args:
        fn: any callable.
        callback: gets the frame, the entries it has for the frame's code, and a dictionary kept
            with that code for as long as the code lives.
    """
    offer = _adapt(callback)
    set_hook = _c.set_eval_frame
    function: Any = fn
    made = _doors[0].make(function) if _doors and isinstance(fn, FunctionType) else None
    door: Any
    door, miss = made or (None, None)

    def call(*args: Any, **kwargs: Any) -> Any:
        passes = door is not None and not (kwargs or _choices or _few_guards)
        if passes:
            found = door(args)
            if found is not miss:
                return found
        previous = set_hook(_chosen(callback) if _choices else offer)
        try:
            # Handing on names makes a dictionary of them, even where there are none.
            found = fn(*args, **kwargs) if kwargs else fn(*args)
        finally:
            set_hook(previous)
        if passes and door.due:
            _open(door, function, callback, args)
        return found

    _wrappers.add(call.__code__)
    wrapper = _dressed(call, fn)
    setattr(wrapper, ORIGINAL, fn)
    return wrapper


class Doors(Protocol):
    """Makes doors, past which calls need no hook, and opens them."""

    def make(self, fn: FunctionType) -> tuple[Any, Any] | None:
        """Return the door of a function, and what it returns for calls it does not let through."""

    def open(
        self, door: Any, fn: FunctionType, entries: list[CacheEntry], args: tuple[Any, ...]
    ) -> bool:
        """Let calls through that are like one with these arguments."""


_doors: list[Doors] = []
_open_doors: weakref.WeakSet[Any] = weakref.WeakSet()


def doors_by(doors: Doors) -> None:
    """Set what makes doors."""
    _doors[:] = [doors]


def _open(door: Any, fn: FunctionType, callback: Callback, args: tuple[Any, ...]) -> None:
    entries = cache_entries(fn.__code__, callback)
    if _doors[0].open(door, fn, entries, args):
        _open_doors.add(door)


def _close_doors() -> None:
    """Send all calls to the hook again, which knows what has changed."""
    for door in list(_open_doors):
        door.close()
    _open_doors.clear()


_wrappers: set[CodeType] = set()
_run_only: weakref.WeakSet[Any] = weakref.WeakSet()


def original_of(obj: Any) -> Any:
    """Return what `wrap` or `cached_only` was given to make a function; None for other objects.

    The attribute alone says nothing: `functools.wraps` copies it to functions around.
    """
    made_here = isinstance(obj, FunctionType) and (obj.__code__ in _wrappers or obj in _run_only)
    return getattr(obj, ORIGINAL, None) if made_here else None


_choices: list[Callable[[Any], Any]] = []
_few_guards: list[bool] = []


def choose_by(choice: Callable[[Any], Any] | None) -> None:
    """Ask a function, at each call of what `wrap` returned, for the callback to use.

    Args:
        choice: the callback given to `wrap` -> the one to use, or None: the frames run as they
            are. None in place of a function: each has its own again.
    """
    _choices[:] = [] if choice is None else [choice]


def _chosen(callback: Callback) -> Any:
    chosen = _choices[0](callback)
    return None if chosen is None else _adapt(chosen)


def check_few_guards(few: bool) -> None:
    """Check only the guards that `narrow` picked; where none of them hold, C++ raises."""
    _few_guards[:] = [True] if few else []
    _c.set_skip_guard_eval_unsafe(few)


def narrow(code: CodeType, root_of: Callable[[Any], Any]) -> None:
    """Pick the tree of guards that `check_few_guards` leaves to each entry of a code object."""
    for entry in _c._debug_get_cache_entry_list(code):
        manager = entry.guard_manager
        if isinstance(manager, _Manager):
            manager.diff_guard_root = root_of(manager.guards)
            entry.update_diff_guard_root_manager()


def disabled(fn: F) -> F:
    """Return a function that calls ``fn`` with the hook off."""
    return _under(fn, None)


def cached_only(fn: F) -> F:
    """Return a function that calls ``fn`` with what is compiled already, for any callback."""
    wrapper = _under(fn, False)
    setattr(wrapper, ORIGINAL, fn)
    _run_only.add(wrapper)
    return wrapper


def _under(fn: F, state: bool | None) -> F:
    set_hook = _c.set_eval_frame

    def call(*args: Any, **kwargs: Any) -> Any:
        previous = set_hook(state)
        try:
            return fn(*args, **kwargs)
        finally:
            set_hook(previous)

    return _dressed(call, fn)


@contextmanager
def off() -> Iterator[None]:
    """Keep frames that are run in a block from being offered."""
    previous = _c.set_eval_frame(None)
    try:
        yield
    finally:
        _c.set_eval_frame(previous)


def _dressed(call: Callable[..., Any], fn: F) -> F:
    """Give a wrapper the name of what it wraps, and keep the wrapper's own frame from callbacks."""
    _c.set_code_exec_strategy(call.__code__, _strategy(_SKIP, _DEFAULT))
    wrapper: Any = functools.update_wrapper(call, fn)
    return wrapper  # type: ignore[no-any-return]


def passed_over(fn: Any) -> Any:
    """Return a function like ``fn`` whose frames are not offered; what it calls is.

    The twin has a code object of its own, so that ``fn`` itself is still offered.

    Raises:
        TypeError: ``fn`` has no Python code.
    """
    if isinstance(fn, MethodType):
        return MethodType(passed_over(fn.__func__), fn.__self__)
    if not isinstance(fn, FunctionType):
        _c.set_code_exec_strategy(code_of(fn), _strategy(_SKIP, _DEFAULT))
        return fn
    code = fn.__code__.replace()
    twin = FunctionType(code, fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__)
    twin.__kwdefaults__ = fn.__kwdefaults__
    _c.set_code_exec_strategy(code, _strategy(_SKIP, _DEFAULT))
    return functools.update_wrapper(twin, fn)


def never_trace(target: F) -> F:
    """Run a function, method or code object, and all it calls, as it is; costs nothing at run time.

    Raises:
        TypeError: ``target`` has no Python code.
    """
    _c.set_code_exec_strategy(code_of(target), _strategy(_SKIP, _SKIP))
    return target


def uncaptured(code: CodeType) -> CodeType:
    """Keep frames of a code object from being offered; what they call is. Returns the code."""
    _c.set_code_exec_strategy(code, _strategy(_SKIP, _DEFAULT))
    return code


def code_of(target: Any) -> CodeType:
    """Return the code object that a call of ``target`` runs first.

    Raises:
        TypeError: ``target`` has no Python code.
    """
    while isinstance(target, functools.partial):
        target = target.func
    if not isinstance(target, CodeType) and not hasattr(target, "__code__"):
        target = type(target).__call__
    code = getattr(target, "__code__", target)
    if not isinstance(code, CodeType):
        raise TypeError(f"{target!r} has no Python code to keep from tracing")
    return code


def reset(code: CodeType) -> None:
    """Forget everything about a code object: cached code, state, `Skip` and `never_trace`."""
    _close_doors()
    _c.reset_code(code)


def cache_entries(code: CodeType, callback: Any = None) -> list[CacheEntry]:
    """Return the living entries of a code object, most recently used first.

    Args:
        code: a frame's own code.
        callback: return only entries of this callback; None returns those of all callbacks of tc.
    """
    found: list[CacheEntry] = []
    for entry in _c._debug_get_cache_entry_list(code):
        manager = entry.guard_manager
        if not isinstance(manager, _Manager):  # emptied, or made by torch.compile
            continue
        owner = getattr(entry.backend, "owner", entry.backend)
        if callback is None or owner == callback:
            found.append(CacheEntry(entry.code, manager.guards, entry.compile_id))
    return found


def active() -> bool:
    """Whether frames called from here, in this thread, are offered to a callback."""
    return _c.get_eval_frame_callback() not in (None, False)
