"""The cold-start benchmark measures a real process, and says when one fails."""

from __future__ import annotations

import re

import coldstart
import pytest
from support import ROOT, python, succeed


@pytest.mark.slow
def test_prints_both_costs() -> None:
    said = succeed(str(ROOT / "bench/coldstart.py"), "--rounds", "1", "--compilers", "tc")
    rows = dict(re.findall(r"(?m)^(tc +(?:cold|warm)) +([\d.]+)", said))
    assert len(rows) == 2
    assert all(float(wall) > 0.1 for wall in rows.values())


def test_a_failing_program_is_no_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coldstart, "PROGRAM", "{prepare}")  # it fails before it loads torch
    monkeypatch.setitem(coldstart.COMPILERS, "eager", ("raise OSError", "None"))
    with pytest.raises(SystemExit, match="failed under eager"):
        coldstart.starts("eager")


def test_unknown_compilers_are_refused() -> None:
    assert python(str(ROOT / "bench/coldstart.py"), "--compilers", "none").returncode == 2
