"""What the guard over ranks reported is a finding."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from torch_log import artifact, start, torch_log

APART: dict[str, Any] = {
    "kind": "diverged", "rank": 1, "other": 0, "message": "ranks diverged: rank 1 is at barrier",
    "what": "barrier", "file": "/home/user/train.py", "line": 8, "function": "step",
    "other_file": "/home/user/train.py", "other_line": 6, "other_function": "step",
    "cause": "rank 1 compiled step (train.py:2); rank 0 did not",
}  # fmt: skip


def findings(folder: Path, *rows: dict[str, Any]) -> Any:
    return torch_log(
        folder, start(0), *(artifact(0, "tc_ranks", json.dumps(row)) for row in rows)
    ).findings


def test_a_divergence_is_an_error_with_line_and_cause(tmp_path: Path) -> None:
    mirrored = {**APART, "rank": 0, "other": 1, "line": 6, "other_line": 8}
    (found,) = findings(tmp_path, APART, mirrored)
    assert (found.code, found.where.line) == ("TC602", 8)
    assert found.title == "ranks 1 and 0 diverged at barrier"
    assert "make the decision that differs the same" in found.fix[0]


def test_without_a_cause_branches_outside_are_named(tmp_path: Path) -> None:
    (found,) = findings(tmp_path, {**APART, "cause": ""})
    assert "outside of compiled functions" in found.fix[1]


def test_a_late_rank_is_a_finding_about_time(tmp_path: Path) -> None:
    (found,) = findings(tmp_path, {**APART, "kind": "waits"})
    assert found.code == "TC603" and "rank 1 compiled step" in found.why
    assert "TC_CACHE_DIR" in found.fix[0]
