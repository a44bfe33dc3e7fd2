"""tc.compile and torch.compile on one code object, with the resets of both, in any order."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("beside_torch.py")


def take(part, parts):
    """Run a part of the orders in a process of its own, which may load torch's compiler."""
    found = subprocess.run(
        [sys.executable, "-W", "ignore", str(SCRIPT), str(part), str(parts)],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert found.stdout.endswith("all orders agree\n"), found.stdout + found.stderr


def test_some_orders_agree_with_eager():
    take(5, 61)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
def test_all_orders_agree_with_eager(part):
    take(part, 8)
