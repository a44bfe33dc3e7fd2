"""A worker process: paths and a job come by stdin, then numbers of cases; a line goes out for each.

What the user's code prints goes to stderr. The worker ends with its input.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
import time
from typing import Any, TextIO

from tc.compiler.ahead.carrying import Job
from tc.compiler.ahead.compiling import cover, sentence
from tc.compiler.frames import FrameCompiler
from tc.compiler.options import config
from tc.compiler.process import PROCESS


def main() -> None:
    """Serve one process; see `workers`."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        sys.path[:] = pickle.loads(_read())
        job: Job = pickle.loads(_read())
        for name, value in job.settings:
            setattr(config, name, value)
    except Exception as error:  # of the user's modules
        _say(answers, {"fatal": sentence(error)})
        return
    _say(answers, {"ready": True})
    compiler = FrameCompiler(job.options, config, PROCESS)
    cases = [(spec, case) for spec in job.specs for case in spec.cases()]
    with job.state.again():
        for line in sys.stdin.buffer:
            number, clock, cpu = int(line), time.perf_counter(), time.process_time()
            try:
                found = cover(job.function, compiler, *cases[number])
                answer: dict[str, Any] = {"error": found.error}
            except Exception as error:
                answer = {"error": sentence(error)}
            took = time.perf_counter() - clock, time.process_time() - cpu
            _say(answers, {**answer, "case": number, "seconds": took[0], "cpu": took[1]})


def _read() -> bytes:
    return sys.stdin.buffer.read(int(sys.stdin.buffer.readline()))


def _say(answers: TextIO, found: dict[str, Any]) -> None:
    answers.write(json.dumps(found) + "\n")
    answers.flush()
