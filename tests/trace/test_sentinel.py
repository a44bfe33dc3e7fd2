"""A call that differs from eager is a finding, with the step that is to blame."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from torch_log import artifact, start, torch_log

FOUND: dict[str, Any] = {
    "kind": "wrong", "message": "output 0: compiled 2, eager 1", "gradients": False,
    "function": "Model.forward", "file": "/home/user/model.py", "line": 3, "call": 1200,
    "repeats": "3 of 3", "repro": "/tmp/r/repro.py", "command": "tc-bisect /tmp/r/repro.py",
    "action": "report",
}  # fmt: skip
VERDICT = {
    "repro": "/tmp/r/repro.py", "verdict": "bug", "title": "step 3, loops.lower.tanh, is wrong",
    "lines": ["/home/user/model.py:7"], "works_if": "TC_BISECT=loops.lower.tanh:1",
}  # fmt: skip


def findings(folder: Path, *rows: tuple[str, dict[str, Any]]) -> Any:
    records = [artifact(0, name, json.dumps(row)) for name, row in rows]
    return torch_log(folder, start(0), *records).findings


def test_a_difference_is_the_first_finding_and_says_what_to_do(tmp_path: Path) -> None:
    (found,) = findings(tmp_path, ("tc_sentinel", FOUND))
    assert (found.code, found.where.line) == ("TC501", 3)
    assert "Model.forward gives other results than eager" in found.title
    assert "call 1200: output 0: compiled 2, eager 1; 3 of 3 more calls" in found.why
    assert "tc-bisect /tmp/r/repro.py" in " ".join(found.fix)


def test_the_verdict_names_line_step_and_what_helps(tmp_path: Path) -> None:
    (found,) = findings(tmp_path, ("tc_sentinel", FOUND), ("tc_sentinel_verdict", VERDICT))
    assert found.where.line == 7
    assert found.why.endswith("tc-bisect: step 3, loops.lower.tanh, is wrong")
    assert "TC_BISECT=loops.lower.tanh:1" in found.fix[0]


def test_a_verdict_on_another_repro_is_not_taken(tmp_path: Path) -> None:
    other = {**VERDICT, "repro": "/tmp/other/repro.py"}
    (found,) = findings(tmp_path, ("tc_sentinel", FOUND), ("tc_sentinel_verdict", other))
    assert "step 3" not in found.why


@pytest.mark.parametrize(
    ("change", "code", "title"),
    [
        ({"kind": "guard"}, "TC502", "is used where it must not be"),
        ({"gradients": True}, "TC501", "gives other gradients than eager"),
    ],
)
def test_what_differs_is_in_the_title(
    change: dict[str, Any], code: str, title: str, tmp_path: Path
) -> None:
    (found,) = findings(tmp_path, ("tc_sentinel", {**FOUND, **change}))
    assert found.code == code and title in found.title
