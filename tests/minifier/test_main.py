"""tc-minify: usage, one reduction from end to end, interruption."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest
from faultbench import BLOCKS, written
from minifier_scripts import SMALL, started, tool

from tc.minifier.__main__ import main


@pytest.mark.parametrize(
    "arguments, text",
    [
        ([], "name a script"),
        (["nowhere.py"], "there is no script nowhere.py"),
        (["."], "is a folder"),
        (["nowhere.py", "--fast"], "unrecognized arguments: --fast"),
        (["SCRIPT", "-o", "no/such/folder/x.py"], "there is no folder"),
        (["SCRIPT", "-o", "SCRIPT"], "is the script itself"),
    ],
)
def test_wrong_usage_is_one_sentence(
    arguments: list[str], text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = written(tmp_path, SMALL)
    assert main([argument.replace("SCRIPT", str(script)) for argument in arguments]) == 2
    told = capsys.readouterr()
    assert text in told.err
    assert len(told.err.splitlines()) == 1 and not told.out


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    told = capsys.readouterr().out
    assert "examples:" in told and "exit codes:" in told and len(told.splitlines()) <= 60
    assert main(["--version"]) == 0


def test_a_failing_script_becomes_a_few_lines(tmp_path: Path) -> None:
    written(tmp_path, SMALL)
    done = tool("tc.minifier", "script.py", "--json", fault="tc:wrong:tanh", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["schema"], found["failure"], found["calls"]) == (1, "wrong", 1)
    assert found["verified"] == 5 and found["self_contained"]
    text = (tmp_path / "minified.py").read_text()
    assert "torch.tanh(x)" in text and "# from script.py:4: z = torch.tanh(y)" in text
    assert found["lines"] == len(text.splitlines()) <= 20
    assert found["tries"] <= 20
    assert sorted(p.name for p in tmp_path.glob("*.p*")) == ["minified.py", "script.py"]


def test_a_script_without_a_failure_says_so(tmp_path: Path) -> None:
    written(tmp_path, SMALL)
    done = tool("tc.minifier", "script.py", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith(
        "tc-minify: script.py does not fail: 1 graphs agree with eager in 1 calls; it ran "
    )
    assert "--runs 20" in done.stderr and len(done.stderr.splitlines()) == 1
    assert [path.name for path in tmp_path.glob("*minified*")] == []


@pytest.mark.slow
def test_a_script_that_fails_by_itself_says_so(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("import tc\nraise ValueError('no data')\n")
    done = tool("tc.minifier", "script.py", cwd=tmp_path)
    assert done.returncode == 1
    assert "without the compiler being to blame: ValueError: no data" in done.stderr


@pytest.mark.slow
def test_ctrl_c_keeps_the_best(tmp_path: Path) -> None:
    written(tmp_path, BLOCKS)
    process = started("tc.minifier", "script.py", fault="tc:crash:log1p+relu", cwd=tmp_path)
    output = tmp_path / "minified.py"
    deadline = time.monotonic() + 300
    while not output.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(1.0)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    assert "interrupted" in errors
    compile(output.read_text(), "minified.py", "exec")
    assert not list(tmp_path.glob(".*.part"))
