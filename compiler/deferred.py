"""A compile put off to the first call: a backward that never runs costs nothing.

In: what is to be done later. Out: a function that does it when it is first called, in whatever
thread that is, as part of the compile it belongs to.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import Any

from torch.utils._python_dispatch import _disable_current_modes

from tc import trace
from tc.compiler.capture import hook
from tc.compiler.core import garbage, levels
from tc.compiler.core.lock import alone
from tc.compiler.errors import NoCompilerError, StageError
from tc.compiler.options import config
from tc.compiler.telemetry.reporter import as_failure, report_backward, report_failure

Boxed = Callable[[list[Any]], tuple[Any, ...]]
_MADE: ContextVar[list[Deferred] | None] = ContextVar("made", default=None)


@contextmanager
def noted() -> Iterator[list[Deferred]]:
    """Note the compiles that are put off in a block."""
    made: list[Deferred] = []
    token = _MADE.set(made)
    try:
        yield made
    finally:
        _MADE.reset(token)


@dataclass(frozen=True)
class Work:
    """What is put off.

    Attributes:
        build: does it, and returns what runs.
        instead: what runs if it fails and ``config.suppress_errors`` is set.
        place: of the user's function it is for.
    """

    build: Callable[[], Boxed]
    instead: Boxed
    place: trace.StackFrame


class Deferred:
    """Runs what a compile makes; the compile is done at the first call, by one thread.

    Args:
        beside: what is put off since the compile that this is a part of; None: since this moment.
    """

    def __init__(self, work: Work, beside: Deferred | None = None) -> None:
        self._work: Work | None = work
        self._run: Boxed | None = None
        now = trace.current_compile()
        self._compile_id: trace.CompileId | None = now if beside is None else beside._compile_id
        made = _MADE.get()
        if made is not None:
            made.append(self)

    def compile(self) -> None:
        """Do the compile, if nobody has done it yet.

        Raises:
            StageError: it cannot be compiled.
        """
        self._compiled()

    def __call__(self, args: list[Any]) -> tuple[Any, ...]:
        """Run it.

        Raises:
            StageError: it cannot be compiled.
        """
        run = self._run or self._compiled()
        return run(args)

    def _compiled(self) -> Boxed:
        """Compile it, or return what does the same where another thread compiles for too long."""
        work = self._work
        if work is None:  # another thread has just done it
            assert self._run is not None
            return self._run
        return alone(self._compiled_alone, lambda: work.instead, for_background=False)

    def _compiled_alone(self) -> Boxed:
        compile_id = self._compile_id
        known = nullcontext() if compile_id is None else trace.compiling(compile_id)
        # As a frame is compiled: unseen by the user's modes and transforms, and not captured.
        with (
            known,
            hook.off(),
            levels.popped_to(0),
            _disable_current_modes(),
            garbage.paused(),
        ):
            if self._run is None and self._work is not None:
                started, clock = time.time(), time.perf_counter()
                with trace.stage("backward_compile"):
                    self._run = _built(self._work)
                seconds = time.perf_counter() - clock
                report_backward(compile_id, self._work.place, started, seconds)
                self._work = None
        assert self._run is not None
        return self._run


def _built(work: Work) -> Boxed:
    try:
        return work.build()
    except NoCompilerError as error:
        warn_of_no_compiler(str(error))
        return work.instead
    except Exception as error:
        stage = error.stage if isinstance(error, StageError) else "inductor"
        text = report_failure(error, stage, work.place, "the backward of ")
        if config.suppress_errors:
            trace.warn(f"{text}; it runs operation by operation (config.suppress_errors)")
            return work.instead
        raise as_failure(error, stage, text) from error.__cause__


@cache
def warn_of_no_compiler(text: str) -> None:
    """Warn, once in a process, that compiled functions run eagerly."""
    trace.warn(f"{text} Until then compiled functions run eagerly.")
