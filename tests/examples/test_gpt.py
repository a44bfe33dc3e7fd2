"""The example GPT: learns, writes the same text twice, and runs as a program."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import gpt
import pytest
import torch
from support import ROOT, succeed

from tc.trace.findings import diagnose
from tc.trace.session import load

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


@pytest.mark.slow  # the demo runs it as well
@pytest.mark.parametrize("compiler", ["eager", "tc"])
def test_runs_as_a_program(compiler: str) -> None:
    said = succeed(str(ROOT / "examples/gpt.py"), "--compiler", compiler, *SMALL, warm=True)
    assert "matches    eager, all 6 steps" in said


def test_too_long_a_prompt_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        gpt.main(["--bytes", "1000"])
    assert ended.value.code == 2
    assert "must fit the context" in capsys.readouterr().err


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder that a short demo wrote, and what it printed."""
    out = tmp_path_factory.mktemp("demo") / "out"
    return out, succeed(str(ROOT / "examples/demo.py"), "--out", str(out), "--", *SMALL, warm=True)


def test_demo_has_one_break_and_one_recompile(demo: tuple[Path, str]) -> None:
    diagnosis = diagnose(load(demo[0] / "trace"))
    line = 1 + (ROOT / "examples/gpt.py").read_text().splitlines().index(
        "        if confidence < self.unsure:"
    )
    assert {(broke.code, broke.where.line) for broke in diagnosis.breaks} == {("TC110", line)}
    (again,) = diagnosis.recompiles
    (cause,) = again.causes
    assert (cause.source, cause.old, cause.new) == ("tokens.shape[1]", "31", "32")
    assert cause.now_dynamic and cause.guard
    assert not diagnosis.failures


def test_demo_reports_what_happened(demo: tuple[Path, str]) -> None:
    said = demo[1]
    assert "matches    eager, all 6 steps" in said
    assert re.search(r"break .* gpt\.py:\d+ in .*: branch depends on tensor data", said)
    assert re.search(r"recompile .* tokens\.shape\[1\]: 31 → 32; guard: .*tokens", said)
    assert str(demo[0] / "report.html") in said
    assert (demo[0] / "report.html").stat().st_size > 10_000


def test_the_real_tlparse_reads_the_trace_of_the_demo(
    demo: tuple[Path, str], tmp_path: Path
) -> None:
    tlparse = Path(sys.executable).with_name("tlparse")
    if not tlparse.exists():
        pytest.skip("tlparse is not installed")
    (log,) = (demo[0] / "trace").glob("*.log")
    command = [str(tlparse), "--strict", "--no-browser", "-o", str(tmp_path / "out"), str(log)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    index = (tmp_path / "out/index.html").read_text()
    assert "[0/0]" in index and "[0/1]" in index
