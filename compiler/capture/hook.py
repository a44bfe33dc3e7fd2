"""The frame hook: offers each Python frame to a callback, and runs the guarded code it returns.

The only file that touches `torch._C._dynamo.eval_frame`, torch's PEP 523 frame hook in C. Facts
about it that callers rely on:

* The hook is per thread; any number may run C's part at once (see `entries`). It is off while the
  callback runs, so the compiler itself is not traced, and the context is a copy: sympy and reads
  of torch's settings leave context variables behind.
* An exception of the callback is raised in the user's call. If the user catches it inside of the
  running frame, frames called later from there are no longer offered: C leaves the hook off.
* Cached code belongs to the callback (compared by ``==``): two `wrap` of one callback share it,
  another callback sees none of it. `Skip` and `never_trace` apply to all callbacks, torch's too.
* C imports nothing of `torch._dynamo` on any path used here. It saves ``random``'s state before
  the callback and restores it after. If `torch._dynamo` is loaded, its hook for errors in guards
  is set, but tc's guards never raise (see `tc.compiler.capture.guards.guard_list`).
* C sets attributes on the object that is passed as guard manager (`entries.Manager`), until the
  entry dies. If setting one fails, the process aborts."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import os
import sys
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import CodeType, FunctionType, MethodType
from typing import Any, Protocol, TypeAlias, TypeVar

from torch._C._dynamo import eval_frame as _c

from tc.compiler.capture import entries
from tc.compiler.capture.bytecode.hidden import hidden as hidden
from tc.compiler.capture.bytecode.resume_functions import traced_name
from tc.compiler.capture.entries import (
    CODES,
    Code,
    Emptied,
    GuardedCode,
    Manager,
    Pending,
    owner_of,
)
from tc.compiler.capture.outcomes import CacheEntry as CacheEntry
from tc.compiler.capture.outcomes import Compiled as Compiled
from tc.compiler.capture.outcomes import Frame as Frame
from tc.compiler.capture.outcomes import Outcome as Outcome
from tc.compiler.capture.outcomes import RunCached as RunCached
from tc.compiler.capture.outcomes import RunOnce as RunOnce
from tc.compiler.capture.outcomes import Skip as Skip
from tc.compiler.core.levels import frames_unseen
from tc.compiler.core.lock import alone
from tc.compiler.core.once import once
from tc.compiler.errors import StageError, own_frames_left_out

F = TypeVar("F", bound=Callable[..., Any])

#: attribute of a wrapped function: the original function
ORIGINAL = "_tc_original"
#: attribute of a function that `wrap` returned: its callback
CALLBACK = "_tc_callback"
off = frames_unseen
state_of = CODES.state_of


@dataclass(frozen=True, slots=True)
class CacheView:
    """The entries a callback has for one code object; see `puts_last_used_first`."""

    frame_code: CodeType
    callback: Any

    def __iter__(self) -> Iterator[CacheEntry]:
        return iter(cache_entries(self.frame_code, self.callback))

    def __len__(self) -> int:
        return len(cache_entries(self.frame_code, self.callback))


Callback: TypeAlias = Callable[[Frame, CacheView, dict[Any, Any]], Outcome]
"""Called by one thread at a time, and only where no entry it has for the code holds.

