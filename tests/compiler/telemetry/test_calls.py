"""Calls are counted from any thread; reading the number takes none away."""

from __future__ import annotations

import sys
import threading

from tc.compiler.telemetry.calls import CallCount


def test_no_call_is_lost_between_threads() -> None:
    calls, old = CallCount(), sys.getswitchinterval()

    def count() -> None:
        for _ in range(20_000):
            next(calls.numbers)

    threads = [threading.Thread(target=count) for _ in range(4)]
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(old)
    assert int(calls) == 80_000


def test_a_number_that_is_read_is_not_taken() -> None:
    calls = CallCount()
    assert [int(calls), int(calls)] == [0, 0]
    assert [next(calls.numbers), next(calls.numbers)] == [1, 2]
    assert int(calls) == 2
    calls.start_over()
    assert int(calls) == 0 and next(calls.numbers) == 1
