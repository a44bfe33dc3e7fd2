"""Which of several equal ways is fastest on this machine: timed once, kept on disk.

In: a question and its ways. Out: the name of the fastest. Where results are kept
is up to the caller: ``compiler/runtime/tuned.py``.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

import torch

from tc import trace

Way = Callable[[], object]
#: folder of the results
KIND = "tuned"
#: how much faster than the first way another has to be: choices do not follow noise
MARGIN = 1.05
#: seconds that one sample takes at least; faster calls are repeated
SAMPLE = 2e-4
WARM_UPS = 2
#: samples of each way; the second number is of a thorough search
ROUNDS, THOROUGH_ROUNDS = 3, 10


def measure(ways: Mapping[str, Way], rounds: int) -> dict[str, float]:
    """Return the seconds of one call of each way: the least of several alternating samples.

    One thread is timed by its own clock, which does not run while others have the processor.
    """
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    counts = {}
    for name, way in ways.items():
        for _ in range(WARM_UPS):
            started = clock()
            way()
            took = clock() - started
        counts[name] = max(1, math.ceil(SAMPLE / max(took, 1e-7)))
    least = dict.fromkeys(ways, math.inf)
    for _ in range(rounds):
        for name, way in ways.items():
            started = clock()
            for _ in range(counts[name]):
                way()
            least[name] = min(least[name], (clock() - started) / counts[name])
    return least


class Store(Protocol):
    """Where results outlive the process."""

    def read(self, kind: str, key: str) -> bytes | None:
        """Return an entry, None if there is none that is whole."""

    def write(self, kind: str, key: str, content: bytes) -> bool:
        """Keep an entry if that can be done."""


@dataclass(frozen=True)
class Tuner:
    """Answers questions about a machine.

    Attributes:
        store: keeps the results.
        machine: all that results depend on besides the question.
        thorough: time every question that comes up (``max_autotune``), not only those whose
            result depends much on the machine.
        measure: ways and a number of samples -> seconds of each.
        events: its results, as they are emitted again where the compiled graph is found on disk.
    """

    store: Store
    machine: str
    thorough: bool = False
    measure: Callable[[Mapping[str, Way], int], Mapping[str, float]] = measure
    events: list[trace.Event] = field(default_factory=list, compare=False)

    def fastest(self, question: str, ways: Callable[[], Mapping[str, Way]]) -> str:
        """Return the name of the fastest way.

        Args:
            question: what is computed, with all that decides how long it takes.
            ways: makes the ways, only called where nothing is kept; the first one is what is
                done without a result, and is left only for one that is clearly faster.
        """
        key = hashlib.sha256(f"{self.machine}\0{question}".encode()).hexdigest()
        seconds = self._kept(key)
        known = seconds is not None
        if seconds is None:
            with trace.stage("autotune"), torch.no_grad():
                rounds = THOROUGH_ROUNDS if self.thorough else ROUNDS
                seconds = dict(self.measure(ways(), rounds))
            self.store.write(KIND, key, json.dumps(seconds).encode())
        best = min(seconds, key=seconds.__getitem__)
        first = next(iter(seconds))
        if seconds[first] < MARGIN * seconds[best]:
            best = first
        self._report(question, seconds, best, known)
        return best

    @trace.reports(trace.nothing)
    def _report(self, question: str, seconds: dict[str, float], best: str, known: bool) -> None:
        event = trace.Autotune(question, seconds, best, known)
        trace.emit(event)
        self.events.append(replace(event, known=True))

    def _kept(self, key: str) -> dict[str, float] | None:
        content = self.store.read(KIND, key)
        if content is None:
            return None
        try:
            found = json.loads(content)
        except ValueError:
            return None
        return found if isinstance(found, dict) and found else None