It may have a method ``glance(frame, state)``, which is called first, by any number of threads: an
outcome other than None is the result.
"""


@dataclass(slots=True)
class _Result:
    """What C reads of an `Outcome`."""

    frame_exec_strategy: Any
    apply_to_code: bool
    guarded_code: GuardedCode | None


def _strategy(here: int, skips_callees: bool = False) -> Any:
    below = _SKIP if skips_callees else _DEFAULT
    return _c._FrameExecStrategy(_c._FrameAction(here), _c._FrameAction(below))


_DEFAULT, _SKIP = int(_c._FrameAction.DEFAULT), int(_c._FrameAction.SKIP)
_RUN_ONLY = int(_c._FrameAction.RUN_ONLY)


def _result_for_c(outcome: Outcome, frame_code: CodeType) -> _Result:
    """Build the object that C reads, and check every attribute that C reads of it."""
    match outcome:
        case Compiled(code, guards, compile_id):
            entries.check_fits(frame_code, code)
            if code is frame_code:  # a reference cycle through its own cache
                code = code.replace()
            entries.replaces(frame_code, code)
            manager = Manager(guards, frame_code, code, _close_fast_paths)
            guards.drop = manager.drop
            label = f"tc {compile_id} {traced_name(frame_code)}"
            guarded = GuardedCode(code, manager, compile_id, label)
            return _Result(_strategy(_DEFAULT), False, guarded)
        case Skip(_, recursive):
            return _Result(_strategy(_SKIP, recursive), True, None)
        case RunOnce(recursive):
            return _Result(_strategy(_DEFAULT, recursive), False, None)
        case RunCached(_, recursive):
            return _Result(_strategy(_RUN_ONLY, recursive), True, None)
        case _:
            raise StageError("capture.hook", f"the frame callback returned {outcome!r}")


def _adapt(callback: Callback) -> Any:
    """Return tc's callback as a function with the signature that C calls."""
    glance: Any = getattr(callback, "glance", None)
    must_compile: Any = getattr(callback, "must_compile", bool)

    def offer(raw: Any, _first: Any, state: dict[Any, Any]) -> _Result:
        code = raw.f_code
        frame = Frame(
            code, raw.f_locals, raw.f_globals, raw.f_builtins, raw.closure or ()
        )
        own = CODES.kept_with(code, state)
        if glance is not None and (early := glance(frame, own)) is not None:
            return _result_for_c(early, code)
        with own_frames_left_out():
            return alone(
                lambda: contextvars.copy_context().run(_decide, frame, own, callback),
                # run by Python: correct, but slower
                lambda: _result_for_c(RunOnce(), code),
                for_background=must_compile(),
            )

    entries.is_callback(offer.__code__)
    make = _offer_type()
    if make is not None:
        return make(offer, callback)
    # C takes this attribute, where there is one, as the owner of cached code.
    offer._torchdynamo_orig_backend = callback  # type: ignore[attr-defined]
    return offer


def _decide(frame: Frame, own: Code, callback: Callback) -> _Result:
    """Return the outcome for C, with the compile lock held and in a copy of the caller's context.

    The callback decides, unless another thread has compiled the code meanwhile.
    """
    code = frame.code
    own.settle()
    found = _holding(own, callback, frame.locals)
    prepared = None if found is None else own.take(found.code)
    if prepared is not None:
        return _Result(_strategy(_DEFAULT), False, prepared)
    if found is None:
        if callback in own.done:
            return _result_for_c(RunOnce(own.done[callback]), code)
        outcome = callback(frame, CacheView(code, callback), own)
        if isinstance(outcome, RunCached):
            own.done[callback] = outcome.recursive
            outcome = RunOnce(outcome.recursive) if own.has_to_be_offered() else outcome
        result = _result_for_c(outcome, code)
        if result.guarded_code is not None:
            own.pending = (Pending(callback, result.guarded_code), *own.pending)
        return result
    # C cannot repeat its lookup. It makes an entry of each result; this entry never matches.
    _keep_order()
    label = f"tc {found.compile_id} {traced_name(code)}"
    emptied = Emptied(found.code, found.code.co_qualname)
    again = GuardedCode(found.code, emptied, found.compile_id, label)
    own.spent = (*own.spent, Pending(callback, again))
    return _Result(_strategy(_DEFAULT), False, again)


def _holding(
    own: Code, callback: Callback, locals: dict[str, Any]
) -> CacheEntry | None:
    """Return the entry of a callback whose guards hold for a frame, whether C has made it or not.

    C's own lookup may have missed it, because another thread made or moved it meanwhile.
    """
    awaited = [
        one.entry for one in own.pending if one.callback == callback and not one.dropped
    ]
    code = own.code()  # whose list has the prepared ones
    made = cache_entries(code, callback) if code is not None else []
    for entry in [*awaited, *made]:
        try:
            if entry.guards.root.check(locals):
                return entry
        except Exception:  # a guard that raises does not hold
            continue
    return None


