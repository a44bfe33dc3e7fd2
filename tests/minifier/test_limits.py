"""A limit of time is no verdict on a machine that is busy with something else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import pytest

from tc.minifier import limits
from tc.minifier.limits import BudgetOver, TimeLimit, until, why_stopped

SPINS = "import time\nwhile time.process_time() < {seconds}: pass"
FOREVER = "while True: pass"
HELD = "import threading; lock = threading.Lock(); lock.acquire(); lock.acquire()"
BELOW = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'while True: pass'])"

needs_proc = pytest.mark.skipif(not limits.PROC.is_dir(), reason="no /proc")


@contextmanager
def started(program: str, nice: int = 0) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program in a group of its own on one CPU, which may have other work."""
    process = subprocess.Popen(
        ["nice", "-n", str(nice), sys.executable, "-S", "-c", program], start_new_session=True
    )
    os.sched_setaffinity(process.pid, {min(os.sched_getaffinity(0))})
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        process.wait()


@needs_proc
def test_waiting_for_a_cpu_is_no_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MOST", 200.0)
    with started(FOREVER), started(FOREVER), started(FOREVER):
        begun = time.monotonic()
        with started(SPINS.format(seconds=0.2), nice=5) as process:
            assert TimeLimit(0.5).wait(process) == 0
        assert time.monotonic() - begun > 0.5  # by the clock alone it was late


@pytest.mark.slow
@needs_proc
def test_a_loop_is_late_although_the_machine_is_busy() -> None:
    with (
        started(FOREVER), started(FOREVER), started(FOREVER, nice=2) as process,
        pytest.raises(subprocess.TimeoutExpired),
    ):  # fmt: skip
        TimeLimit(0.5).wait(process)
    with started(BELOW) as process, pytest.raises(subprocess.TimeoutExpired):
        TimeLimit(0.5).wait(process)


def test_a_sleeper_is_late_by_the_clock() -> None:
    def late(program: str) -> float:
        begun = time.monotonic()
        with started(program) as process, pytest.raises(subprocess.TimeoutExpired):
            TimeLimit(1.0).wait(process)
        return time.monotonic() - begun

    with ThreadPoolExecutor() as pool:
        assert all(taken < 8 for taken in pool.map(late, ("import time; time.sleep(60)", HELD)))


@needs_proc
def test_what_a_group_uses_is_that_of_all_its_processes() -> None:
    with started(BELOW) as process:
        deadline = time.monotonic() + 20
        while limits.cpu_time(process.pid) < 0.3 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert len(list(limits.members(process.pid))) == 2
        assert not limits.sleeps(process.pid)


def test_a_budget_ends_what_runs_when_it_is_over() -> None:
    began = time.monotonic()
    with pytest.raises(BudgetOver) as stop, until(began + 0.2):
        time.sleep(20)
    assert time.monotonic() - began < 10
    assert why_stopped(stop.value) == "out of time"
    assert why_stopped(KeyboardInterrupt()) == "interrupted"


def test_a_budget_that_is_not_over_changes_nothing() -> None:
    before = signal.getsignal(signal.SIGALRM)
    for deadline in (float("inf"), time.monotonic() + 0.1):
        with until(deadline):
            pass
        assert signal.getsignal(signal.SIGALRM) is before
    time.sleep(0.2)
    with pytest.raises(BudgetOver), until(time.monotonic() - 1):  # it is over already
        time.sleep(20)
