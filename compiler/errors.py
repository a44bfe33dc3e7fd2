"""Errors of the compiler: what happened, where in the user's code, what to do next."""

from __future__ import annotations

import functools
import importlib.util
import os
from collections.abc import Sequence
from dataclasses import dataclass

from tc.trace import cells
from tc.trace.chains import chain_lines
from tc.trace.places import StackFrame

_OWN = os.path.join(os.path.dirname(__file__), "")
_STANDARD = os.path.join(os.path.dirname(os.__file__), "")
_INSTALLED = ("/site-packages/", "/dist-packages/")
#: how the name of a file begins that a function of tc's has in the place of its own
CALL_OF = "<call of "
_CONTEXT = "_tc_context"  # attribute of an exception of whatever class


@dataclass(frozen=True)
class ErrorContext:
    """Where in a program capture was when something was raised.

    Attributes:
        opcode: the instruction that was interpreted.
        callee: what it called, if it was a call.
        stack: the user's frames, the one under capture first.
        code: of the graph break that was not allowed; empty for a failure of the compiler.
    """

    opcode: str
    callee: str
    stack: tuple[StackFrame, ...]
    code: str = ""

    @property
    def place(self) -> StackFrame:
        """The user's line."""
        return user_place(self.stack)


def attach_context(error: BaseException, found: ErrorContext) -> None:
    """Attach the context of capture to an exception; the first one is right, and kept."""
    if error_context(error) is None:
        setattr(error, _CONTEXT, found)


def error_context(error: BaseException) -> ErrorContext | None:
    """Return where an exception, or one it was raised from, occurred in capture."""
    seen: BaseException | None = error
    while seen is not None:
        found: ErrorContext | None = getattr(seen, _CONTEXT, None)
        if found is not None:
            return found
        seen = seen.__cause__
    return None


def user_place(stack: Sequence[StackFrame]) -> StackFrame:
    """Return the innermost frame that is not a library's."""
    return next((one for one in reversed(stack) if not in_library(one.file)), stack[-1])


@functools.lru_cache(4096)
def in_library(file: str) -> bool:
    """Return whether a file belongs to Python, torch, tc or to another installed package."""
    return file.startswith(_folders()) or any(part in file for part in _INSTALLED)


@functools.cache
def _folders() -> tuple[str, ...]:
    """The folders of tc, of Python's own library, and of torch, which may be installed anywhere."""
    spec = importlib.util.find_spec("torch")
    torch = [os.path.join(one, "") for one in (spec and spec.submodule_search_locations) or ()]
    return _OWN, _STANDARD, *torch


def is_own(file: str) -> bool:
    """Return whether a file is one of the compiler's, whose lines are no places for users."""
    return file.startswith((_OWN, CALL_OF))


def where_text(stack: Sequence[StackFrame]) -> str:
    """Return the user's line with carets, and where it was called from, all of the calls."""
    place = user_place(stack)
    (head, *source) = chain_lines([place])
    lines = [f"  at {cells.place(place.file, place.line)} in {place.name}", *source]
    if len(stack) > 1:
        calls = chain_lines(stack)
        if head in calls:  # its source follows there
            del lines[1:]
        lines += ["  calls, outermost first:", *(f"  {line}" for line in calls)]
    return "\n".join(lines)


class TcError(RuntimeError):
    """Base of all errors raised by tc.

    A RuntimeError, because programs written for torch.compile catch its errors as such.
    """


class OptionError(TcError, ValueError):
    """An option, mode or setting that does not exist or has a value it cannot take."""


class SavedFileError(TcError, ValueError):
    """A file of compiled code is damaged, or not to be trusted; or there is nothing to save."""


class Unsupported(TcError):
    """A graph break under ``fullgraph=True``."""


class StageError(TcError):
    """A stage of the compiler failed.

    Attributes:
        stage: name of the stage, e.g. ``loops.lower``.
    """

    def __init__(self, stage: str, message: str) -> None:
        super().__init__(message)
        self.stage = stage


class NoCompilerError(StageError):
    """The machine has no C compiler: the reason why functions run eagerly, and no failure."""


class BackendError(StageError):
    """The backend given to `tc.compile` raised."""


class SentinelError(StageError):
    """Compiled code gives other results than eager, where ``config.sentinel_action`` is raise."""


class RanksDiverged(TcError):
    """Ranks of a job wait for different collectives (``config.rank_check``)."""


class KernelDiffers(StageError):
    """A kernel stores other values than its statements say; the stage is the kernel's name."""


class VerifyError(TcError):
    """An artifact broke one of its invariants; names the pass that made it."""


class NestedTraceError(TcError):
    """A compiled function is called while torch.fx traces symbolically."""


class RecompileError(TcError):
    """A frame would have been compiled again (``config.error_on_recompile``, `set_stance`)."""


class FailOnRecompileLimitHit(RecompileError):
    """The recompile limit was reached under ``config.fail_on_recompile_limit_hit``."""


class TorchRuntimeError(Unsupported):
    """A torch operation raised while its output shapes were computed, under ``fullgraph=True``."""


class IndexOutOfRange(IndexError, RuntimeError):
    """Compiled code reads at an index that a tensor does not have.

    Both, because eager raises IndexError in some operations and RuntimeError in others.
    """


class UserError(Unsupported):
    """The program asks for something that compiled code cannot mean, under ``fullgraph=True``."""


class ForbiddenCall(TcError, AssertionError):
    """Compiled code calls a function that must only be called outside of it."""


class ConstraintViolationError(UserError):
    """A dimension marked with `tc.mark_dynamic` has to be a constant, or leaves its range."""


class UncapturedHigherOrderOpError(Unsupported):
    """The body of a higher-order operation could not be captured."""


class own_frames_left_out:
    """Cuts the compiler's frames off the traceback of an error that the program is to mend.

    What failed inside of the compiler is the cause of the error, and keeps its traceback.
    """

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, OptionError | Unsupported | RecompileError | NestedTraceError) or (
            isinstance(error, StageError) and error.__cause__ is not None
        ):
            error.__traceback__ = None
            error.__suppress_context__ = True


# The names under which torch's programs know these errors.
TorchDynamoException = TcError
InternalTorchDynamoError = StageError
BackendCompilerFailed = BackendError
InvalidBackend = OptionError
RecompileLimitExceeded = FailOnRecompileLimitHit