def prepare(
    frame: Frame,
    callback: Callback,
    accept: Callable[[Outcome], bool] = lambda outcome: True,
) -> Outcome:
    """Compile a frame that is not going to run; the first call that fits gets the code.

    C makes entries of frames that run alone, so tc keeps the result until then.

    Args:
        accept: asked of what the callback returns, before it is kept.

    Returns:
        What the callback decided; `RunOnce` where another thread keeps the compile lock.
    """
    own = state_of(frame.code)
    glance: Any = getattr(callback, "glance", None)

    def work() -> Outcome:
        own.settle()
        outcome = callback(frame, CacheView(frame.code, callback), own)
        if isinstance(outcome, Compiled) and accept(outcome):
            guarded = _result_for_c(outcome, frame.code).guarded_code
            assert guarded is not None
            own.prepared = (Pending(callback, guarded), *own.prepared)
        return outcome

    with frames_unseen():
        early = None if glance is None else glance(frame, own)
        return alone(work, RunOnce) if early is None else early


def code_for(frame: Frame, callback: Callback) -> CacheEntry | None:
    """Return the code that a callback has for a frame: a call would compile nothing."""
    return _holding(state_of(frame.code), callback, frame.locals)


def _keep_order() -> None:
    """Stop C from reordering entries once several threads run: a lookup then misses none."""
    switch = getattr(_c, "_set_lru_cache", None)
    if switch is not None:
        switch(False)
        _process.puts_last_used_first = False


def puts_last_used_first() -> bool:
    """Return whether entries come in the order of their last use; else in no order."""
    return _process.puts_last_used_first


MakeOffer: TypeAlias = Callable[[Any, Callback], Any]


@dataclass(slots=True)
class _Process:
    """The hook's state in this process; attributes that calls read are replaced as a whole.

    Attributes:
        find_offer_type: see `offer_by`.
        fast_paths: see `use_fast_paths`.
        choice: see `choose_by`.
        few_guards: see `check_few_guards`.
        hook_only: whether all calls have to go through the hook, past no fast path.
        wrappers: the code objects of functions that `wrap` returned, by id.
        run_only: functions that `cached_only` returned.
        forks_with_threads: whether the current fork is of a process with several threads.
        puts_last_used_first: see the function of this name.
    """

    find_offer_type: Callable[[], MakeOffer | None] = lambda: None
    fast_paths: FastPaths | None = None
    choice: Callable[[Any], Any] | None = None
    few_guards: bool = False
    hook_only: bool = False
    wrappers: dict[int, CodeType] = field(default_factory=dict)
    run_only: weakref.WeakSet[Any] = field(default_factory=weakref.WeakSet)
    forks_with_threads: bool = False
    puts_last_used_first: bool = True

    def before_fork(self) -> None:
        """Record whether there are other threads, which may be checking guards."""
        self.forks_with_threads = len(sys._current_frames()) > 1

    def in_child(self) -> None:
        """Remove all entries if a thread that the child lacks may hold the lock of a guard tree."""
        entries.start_over()
        if not self.forks_with_threads:
            return
        for own in CODES:
            if (code := own.code()) is not None:
                drop_entries(code)


_process = _Process()
os.register_at_fork(before=_process.before_fork, after_in_child=_process.in_child)


def offer_by(find: Callable[[], MakeOffer | None]) -> None:
    """Set how the type of offers is found: ``(function, owner)``, called as the function.

    C asks an offer at each call who owns cached code; a C type replies faster than a Python object.
    It is looked up once, when the first function is wrapped.
    """
    _process.find_offer_type = find
    _offer_type.cache_clear()  # type: ignore[attr-defined]


@once
def _offer_type() -> MakeOffer | None:
    return _process.find_offer_type()


