"""The memory benchmark measures real steps, and its numbers are those of the steps."""

from __future__ import annotations

import re

import memory
import pytest
import torch
from support import ROOT, succeed

SMALL = {"width": 64, "heads": 4, "layers": 3, "batch": 8, "length": 64, "rounds": 1, "repeat": 1}


@pytest.mark.slow
def test_prints_a_row_for_each_compiler() -> None:
    small = [text for key, value in SMALL.items() for text in (f"--{key}", str(value))]
    said = succeed(str(ROOT / "bench/memory.py"), *small, "--compilers", "tc")
    rows = dict(re.findall(r"(?m)^(eager|tc) +([\d.]+)", said))
    assert set(rows) == {"eager", "tc"} and 0 < float(rows["tc"]) <= float(rows["eager"])
    worst = re.search(r"at most ([\d.e+-]+)", said)
    assert worst is not None and float(worst[1]) < 1e-4


@pytest.mark.slow
def test_peaks_are_the_most_held_at_a_time() -> None:
    size = 40 << 20  # more than malloc keeps for itself

    def step() -> None:
        for _ in range(2):
            torch.ones(size, dtype=torch.uint8).add(1)

    assert memory.tensor_peak(step, lambda: None) == pytest.approx(2 * size, abs=4096)
    assert memory.resident_peak(step, lambda: None) == pytest.approx(2 * size, rel=0.2)
