"""What the report counts is what the raw log holds."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from raw_counts import raw_counts, told_counts

SHARED = Path(os.environ.get("TC_SHARED", Path(__file__).resolve().parents[3] / "shared"))
LOGS = sorted(one for one in (SHARED / "traces").iterdir() if one.is_dir())


@pytest.mark.parametrize("folder", LOGS, ids=lambda one: one.name)
def test_counts_are_those_of_the_raw_log(folder: Path) -> None:
    assert told_counts(folder) == raw_counts(folder)
    assert raw_counts(folder)["compiles"] >= 1
