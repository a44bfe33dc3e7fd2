"""Worker processes that compile cases of a job into the cache on disk, several at a time."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

#: the folder that tc is imported from comes last: names in it must not hide Python's own modules
_START = "import sys; sys.path.append({!r}); from tc.compiler.ahead.worker import main; main()"
_ROOT = str(Path(sys.modules["tc"].__file__ or "").parent.parent)
_OF_TRACES = ("TC_TRACE", "TC_LOGS", "TC_LOGS_OUT", "TC_LOGS_FORMAT")


@dataclass(frozen=True)
class Answer:
    """What came of one case in a worker.

    Attributes:
        case: None: a worker did not come to any.
        seconds, cpu: of the clock, and of the processor without those of the C compiler.
        problem: why the worker compiled nothing for good; empty if it did.
    """

    case: int | None
    seconds: float = 0.0
    cpu: float = 0.0
    problem: str = ""


def compiled_by_workers(
    job: bytes, cases: Sequence[int], workers: int, on_answer: Callable[[Answer], None]
) -> list[Answer]:
    """Compile cases of a job by worker processes; returns when all have ended.

    A worker that dies takes the case with it that it was at, and no other: the rest is done by
    those that live, or not at all if none does.

    Args:
        job: `carrying.Job.packed`.
        on_answer: called with each answer, in this thread.
    """
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    for case in cases:
        waiting.put(case)
    answers: queue.SimpleQueue[Answer | None] = queue.SimpleQueue()
    crew = [_Worker(job, waiting, answers) for _ in range(min(workers, len(cases)))]
    found: list[Answer] = []
    try:
        for one in crew:
            one.start()
        living = len(crew)
        while living:
            answer = answers.get()
            if answer is None:
                living -= 1
                continue
            found.append(answer)
            on_answer(answer)
    finally:
        for one in crew:
            one.stop()
    return found


def _environment() -> dict[str, str]:
    """Return variables for a worker, which writes no trace of its own."""
    return {name: text for name, text in os.environ.items() if name not in _OF_TRACES}


class _Worker(threading.Thread):
    """Feeds one process, and reads its answers."""

    def __init__(
        self,
        job: bytes,
        waiting: queue.SimpleQueue[int],
        answers: queue.SimpleQueue[Answer | None],
    ) -> None:
        super().__init__(name="tc-precompile", daemon=True)
        self._job, self._waiting, self._answers = job, waiting, answers
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `stop`
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", _START.format(_ROOT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=_environment(),
        )

    def run(self) -> None:
        """Give the process one case after the other."""
        case: int | None = None
        try:
            for part in (pickle.dumps(sys.path), self._job):
                self._send(b"%d\n%s" % (len(part), part))
            problem = self._hear().get("fatal", "")
            if problem:
                self._answers.put(Answer(None, problem=problem))
            while not problem:
                case = self._waiting.get_nowait()
                self._send(b"%d\n" % case)
                answer = self._hear()
                self._answers.put(Answer(case, answer["seconds"], answer["cpu"], answer["error"]))
                case = None
        except queue.Empty:
            pass
        except (OSError, ValueError, KeyError):
            self._answers.put(Answer(case, problem=self._end()))
        finally:
            self._answers.put(None)

    def _send(self, content: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(content)
        self._process.stdin.flush()

    def _hear(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise OSError("it died")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _end(self) -> str:
        """Return how the process ended, as a sentence."""
        code = self._process.wait()
        if code < 0:
            return f"its worker process was ended by {signal.Signals(-code).name}"
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return f"its worker process ended with {code}" + (f": {last}" if last else "")

    def stop(self) -> None:
        """End the process."""
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                if pipe is not None and (pipe is self._process.stdin or not self.is_alive()):
                    pipe.close()
        try:
            self._process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self.is_alive():
            self.join(2)
        self._errors.close()
