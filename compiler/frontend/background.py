"""Compiles graphs in another thread, while calls run the captured graph by eager torch.

In: a captured graph and what compiles it. Out: what runs it, now by its operations, and compiled
from the first call after the compile has ended.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from tc import trace
from tc.compiler import deferred
from tc.compiler.cache.graph_key import state
from tc.compiler.capture import hook
from tc.compiler.core import garbage, levels
from tc.compiler.core.lock import alone_in_background
from tc.compiler.errors import NoCompilerError, StageError
from tc.compiler.telemetry.reporter import as_failure, report_failure

Compiled = Callable[..., Any]


@dataclass(frozen=True)
class Work:
    """A compile.

    Attributes:
        make: compiles the graph.
        place: of the user's function it is of.
        compile_id: of its frame.
        strict: the next call raises the error of a compile that failed, as under ``fullgraph``.
    """

    make: Callable[[], Compiled]
    place: trace.StackFrame
    compile_id: trace.CompileId
    strict: bool = False


@dataclass(frozen=True)
class _State:
    """What torch keeps for each thread, and a compile depends on."""

    grad: bool
    inference: bool
    autocast: levels.Autocast
    text: str

    @classmethod
    def now(cls) -> _State:
        autocast = levels.Autocast.now()
        modes = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
        return cls(*modes, autocast, state())


def refusal(examples: Sequence[Any]) -> str:
    """Return why a graph has to be compiled before it is called; "" if it has not."""
    for value in examples:
        if not isinstance(value, torch.Tensor):
            if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
                return "a size is symbolic: compiling may add guards"
        elif any(isinstance(size, torch.SymInt) for size in (*value.shape, *value.stride())):
            return "a size is symbolic: compiling may add guards"
        elif value.device.type != "cpu":
            return f"a tensor is on {value.device}"
    return "a mode of torch functions is in force" if levels.modes_in_force() else ""


def compiled_later(eager: Compiled, work: Work) -> Compiled:
    """Return what runs a graph, by ``eager`` until it is compiled."""
    run = [eager]  # replaced as a whole: a call under way ends as it began
    before = _State.now()

    def call(*args: Any) -> Any:
        return run[0](*args)

    def compile_now() -> None:
        compiled = _compiled(work, before)
        if compiled is not None:
            run[0] = compiled

    _WORKER.add(compile_now)
    return hook.never_trace(call)


def wait() -> None:
    """Wait until nothing is compiled in the background."""
    thread = _WORKER.thread
    while thread is not None and thread is not threading.current_thread():
        thread.join()
        thread = _WORKER.thread


def _compiled(work: Work, before: _State) -> Compiled | None:
    """Compile as the thread would have done whose call it is for.

    None is returned where it fails, or a function that raises the error if failing is one.
    """
    with (
        trace.compiling(work.compile_id),
        torch.inference_mode(before.inference),
        torch.set_grad_enabled(before.grad),
        before.autocast.again(),
        hook.off(),
        _disable_current_modes(),
        levels.autograd_unseen(),
        garbage.paused(),
    ):
        if replace(before, text=state()) != before:
            trace.emit(trace.Artifact("tc_background", "not compiled: settings of torch changed"))
            return None
        try:
            with trace.stage("background_compile"), deferred.noted() as later:
                made = work.make()
            for backward in later:  # a call would wait for it
                backward.compile()
        except Exception as error:
            stage = error.stage if isinstance(error, StageError) else "inductor"
            text = report_failure(error, stage, work.place)
            if work.strict and not isinstance(error, NoCompilerError):
                return _raising(as_failure(error, stage, text))
            trace.warn(f"{text}; it runs eagerly, as it was compiled in the background")
            return None
        trace.emit(trace.Artifact("tc_background", "calls run compiled code from now on"))
        return made


def _raising(error: Exception) -> Compiled:
    """Return what raises an error at each call."""

    def fail(*args: Any) -> Any:
        raise error.with_traceback(None)

    return fail


class _Worker:
    """One thread that ends when there is nothing to do: a process that forks should have none."""

    def __init__(self) -> None:
        self.start_over()

    def start_over(self) -> None:
        """Also in a forked child, which has no such thread: what was to be done is left."""
        self._works: deque[Callable[[], None]] = deque()
        self._lock = threading.Lock()
        self.thread: threading.Thread | None = None

    def add(self, work: Callable[[], None]) -> None:
        """Do something later, one after the other."""
        with self._lock:
            self._works.append(work)
            if self.thread is None:
                self.thread = threading.Thread(target=self._run, name="tc-background")
                self.thread.start()

    def _run(self) -> None:
        while True:
            with self._lock:
                # A process that ends does not wait for what nobody calls any more.
                if not self._works or not threading.main_thread().is_alive():
                    self.thread = None
                    return
                work = self._works.popleft()
            alone_in_background(work)


_WORKER = _Worker()
os.register_at_fork(after_in_child=_WORKER.start_over)
