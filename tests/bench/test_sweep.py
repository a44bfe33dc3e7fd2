"""The sweep draws programs that run, and distinguishes wrong results, slow ones and good ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import sweep
import sweep_worker
import torch
from support import ROOT, succeed
from sweep_programs import FAMILIES, draw


def test_a_seed_is_a_program() -> None:
    assert draw("1:2:0") == draw("1:2:0")
    assert len({draw(f"1:{k}:0").source for k in range(50)}) == 50


def test_all_families_are_drawn() -> None:
    drawn = {draw(f"2:{k}:0").family for k in range(400)}
    assert drawn == {name for name, _ in FAMILIES.rows()}


def test_most_programs_run(tmp_path: Path) -> None:
    paths = [sweep.accepted(f"3:{k}", tmp_path)[0] for k in range(12)]
    assert all(Path(path).read_text() for path in paths)


def test_ratios_are_by_eagers_unit() -> None:
    record = {"tc": {"compiled": 2.0, "eager": 8.0}, "torch": {"compiled": 3.0, "eager": 6.0}}
    assert sweep.ratios(record) == (2.0, 2.0)  # torch.compile takes half of eager's time
    assert sweep.ratios({"tc": {"error": "it died"}, "torch": {}}) is None


def test_percentiles() -> None:
    assert sweep.at([3.0, 1.0, 2.0], 50) == 2.0
    assert sweep.at([1.0, 2.0], 25) == 1.25
    assert sweep.mean([1.0, 4.0]) == pytest.approx(2)


def test_wrong_results_are_distinguished_from_rounding() -> None:
    exact = torch.randn(100, dtype=torch.float64)
    eager = exact.float()
    judges = [exact, exact * (1 + 1e-7), exact * (1 - 1e-7)]
    rounded = eager * (1 + 2.0**-23)
    wrong = eager.clone()
    wrong[7] += 0.01
    assert not sweep_worker.differs(rounded, eager, judges)
    assert sweep_worker.differs(wrong, eager, judges).startswith("1 of 100 values differ")
    nan = eager.clone()
    nan[3] = float("nan")
    assert sweep_worker.differs(nan, eager, judges)


@pytest.mark.slow
def test_a_file_is_gone_on_with(tmp_path: Path) -> None:
    kept = tmp_path / "kept.jsonl"
    command = [str(ROOT / "bench/sweep.py"), "--seed", "5", "--worst", "1", "--out", str(kept)]
    said = succeed(*command, "--programs", "1")
    assert "seed 5" in said and "by torch.compile's time" in said
    before = kept.read_text()
    assert "n    1" in succeed(*command, "--programs", "1")
    assert kept.read_text() == before
    assert {"tc", "torch", "source"} <= set(json.loads(before))
