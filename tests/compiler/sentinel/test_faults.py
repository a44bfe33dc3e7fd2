"""Faults that are planted in a running program are seen at one call in 1000."""

from __future__ import annotations

import random

import pytest
import sentinel_faults


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", sentinel_faults.KINDS)
def test_a_planted_fault_is_seen(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sentinel_faults, "LATEST", 20)
    monkeypatch.setattr(sentinel_faults, "RATE", "1/20")
    seed = random.SystemRandom().randrange(10**6)
    what, after = sentinel_faults.seen_after(kind, random.Random(seed))
    assert after is not None, f"seed {seed}: {what}"
