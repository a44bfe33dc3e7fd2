"""The example GPT: learns, writes the same text twice, and runs as a program."""

from __future__ import annotations

from pathlib import Path

import gpt
import pytest
import torch
from support import ROOT, python, succeed

SMALL = ("--steps", "3", "--bytes", "6")


def test_training_learns() -> None:
    torch.manual_seed(0)
    model = gpt.GPT(width=32, heads=2, layers=1)
    data = gpt.read_bytes([ROOT / "LICENSE"])
    assert gpt.train(model, data, 1) > 7.5  # bits a byte; noise is 8
    assert gpt.train(model, data, 40) < 6


def test_a_byte_sees_only_earlier_ones() -> None:
    torch.manual_seed(0)
    model = gpt.GPT(width=32, heads=2, layers=2).eval()
    tokens = torch.randint(256, (1, 12))
    changed = tokens.clone()
    changed[0, -1] = (tokens[0, -1] + 1) % 256
    with torch.no_grad():
        same, other = model(tokens), model(changed)
    torch.testing.assert_close(same[:, :-1], other[:, :-1])
    assert not torch.allclose(same[:, -1], other[:, -1])


def test_writer_sharpens_only_where_unsure() -> None:
    torch.manual_seed(0)
    model = gpt.GPT(width=32, heads=2, layers=1).eval()
    tokens = torch.randint(256, (1, 5))
    with torch.no_grad():
        plain = model(tokens)[0, -1]
        torch.testing.assert_close(gpt.Writer(model, unsure=0.0)(tokens), plain)
        torch.testing.assert_close(gpt.Writer(model, unsure=1.1)(tokens), plain / 0.6)


def test_a_wrong_compiler_is_noticed() -> None:
    writer = gpt.Writer(gpt.GPT(width=32, heads=2, layers=1).eval())
    with pytest.raises(AssertionError, match="not close"):
        gpt.write(writer, lambda tokens: writer(tokens) + 0.01, torch.tensor([[1, 2]]), 2)


@pytest.mark.parametrize("compiler", ["eager", "tc"])
def test_runs_as_a_program(compiler: str) -> None:
    said = succeed(str(ROOT / "examples/gpt.py"), "--compiler", compiler, *SMALL)
    assert "matches    eager, all 6 steps" in said


def test_too_long_a_prompt_is_refused() -> None:
    done = python(str(ROOT / "examples/gpt.py"), "--bytes", "1000")
    assert done.returncode == 2
    assert "must fit the context" in done.stderr


def test_demo_tells_of_break_and_recompile(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = python(str(ROOT / "examples/demo.py"), "--out", str(out), "--", *SMALL, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (out / "report.html").stat().st_size > 10_000
    line = 1 + (ROOT / "examples/gpt.py").read_text().splitlines().index(
        "        if confidence < self.unsure:"
    )
    assert f"gpt.py:{line}" in done.stdout
