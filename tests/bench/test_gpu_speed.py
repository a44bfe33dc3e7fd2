"""bench/gpu_speed.py: its cases are what they say, and it says so where there is no GPU."""

from __future__ import annotations

import gpu_speed
import pytest
import torch


def test_a_case_that_does_not_exist(capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu_speed.main(["--cases", "add,nothing"]) == 2
    assert "no case nothing" in capsys.readouterr().err


def test_without_a_gpu(capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu_speed.main([]) == 2
    assert "no GPU" in capsys.readouterr().err


def test_cases_write_what_they_say() -> None:
    for case in gpu_speed.cases():
        x = torch.randn(8, 8)
        result = case.run(*[x] * case.inputs)
        assert (result.numel() == x.numel()) == bool(case.written), case.name


def test_shares_are_of_a_copy(monkeypatch) -> None:
    monkeypatch.setattr(gpu_speed, "least", lambda call, rounds: 2.0)
    monkeypatch.setattr(torch, "compile", lambda fn: fn)
    monkeypatch.setattr(torch.compiler, "reset", lambda: None)
    case = gpu_speed.Case("add", lambda x, y: x + y, 2, 1)
    row = gpu_speed.measure(case, [torch.ones(2), torch.ones(2)], 1, copied=1.0)
    assert row["of_copy"] == pytest.approx(0.75)
    assert row["tc"] == row["torch"] == 2.0
