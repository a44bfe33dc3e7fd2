"""``tc-bisect record`` and ``compare`` as commands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from minifier_scripts import tool

from tc.minifier.bisect import main

PLAIN = """\
import sys, torch
torch.manual_seed(int(sys.argv[1]))
w = torch.ones(4, requires_grad=True)
for step in range(3):
    x = torch.randn(4)
    (x * w).sum().backward()
"""
LONGER = PLAIN.replace(
    "    x = torch.randn(4)\n", "    print('step', step)\n    x = torch.randn(4)\n"
)


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["record"], ""),
        (["compare", "nowhere.py"], "there is no script nowhere.py"),
        (["compare", "a.values", "b.values"], "there is no log a.values"),
        (["record", "x.py", "--how", "fast"], "--how is eager, moved, compiled or outputs"),
        (["record", "x.py", "-o", "no/where"], "there is no folder no"),
        pytest.param(
            ["compare", "x.py", "--python", "no-python"], "there is no Python no-python",
            marks=pytest.mark.slow,
        ),
    ],
)  # fmt: skip
def test_wrong_usage_is_one_sentence(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.py").write_text("")
    assert main(arguments) == (2 if words else 0)
    output = capsys.readouterr().err
    assert words in output and output.count("\n") <= 1


COMPILED = """\
import torch

def refuse(gm, inputs):
    raise AssertionError("compiled")

torch.compile(lambda x: x.sin() + 1, backend=refuse)(torch.ones(3))
"""


@pytest.mark.slow
def test_a_program_that_compiles_is_recorded_eagerly(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(COMPILED)
    done = tool("tc.minifier.bisect", "record", "script.py", cwd=tmp_path)
    assert done.returncode == 0 and "script.values: " in done.stderr, done.stderr


def test_runs_are_recorded_and_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.values").symlink_to("real.values")
    (tmp_path / "a.py").write_text(PLAIN)
    (tmp_path / "b.py").write_text(LONGER)
    for name, script, seed in (("a", "a.py", "1"), ("b", "b.py", "1"), ("c", "a.py", "2")):
        done = tool("tc.minifier.bisect", "record", script, "-o", f"{name}.values", "--", seed,
                    cwd=tmp_path)  # fmt: skip
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "a.values").is_symlink()
    main(["compare", "a.values", "b.values", "--json"])
    assert json.loads(capsys.readouterr().out)["verdict"] == "equal"
    code = main(["compare", "a.values", "c.values", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert (code, found["line"], found["operation"]) == (1, "a.py:5", "randn")
