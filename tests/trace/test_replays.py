"""Launches that are not replayed as a CUDA graph are findings, with what to do about it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from torch_log import artifact, start, torch_log

ACTIONS = {
    "mutation": ("refused", "TC702", "stays where it is"),
    "dynamic": ("refused", "TC702", "few sizes"),
    "held": ("recorded anew", "TC703", "clone what is kept"),
}


@pytest.mark.parametrize("cause", ACTIONS)
def test_a_refusal_is_a_finding_with_a_fix(cause: str, tmp_path: Path) -> None:
    action, code, fix = ACTIONS[cause]
    reported = {"action": action, "cause": cause, "why": "the reason", "graph": "forward"}
    found = torch_log(tmp_path, start(0), artifact(0, "tc_cudagraph", json.dumps(reported)))
    (finding,) = found.findings
    assert (finding.code, finding.count) == (code, 1)
    assert finding.why == "its launches were to be one CUDA graph: the reason"
    assert "forward" in finding.title
    assert fix in finding.fix[0]


def test_what_is_replayed_is_no_finding(tmp_path: Path) -> None:
    reported = {
        "action": "recorded",
        "cause": "",
        "why": "0 are copied",
        "graph": "forward",
    }
    assert (
        torch_log(tmp_path, start(0), artifact(0, "tc_cudagraph", json.dumps(reported))).findings
        == []
    )