def wrap(fn: F, callback: Callback) -> F:
    """Return a function that calls ``fn`` with its frames offered to ``callback``.

    Args:
        fn: any callable.
        callback: gets the frame, the entries it has for the frame's code, and a dictionary kept
            with that code for as long as the code lives.
    """
    offer = _adapt(callback)
    set_hook, process = _c.set_eval_frame, _process
    function: Any = fn
    fast_paths = process.fast_paths
    made = None
    if fast_paths is not None and isinstance(fn, FunctionType):
        made = fast_paths.make(function)
    fast_path: Any
    fast_path, miss = made or (None, None)

    def call(*args: Any, **kwargs: Any) -> Any:
        _inside = entries.INSIDE
        passes = fast_path is not None and not (kwargs or process.hook_only)
        if passes:
            found = fast_path(args)
            if found is not miss:
                return found
        choice = process.choice
        used = offer if choice is None else _chosen(choice, callback)
        # Ctrl-C may come right after the hook is set: it is switched off then
        previous = None
        try:
            previous = set_hook(used)
            # Forwarding keywords builds a dictionary even if there are none.
            found = fn(*args, **kwargs) if kwargs else fn(*args)
        finally:
            set_hook(previous)
        if passes and fast_path.due:
            _open(fast_path, function, callback, args)
        return found

    with contextlib.suppress(TypeError):  # a function in C
        entries.is_entered(code_of(fn))
    wrapper = _dressed(call, fn)
    _process.wrappers[id(call.__code__)] = call.__code__
    setattr(wrapper, ORIGINAL, fn)
    setattr(wrapper, CALLBACK, callback)
    return wrapper


class FastPaths(Protocol):
    """Makes fast paths, on which calls bypass the hook, and installs their entries."""

    def make(self, fn: FunctionType) -> tuple[Any, Any] | None:
        """Return the fast path of a function, and the value by which it reports a cache miss."""

    def open(
        self,
        fast_path: Any,
        fn: FunctionType,
        entries: Callable[[], list[CacheEntry]],
        args: tuple[Any, ...],
    ) -> bool:
        """Install an entry for calls that match these arguments."""

    def close_all(self) -> None:
        """Remove all entries of all fast paths, with immediate effect in all threads."""


def use_fast_paths(fast_paths: FastPaths) -> None:
    """Set the maker of fast paths."""
    _process.fast_paths = fast_paths


def _open(
    fast_path: Any, fn: FunctionType, callback: Callback, args: tuple[Any, ...]
) -> None:
    if _process.fast_paths is not None:
        _process.fast_paths.open(
            fast_path, fn, lambda: cache_entries(fn.__code__, callback), args
        )


def _close_fast_paths() -> None:
    """Send all calls to the hook again, which is aware of the latest changes."""
    if _process.fast_paths is not None:
        _process.fast_paths.close_all()


def original_of(obj: Any) -> Any:
    """Return the function that `wrap` or `cached_only` wrapped; None for other objects.

    The attribute alone proves nothing: `functools.wraps` copies it to other wrappers.
    """
    made_here = isinstance(obj, FunctionType) and (
        id(obj.__code__) in _process.wrappers or obj in _process.run_only
    )
    return getattr(obj, ORIGINAL, None) if made_here else None


def choose_by(choice: Callable[[Any], Any] | None) -> None:
    """Set the function that chooses the callback at each call of a wrapped function.

    Args:
        choice: the callback given to `wrap` -> the one to use, or None: the frames run
            uncompiled. None in place of a function: each wrapped function uses its own callback.
    """
    _process.choice = choice
    _process.hook_only = choice is not None or _process.few_guards


def _chosen(choice: Callable[[Any], Any], callback: Callback) -> Any:
    chosen = choice(callback)
    return None if chosen is None else _adapt(chosen)


def check_few_guards(few: bool) -> None:
    """Check only the guards that `narrow` picked; if no entry matches, C++ raises."""
    _process.few_guards = few
    _process.hook_only = few or _process.choice is not None
    _c.set_skip_guard_eval_unsafe(few)


def narrow(code: CodeType, root_of: Callable[[Any], Any]) -> None:
    """Set the reduced guard tree of each entry of a code object, for `check_few_guards`."""
    for entry in _c._debug_get_cache_entry_list(code):
        manager = entry.guard_manager
        if isinstance(manager, Manager):
            manager.narrow(root_of(manager.guards))
            entry.update_diff_guard_root_manager()


def disabled(fn: F) -> F:
    """Return a function that calls ``fn`` with the hook off."""
    return _under(fn, None)


def cached_only(fn: F) -> F:
    """Return a function that calls ``fn`` with existing compiled code of any callback."""
    wrapper = _under(fn, False)
    setattr(wrapper, ORIGINAL, fn)
    _process.run_only.add(wrapper)
    return wrapper


