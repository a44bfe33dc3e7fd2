"""What is read between the lines of a wrapper."""

from __future__ import annotations

import time

import pytest
import torch

from tc.compiler.telemetry import marks
from tc.compiler.telemetry.marks import Marks


def test_a_line_that_waits_is_not_busy_and_one_that_works_is() -> None:
    found = Marks()
    time.sleep(0.02)
    found(4)
    began = time.thread_time()
    while time.thread_time() - began < 0.01:
        pass
    found(5)
    found(6)
    waits, works, short = found.rows
    assert [row.line for row in found.rows] == [4, 5, 6]
    assert waits.busy < 0.01 < 0.02 <= waits.seconds
    assert 0.009 <= works.busy <= works.seconds
    assert short.busy == short.seconds


def test_pages_that_the_system_gives_are_counted() -> None:
    found = Marks()
    torch.ones(16 << 20)  # 64 MiB are mapped again, whatever was freed before
    found(1)
    time.sleep(2 * marks.LONG)
    found(2)
    assert found.rows[0].fresh > 0
    assert found.rows[1].fresh < found.rows[0].fresh


def test_a_gpu_is_waited_for() -> None:
    waited: list[int] = []
    found = Marks(lambda: waited.append(1))
    found(1)
    found(2)
    assert len(waited) == 2
    assert found.seconds == pytest.approx(sum(row.seconds for row in found.rows))
