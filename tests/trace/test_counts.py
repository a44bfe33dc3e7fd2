"""What the report counts is what the raw log holds."""

from __future__ import annotations

from pathlib import Path

import pytest
from raw_counts import raw_counts, reported_counts
from real_traces import unpacked

LOGS = sorted(one for one in unpacked().iterdir() if one.is_dir())


@pytest.mark.sample(3)
@pytest.mark.parametrize("folder", LOGS, ids=lambda one: one.name)
def test_counts_are_those_of_the_raw_log(folder: Path) -> None:
    assert reported_counts(folder) == raw_counts(folder)
    assert raw_counts(folder)["compiles"] >= 1
