"""tc-minify: usage, one reduction from end to end, interruption."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from faultbench import BLOCKS, written
from minifier_scripts import SMALL, started, tool
from support import ROOT, python

import tc
from tc.minifier import bisect, script_job, writer
from tc.minifier.__main__ import main
from tc.minifier.check import Interpreter
from tc.minifier.fresh import Fresh


@pytest.mark.parametrize(
    "arguments, text",
    [
        ([], "name a script"),
        (["nowhere.py"], "there is no script nowhere.py"),
        (["."], "is a folder"),
        (["nowhere.py", "--fast"], "unrecognized arguments: --fast"),
        (["SCRIPT", "-o", "no/such/folder/x.py"], "there is no folder"),
        (["SCRIPT", "-o", "SCRIPT"], "is the script itself"),
        (["SCRIPT", "--seconds", "0"], "a number of seconds above zero is needed"),
        (["SCRIPT", "--seconds", "nan"], "a number of seconds above zero is needed"),
        (["SCRIPT", "--runs", "-3"], "a whole number from 1 on is needed"),
        (["SCRIPT", "--runs", "x"], "a whole number from 1 on is needed, not 'x'"),
        (["SCRIPT", "--check", " "], "--check needs a command"),
        (["SCRIPT", "--check", "no-such-command {}"], "the command was not found: no-such"),
        (["--fast"], "unrecognized arguments: --fast"),
        (["SCRIPT", "--check", "true", "--python", "python3"], "exclude each other"),
        (["SCRIPT", "--python", "no-such-python"], "there is no Python no-such-python"),
        (["SCRIPT", "--python", "true"], "does not run"),
        (["SCRIPT", "--resume", "-o", "SCRIPT2"], "there is nothing to continue"),
        (["-m", "no.such.module"], "there is no module no.such.module"),
        (["nowhere.py::test_a"], "there is no script nowhere.py"),
        (["::test_a"], "name a script"),
        (["SCRIPT", "-o", "FOLDER"], "is a folder"),
        (["SCRIPT", "-o", "MINE"], "not of tc-minify's"),
        (["SCRIPT", "-o", "FOLDER/a.py"], "not of tc-minify's"),
        (["SCRIPT", "-o", "PIPE"], "is no regular file"),
        (["BROKEN"], "is no Python program"),
        (["BINARY"], "is not a text"),
    ],
)
def test_wrong_usage_is_one_sentence(
    arguments: list[str],
    text: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    script = written(tmp_path, SMALL)
    names = {"SCRIPT": script, "FOLDER": tmp_path / "d", "MINE": tmp_path / "mine.py",
             "BROKEN": tmp_path / "broken.py", "BINARY": tmp_path / "binary.py",
             "PIPE": tmp_path / "p"}  # fmt: skip
    os.mkfifo(tmp_path / "p")
    (tmp_path / "d" / "a.history").mkdir(parents=True)
    (tmp_path / "mine.py").write_text("x = 1\n")
    (tmp_path / "broken.py").write_text("def f(:\n")
    (tmp_path / "binary.py").write_bytes(b"\xff\xfe")
    for name, path in names.items():
        arguments = [argument.replace(name, str(path)) for argument in arguments]
    before = sorted(tmp_path.rglob("*"))
    assert main(arguments) == 2
    reported = capsys.readouterr()
    assert sorted(tmp_path.rglob("*")) == before
    assert (tmp_path / "mine.py").read_text() == "x = 1\n"
    assert text in reported.err
    assert len(reported.err.splitlines()) == 1 and not reported.out


@pytest.mark.parametrize("tool", [main, bisect.main])
def test_without_torch_there_is_one_sentence(
    tool: Callable[[list[str]], int],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *rest: None)
    assert tool([str(written(tmp_path, SMALL))]) == 2
    errors = capsys.readouterr().err
    assert "torch is not installed" in errors and len(errors.splitlines()) == 1


def test_any_program_is_reduced_by_a_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "script.py").write_text("import os, sys\nx = f'{os.sep!r}'\nculprit = [x, 3]\n")
    assert main(["script.py", "--check", "grep -q culprit {}", "--issue", "--history"]) == 0
    text = capsys.readouterr().out
    assert (
        text.startswith("# the check holds: grep") and "```python" in text and "## Versions" in text
    )
    assert (tmp_path / "minified.py").read_text().splitlines()[-1] == "culprit = 2"
    steps = sorted((tmp_path / "minified.history").glob("*.py"))
    assert steps and steps[0].name.startswith("0001-")
    assert main(["script.py", "--check", "exit 125"]) == 1
    assert "the check ends with 125" in capsys.readouterr().err


ENDLESS = """\
import time
count = 0
while count < 2:
    count += 1
    time.sleep(0.05)
