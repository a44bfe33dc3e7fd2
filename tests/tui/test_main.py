"""The command: exit codes, sentences, and what it must not import."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import python, succeed

from tc.tui import __main__ as command


def test_help_is_short_and_loads_neither_textual_nor_torch() -> None:
    told = succeed(
        "-c",
        "import sys; from tc.tui.__main__ import main; code = main(['--help']); "
        "bad = {'textual', 'rich', 'torch'} & set(sys.modules); assert not bad; sys.exit(code)",
    )
    assert len(told.splitlines()) <= 60
    assert all(len(row) <= 100 for row in told.splitlines())


def test_the_application_loads_no_torch() -> None:
    succeed("-c", "import sys, tc.tui.app; assert 'torch' not in sys.modules")


def test_version() -> None:
    assert succeed("-m", "tc.tui", "--version").startswith("tc-tui ")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["nowhere"], 2, "nowhere does not exist"),
        (["--theme", "pink"], 2, "invalid choice"),
        (["empty"], 3, "no trace log in empty"),
        (["trace"], 2, "needs a terminal; for text: tc-report summary trace"),
    ],
)
def test_bad_input(
    arguments: list[str], code: int, words: str, tmp_path: Path, trace: Path
) -> None:
    (tmp_path / "empty").mkdir()
    trace.rename(tmp_path / "trace")
    done = python("-m", "tc.tui", *arguments, cwd=tmp_path)
    assert done.returncode == code
    assert words in done.stderr and done.stderr.count("\n") == 1
    assert done.stderr.startswith("tc-tui")


def test_without_textual_it_names_the_extra(
    trace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    assert command.main(["tc_trace"]) == 2
    said = capsys.readouterr().err
    assert said == "tc-tui needs Textual: pip install 'tc-compile[tui]'\n"
