"""The command: exit codes, sentences, and what it must not import."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support import ROOT, python, succeed

from tc.tui.__main__ import main


def test_help_is_short_and_loads_neither_textual_nor_torch() -> None:
    reported = succeed(
        "-c",
        "import sys; from tc.tui.__main__ import main; code = main(['--help']); "
        "bad = {'textual', 'rich', 'torch'} & set(sys.modules); assert not bad; sys.exit(code)",
    )
    assert len(reported.splitlines()) <= 60
    assert all(len(row) <= 100 for row in reported.splitlines())


def test_the_application_loads_no_torch() -> None:
    succeed("-c", "import sys, tc.tui.app; assert 'torch' not in sys.modules")


def test_version() -> None:
    assert succeed("-m", "tc.tui", "--version").startswith("tc-tui ")


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["nowhere"], 2, "nowhere does not exist"),
        (["--theme", "pink"], 2, "invalid choice"),
        (["empty"], 3, "no trace log in empty"),
        (["trace", "--goto", "zz"], 2, "no finding, compile or function zz in this trace"),
        (["trace", "--goto", "fn zz"], 2, "no finding, compile or function fn zz"),
        (["--split", "trace", "nosuch"], 2, "--split: nosuch does not exist"),
        (["trace", "--nope"], 2, "unrecognized arguments: --nope"),
        (["trace", "--follow"], 2, "--follow needs a terminal"),
        (["garbage.log"], 3, "no trace record"),
    ],
)
def test_bad_input(
    arguments: list[str],
    code: int,
    words: str,
    tmp_path: Path,
    trace: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "garbage.log").write_text("what is this\n" * 50)
    trace.rename(tmp_path / "trace")
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == code
    errors = capsys.readouterr().err
    assert words in errors and errors.count("\n") == 1
    assert errors.startswith("tc-tui")


def test_into_a_pipe_the_findings_are_text(
    trace: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    done = python("-m", "tc.tui", "tc_trace", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    whole = done.stdout
    assert whole.startswith("torch 2.13.0 · 6 compiles of 4 functions · 45.3 s compiling\n")
    assert whole.count("\n  why  ") == 5 and "  fix  make self.step a 0-d tensor" in whole
    monkeypatch.chdir(tmp_path)
    shown = {}
    for name in ("TC101", "1/0", "helper", "fn helper"):
        assert main(["tc_trace", "--goto", name]) == 0
        shown[name], errors = capsys.readouterr()
        assert not errors and "TC101-" in shown[name]
    assert shown["TC101"].count("\n  why  ") == 1
    for name in ("1/0", "helper"):
        assert "TC900-" not in shown[name]
    assert shown["fn helper"] == shown["helper"]


def test_stdin_into_a_pipe_without_unicode(trace: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "ascii"}
    with (trace / "dedicated_log_torch_trace_a.log").open() as log:
        done = subprocess.run(
            [sys.executable, "-m", "tc.tui", "-"], stdin=log, env=environment,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.isascii() and "TC101-" in done.stdout


def test_whoever_reads_the_text_may_stop(trace: Path) -> None:
    command = f"{sys.executable} -m tc.tui tc_trace; echo $? >&2"
    done = subprocess.run(
        ["sh", "-c", f"({command}) | true"], env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stderr == "0\n"