def _under(fn: F, state: bool | None) -> F:
    set_hook = _c.set_eval_frame

    def call(*args: Any, **kwargs: Any) -> Any:
        _inside = entries.INSIDE
        previous = None
        try:
            previous = set_hook(state)
            return fn(*args, **kwargs)
        finally:
            set_hook(previous)

    return _dressed(call, fn)


def _dressed(call: Callable[..., Any], fn: F) -> F:
    """Give a wrapper the name of its function; nobody sees its own frame, or is offered it."""
    hidden(call)
    _c.set_code_exec_strategy(call.__code__, _strategy(_SKIP))
    wrapper: Any = functools.update_wrapper(call, fn)
    return wrapper  # type: ignore[no-any-return]


def passed_over(fn: Any) -> Any:
    """Return a copy of ``fn`` whose frames are not offered, but those of its callees are.

    The copy has a code object of its own, so that ``fn`` itself is still offered.

    Raises:
        TypeError: ``fn`` has no Python code.
    """
    if isinstance(fn, MethodType):
        return MethodType(passed_over(fn.__func__), fn.__self__)
    if not isinstance(fn, FunctionType):
        _c.set_code_exec_strategy(code_of(fn), _strategy(_SKIP))
        return fn
    code = uncaptured(fn.__code__.replace())
    twin = FunctionType(
        code, fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__
    )
    twin.__kwdefaults__ = fn.__kwdefaults__
    return functools.update_wrapper(twin, fn)


def never_trace(target: F) -> F:
    """Never compile a function, method or code object, nor its callees; free at run time.

    Raises:
        TypeError: ``target`` has no Python code.
    """
    _c.set_code_exec_strategy(code_of(target), _strategy(_SKIP, True))
    return target


def uncaptured(code: CodeType) -> CodeType:
    """Stop offering the frames of a code object, but not those of callees. Returns the code."""
    _c.set_code_exec_strategy(code, _strategy(_SKIP))
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
    """Remove all of tc's data on a code object: cached code, state, `Skip`, `never_trace`.

    Other threads may be inside calls of it: they finish with the code that they have found.
    """
    drop_entries(code)
    own = CODES.get(code)
    if own is not None:
        own.start_over()
    _c.set_code_exec_strategy(code, _strategy(_DEFAULT))


def isolate() -> None:
    """Let isolated regions compile codes of which other callbacks have reached their limit."""
    Code.has_regions = True
    for code in filter(None, [own.code() for own in CODES if own.done]):
        _c.set_code_exec_strategy(code, _strategy(_DEFAULT))


def drop_entries(code: CodeType, callback: Any = None) -> None:
    """Remove entries of a code object, of one callback or all, and those C is about to make."""
    _close_fast_paths()
    own = CODES.get(code)
    waiting = () if own is None else (*own.pending, *own.prepared)
    ended = [(one.callback, one.result.guard_manager) for one in waiting]
    for entry in _c._debug_get_cache_entry_list(code):
        ended.append((owner_of(entry), entry.guard_manager))
    for owner, manager in ended:
        if isinstance(manager, Manager) and (callback is None or owner == callback):
            manager.drop()


def cache_entries(code: CodeType, callback: Any = None) -> list[CacheEntry]:
    """Return the living entries of a code object; see `puts_last_used_first`.

    Args:
        code: a frame's own code.
        callback: return only entries of this callback; None returns those of all callbacks of tc.
    """
    own = CODES.get(code)
    waiting = () if own is None else own.waiting()
    found = [
        one.entry for one in waiting if callback is None or one.callback == callback
    ]
    for entry in _c._debug_get_cache_entry_list(code):
        manager = entry.guard_manager
        # torch.compile's, or removed
        if not isinstance(manager, Manager) or manager.dropped:
            continue
        if callback is None or owner_of(entry) == callback:
            found.append(CacheEntry(entry.code, manager.guards, entry.compile_id))
    return found


def active() -> bool:
    """Return whether frames called from here, in this thread, are offered to a callback."""
    return _c.get_eval_frame_callback() not in (None, False)