print("it fails")
"""


def test_a_candidate_that_does_not_end_costs_no_more_than_the_program_suggests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script_job, "HUNG", 1.0)
    monkeypatch.chdir(tmp_path)
    Path("any.py").write_text(ENDLESS)
    began = time.monotonic()
    assert main(["any.py", "--check", f"{sys.executable} {{}} | grep -q fails"]) == 0
    assert time.monotonic() - began < 100  # one candidate alone would take ten minutes
    assert Path("minified.py").read_text().endswith("print('it fails')\n")


@pytest.mark.sample(4)
@pytest.mark.parametrize("check", ["no-such-command {}", "false", "exit 125", "/ {}"])
@pytest.mark.parametrize("more", [[], ["--history"], ["--runs", "3"]])
def test_where_nothing_fails_nothing_is_left(
    check: str, more: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "script.py").write_text("x = 1\n")
    assert main(["script.py", "--check", check, *more]) in (1, 2)
    assert [path.name for path in tmp_path.iterdir()] == ["script.py"]


def test_a_result_names_the_versions_of_what_runs_it() -> None:
    (line,) = writer.made_by()
    assert re.fullmatch(rf"# tc {tc.__version__}, torch \d[\d.a-z]*, Python 3[\d.]+", line)
    assert writer.made_by("") == [f"# tc {tc.__version__}"]
    assert Interpreter(Fresh(60)).versions == writer.versions()
    assert Interpreter(Fresh(60, "no-such-python")).versions == ""


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "oracle", [["--check", "grep -q culprit {}"], ["--python", sys.executable]]
)
def test_a_program_without_a_compiler_has_no_step_to_blame(
    oracle: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "script.py").write_text("x = 1\nculprit = [][x]\n")
    files = [str(tmp_path / "script.py"), "-o", str(tmp_path / "out.py")]
    assert main([*files, *oracle]) == 0
    assert "tc-bisect" not in capsys.readouterr().err
    made_by = writer.made_by(None if "--python" in oracle else "")
    assert made_by[0] in (tmp_path / "out.py").read_text().splitlines()
    assert main([*files, *oracle, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["next"] is None


@pytest.mark.sample(1)
@pytest.mark.parametrize("oracle", [["--check", "grep -q é {}"], ["--python", sys.executable]])
def test_programs_are_utf_8_whatever_the_locale_is(oracle: list[str], tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("x = 'é → и'\nassert len(x) == 3, x\n", encoding="utf-8")
    done = python(
        "-m", "tc.minifier", "script.py", "--issue", *oracle, cwd=tmp_path,
        variables={**os.environ, "PYTHONPATH": str(ROOT), "LC_ALL": "C", "PYTHONUTF8": "0"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "é" in (tmp_path / "minified.py").read_text(encoding="utf-8") or "--python" in oracle
    assert sorted(path.name for path in tmp_path.iterdir()) == ["minified.py", "script.py"]


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    reported = capsys.readouterr().out
    assert (
        "examples:" in reported and "exit codes:" in reported and len(reported.splitlines()) <= 60
    )
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


@pytest.mark.slow
def test_a_script_without_a_failure_says_so(tmp_path: Path) -> None:
    written(tmp_path, SMALL)
    done = tool("tc.minifier", "script.py", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith(
        "tc-minify: script.py does not fail: 1 graph agrees with eager in 1 call; it ran "
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


def test_the_result_goes_where_a_link_leads(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "a.py").write_text("x = 1\ny = 'mark'\nz = 3\n")
    (tmp_path / "out.py").symlink_to(Path("far", "real.py"))
    assert main([str(tmp_path / "a.py"), "--check", "grep -q mark {}",
                 "-o", str(tmp_path / "out.py")]) == 0  # fmt: skip
    assert (tmp_path / "out.py").is_symlink() and os.listdir(tmp_path / "far") == ["real.py"]
    assert "mark" in (tmp_path / "far" / "real.py").read_text()


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", ["tc.minifier.__main__", "tc.minifier.bisect"])
@pytest.mark.parametrize("arguments", [[], ["--help"], ["--version"], ["nothing.py"]])
def test_what_needs_no_torch_loads_none(name: str, arguments: list[str]) -> None:
    code = (
        f"import sys; from {name} import main; main({arguments!r}); "
        "print([n for n in ('torch', 'numpy', 'sympy') if n in sys.modules], file=sys.stderr)"
    )
    done = python("-c", code)
    assert done.stderr.splitlines()[-1] == "[]"
