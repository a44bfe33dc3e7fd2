"""A command of a tool goes in; its exit code comes out, and whether its output arrived.

What a tool prints can fail to arrive: the disk is full, stdout is closed, whoever read it is gone.
That is no error of the tool, and one sentence says so, in the same way in all tools; so does one
for whatever else ends a tool early.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final, TextIO

# Exit codes that mean the same for each tool; 1 is the tool's: it has found what it looks for.
OK: Final = 0
USAGE: Final = 2
INTERNAL: Final = 4
INTERRUPTED: Final = 130

_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_STDOUT: Final = 1
_RAISES: Final = ("strict", "surrogateescape")  # Python's choices for stdout


class Undelivered(Exception):
    """Output did not arrive; the text says why, and what to do."""


def run_tool(
    tool: str,
    work: Callable[[], int],
    codes: Mapping[type[Exception], int],
    interrupted: str = "interrupted",
) -> int:
    """Do the work of a tool and return its exit code; what ends it early is a sentence on stderr.

    Args:
        work: prints, and returns the exit code.
        codes: exception -> exit code; its text is the sentence. One of `USAGE` names ``--help``,
            too. What has no code is an error of the tool itself, whose traceback goes to a file.
        interrupted: the sentence after Ctrl-C or SIGTERM: what is left of the work.
    """
    try:
        with stoppable():
            return delivered(work)
    except Undelivered as error:
        return fail(tool, USAGE, str(error))
    except KeyboardInterrupt:
        return fail(tool, INTERRUPTED, interrupted)
    except Exception as error:
        code = next((code for kind, code in codes.items() if isinstance(error, kind)), None)
        if code is None:
            return fail(tool, INTERNAL, crash_report(tool, error))
        return fail(tool, code, f"{error}; try {tool} --help" if code == USAGE else str(error))


@contextmanager
def stoppable() -> Iterator[None]:
    """Treat SIGTERM like Ctrl-C: what was found is kept, and temporary files are deleted."""

    def stop(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set handlers
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def fail(tool: str, code: int, text: str) -> int:
    """Write on stderr, on one line, what went wrong; returns the exit code."""
    sentence = " ".join(text.split())
    complain(sentence if sentence.startswith(tool) else f"{tool}: {sentence}")
    return code


def delivered(work: Callable[[], int]) -> int:
    """Do what prints, see that it arrives, and return its exit code; 0 if its reader is gone.

    Raises:
        Undelivered: it did not arrive.
    """
    if sys.stdout is None:  # as Python starts without the descriptor
        raise Undelivered("cannot write the output: stdout is closed; send it to a file or a pipe")
    _take_any_text()
    try:
        code = work()
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        if not _stdout_is_gone():
            raise  # of a pipe of the tool's own
        _drop_the_rest()
        return 0
    except OSError as error:
        why = _why(error)
        if not why:
            raise
        _drop_the_rest()
        raise Undelivered(why) from error


def _take_any_text() -> None:
    """Let stdout write as escapes what its encoding lacks, as stderr does by default."""
    reconfigure = getattr(sys.stdout, "reconfigure", None)  # not of what is in memory
    if reconfigure is not None and sys.stdout.errors in _RAISES:
        reconfigure(errors="backslashreplace")


def complain(text: str, end: str = "\n") -> None:
    """Write a sentence on stderr; where that cannot be written to, the exit code has to do."""
    with suppress(OSError, ValueError, AttributeError):  # full, closed, or not there
        sys.stderr.write(f"{text}{end}")
        sys.stderr.flush()


def is_terminal(stream: TextIO | None) -> bool:
    """Return whether a stream, which Python may have started without, is a terminal."""
    return stream is not None and stream.isatty()


def crash_report(tool: str, error: Exception) -> str:
    """Store the traceback of an error of the tool itself; return the sentence about it."""
    what = f"internal error ({type(error).__name__}: {error}); please report it"
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix=f"{tool}-crash-", suffix=".txt", delete=False, encoding="utf-8"
        ) as file:
            traceback.print_exception(error, file=file)
    except OSError:  # no space for it
        return what
    return f"{what} with {file.name}"


def _why(error: OSError) -> str:
    """Return what to say of an error if it is one of output; nothing if it is another."""
    why = (error.strerror or str(error)).lower()
    if error.errno in _FULL:
        what = error.filename or "the output"
        return f"cannot write {what}: {why}; make space, or write to another disk"
    if error.filename is None and _stdout_is_gone():
        return f"cannot write the output: {why}; send it to a file or a pipe"
    return ""


def _stdout_is_gone() -> bool:
    """Return whether stdout takes nothing: its reader is gone, or it is not open for writing."""
    try:
        number = sys.stdout.fileno()
    except (OSError, ValueError):  # it is in memory
        return False
    try:
        os.write(number, b"")
        poll: Any = getattr(select, "poll", None)
        if poll is None:  # Windows
            return True
        asked = poll()
        asked.register(number, 0)
        return any(found & (select.POLLERR | select.POLLHUP) for _, found in asked.poll(0))
    except (OSError, ValueError):
        return True


def _drop_the_rest() -> None:
    """Let stdout lead nowhere: Python writes what is left in it when the process ends."""
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        return  # nothing is left, as where another file could not be written
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        if nowhere != _STDOUT:
            os.close(nowhere)
