"""tc.compile and torch.compile on one code object, with the resets of both, in any order."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import succeed

SCRIPT = Path(__file__).with_name("beside_torch.py")


def take(part, parts):
    """Run a part of the orders in a process of its own, which may load torch's compiler."""
    said = succeed(str(SCRIPT), str(part), str(parts), timeout=280, warm=True)
    assert said.endswith("all orders agree\n"), said


def test_some_orders_agree_with_eager():
    take(5, 61)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
def test_all_orders_agree_with_eager(part):
    take(part, 8)
