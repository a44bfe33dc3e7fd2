"""The growth benchmark measures real processes, and says when one fails."""

from __future__ import annotations

import re

import growth
import pytest
from support import ROOT, python, succeed


def test_exponents() -> None:
    assert growth.exponent([10, 100, 1000], [1.0, 10.0, 100.0]) == pytest.approx(1)
    assert growth.exponent([10, 40], [1.0, 16.0]) == pytest.approx(2)


@pytest.mark.slow
def test_prints_costs_by_size() -> None:
    program = str(ROOT / "bench/growth.py")
    said = succeed(program, "--sizes", "4,8", "--graphs", "chain")
    (row,) = re.findall(r"(?m)^chain +tc +([\d.]+) +([\d.]+)", said)
    assert all(float(seconds) > 0 for seconds in row)


def test_a_failing_program_is_no_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "PROGRAM", 'raise OSError("{graph}")')
    with pytest.raises(SystemExit, match="failed under tc"):
        growth.cost("tc", "none", 4)


@pytest.mark.parametrize("arguments", [["--sizes", "4"], ["--compilers", "none"]])
def test_bad_usage_is_refused(arguments: list[str]) -> None:
    assert python(str(ROOT / "bench/growth.py"), *arguments).returncode == 2
