"""The bench of tracing compiles with and without a trace, and says what that costs."""

from __future__ import annotations

import re

import pytest
from support import ROOT, python


@pytest.mark.slow
def test_prints_both_costs() -> None:
    program = str(ROOT / "bench/tracing.py")
    done = python(program, "--rounds", "1", "--blocks", "1", "--cases", "warm")
    said = done.stdout
    assert done.returncode == (1 if "missed" in said else 2 if "open:" in said else 0), done.stderr
    (row,) = re.findall(r"(?m)^warm +off ([\d.]+) ms +on ([\d.]+) ms", said)
    assert all(float(seconds) > 0 for seconds in row)


@pytest.mark.parametrize("arguments", [["--cases", "none"], ["--rounds", "0"]])
def test_bad_usage_is_refused(arguments: list[str]) -> None:
    assert python(str(ROOT / "bench/tracing.py"), *arguments).returncode == 2
