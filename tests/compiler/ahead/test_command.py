"""tc-precompile: what it prints, its exit codes, and one sentence for each mistake."""

from __future__ import annotations

import json
import sys

import pytest
import torch

import tc
from tc.compiler.ahead.__main__ import main

MODEL = """
import torch

def double(x, n=2):
    return x * n

def wrong(x):
    return x @ torch.ones(3, 3)

def make():
    return torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Dropout())

def breaks():
    raise ValueError("no weights")

net = make()
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "served.py").write_text(MODEL)
    (tmp_path / "unfit.py").write_text("import torch\n1 / 0\n")
    monkeypatch.delitem(sys.modules, "served", raising=False)
    tc.reset()
    return tmp_path


def test_a_function_is_compiled_and_the_result_is_data(capsys):
    code = main(
        ["served:double", "--shape", "x=4|8,2", "--value", "n=3", "--workers", "0", "--json"]
    )
    printed = json.loads(capsys.readouterr().out)
    assert code == 0 and printed["complete"] and printed["graphs"] == 2
    assert [case["inputs"] for case in printed["cases"]] == ["x=(4,2) n=3", "x=(8,2) n=3"]


def test_a_module_is_made_and_saved(folder, capsys):
    command = ["served:make()", "--eval", "--inference-mode", "--shape", "input=B,3"]
    with tc.config.patch(fx_graph_cache=True):
        code = main([*command, "--size", "B=2..8", "--workers", "0", "--save", "net.tc"])
    assert code == 0 and "net.tc: 1 graph," in capsys.readouterr().out
    assert (folder / "net.tc").stat().st_size > 1000


def test_a_case_that_fails_gives_1(capsys):
    assert main(["served:wrong", "--shape", "x=2,4", "--workers", "0"]) == 1
    printed = capsys.readouterr()
    assert "✗ x=(2,4)" in printed.out and "Traceback" not in printed.err + printed.out


@pytest.mark.parametrize(
    ("command", "code", "says"),
    [
        ("", 2, "MODULE:NAME is missing"),
        ("served", 2, "is not MODULE:NAME"),
        ("served:", 2, "is not MODULE:NAME"),
        ("nowhere:f", 2, "there is no module nowhere"),
        ("served:nothing", 2, "served has no nothing"),
        ("served:double --shape y=3", 2, "missing a required argument"),
        ("served:double --shape x=B", 2, "nothing says what B may be"),
        ("served:double --shape x=3 --size B", 2, "is not NAME="),
        ("served:double --shape x=3 --eval", 2, "is for modules"),
        ("served:double --shape x=3 --no-grad --inference-mode", 2, "exclude each other"),
        ("served:double --shape x=3 --mode fastest", 2, "no mode"),
        (
            "served:double --shape x=3 --workers -1",
            2,
            "from 0 on is needed, not '-1'",
        ),
        ("served:double --shape x=3 --save no/folder/net.tc", 2, "no folder"),
        ("served:double --shapes x=3", 2, "unrecognized"),
        ("--shapes=x", 2, "unrecognized arguments: --shapes=x"),
        ("served:double --workers x", 2, "a whole number from 0 on is needed, not 'x'"),
        ("served:double --shape x=3@cdua", 2, "torch has no device 'cdua'"),
        ("served:double --shape x=3@cuda:977", 2, "torch cannot use the device 'cuda:977' here"),
        ("served:double --shape x=99999999999999999999", 2, "cannot be made"),
        ("served:double --shape x=3@xpu", 2, "torch cannot use the device 'xpu' here"),
        ("unfit:f", 1, "importing unfit raised ZeroDivisionError"),
        ("served:breaks()", 1, "raised ValueError: no weights"),
    ],
)
def test_mistakes_are_one_sentence(command, code, says, capsys):
    assert main(command.split()) == code
    printed = capsys.readouterr()
    assert says in printed.err and printed.err.startswith("tc-precompile: ") and not printed.out
    assert printed.err.count("\n") == 1 and "Traceback" not in printed.err


def test_help_and_version(capsys):
    assert main(["--help"]) == 0 and main(["--version"]) == 0
    assert "exit codes" in capsys.readouterr().out


def test_modules_found_by_the_command_can_be_called_in_its_process():
    assert main(["served:net", "--shape", "input=2,3", "--workers", "0"]) == 0
    before = tc.counters["frames"]["total"]
    tc.compile(sys.modules["served"].net)(torch.ones(2, 3))
    assert tc.counters["frames"]["total"] == before


@pytest.mark.parametrize(
    "text, words",
    [
        ("import sys\nsys.exit(3)\n", "raised SystemExit: 3 (PATH:2)"),
        ("raise SystemExit('no data')\n", "raised SystemExit: no data (PATH:1)"),
        ("x = 1\ndef (\n", "raised SyntaxError: invalid syntax (PATH:2)"),
        ("if 1:\nx = 1\n", "raised IndentationError: "),
        ("1 / 0\n", "raised ZeroDivisionError: division by zero (PATH:1)"),
        ("import no_such_thing\n", "raised ModuleNotFoundError: "),
        (
            "x = 'a\\0'\nraise OSError(2, 'gone')\n",
            "raised FileNotFoundError: [Errno 2] gone (PATH:2)",
        ),
    ],
)
def test_how_a_module_ends_is_said_with_its_line(text, words, folder, capsys):
    (folder / "ends.py").write_text(text)
    sys.modules.pop("ends", None)
    code = main(["ends:f", "--shape", "x=3"])
    error = capsys.readouterr().err
    assert code == 1 and error.count("\n") == 1
    assert words.replace("PATH", str(folder / "ends.py")) in error
    assert f"{folder / 'ends.py'}:" in error


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--size", "A=2", "--size", "A=3"], "--size A=... is given 2 times"),
        (["--value", "n=2", "--value", "n=3"], "--value n=... is given 2 times"),
        (["--shape", "x=2", "--shape", "x=3"], "--shape x=... is given 2 times"),
        (["--save", "."], "is a folder"),
        (["--save", "nowhere/a.tc"], "there is no folder"),
        (["--save="], "--save is empty"),
        (["--mode", ""], "--mode is empty"),
        (["--shape", ""], "--shape is empty"),
    ],
)
def test_what_cannot_be_followed_is_refused_at_once(arguments, words, folder, capsys):
    (folder / "runs.py").write_text("open('ran', 'w')\n")
    assert main(["runs:f", *arguments]) == 2
    assert words in capsys.readouterr().err and not (folder / "ran").exists()
