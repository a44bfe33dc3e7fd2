"""Runs a function in a forked process that is killed at a chosen step of its work on files."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import NoReturn

#: what a process does to files, by the names of audit events
STEPS = {"open", "os.rename", "os.remove", "os.mkdir", "os.utime", "os.scandir", "os.truncate",
         "tempfile.mkstemp", "subprocess.Popen", "os.posix_spawn"}  # fmt: skip


def killed_at(step: int, folder: str, work: Callable[[], object]) -> bool:
    """Run ``work`` in a fork that dies just before its step number ``step`` in a folder.

    Returns:
        Whether it died; False: it has no such step, and came to its end.
    """
    child = os.fork()
    if child == 0:
        _die_at(step, folder)
        _work_and_exit(work)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.waitstatus_to_exitcode(status) == 0
    return False


def _work_and_exit(work: Callable[[], object]) -> NoReturn:
    """End a fork with its work: 0, or 3 and a line on stderr where that raises."""
    try:
        work()
    except BaseException as error:
        os.write(2, f"in the fork: {error!r}\n".encode())
        os._exit(3)
    os._exit(0)


def _die_at(step: int, folder: str) -> None:
    left = step

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal left
        if event in STEPS and any(folder in str(argument) for argument in arguments):
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1

    sys.addaudithook(hook)


def together(count: int, work: Callable[[], object]) -> list[int]:
    """Run ``work`` in several forks that start at once; returns their exit codes."""
    ready, go = os.pipe()
    children = []
    for _ in range(count):
        child = os.fork()
        if child == 0:
            os.close(go)
            os.read(ready, 1)  # until the parent closes its end
            _work_and_exit(work)
        children.append(child)
    os.close(ready)
    os.close(go)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
