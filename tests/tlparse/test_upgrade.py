"""One program under two Pythons: the first stage and line that differ."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from tc.tlparse.__main__ import main

#: writes the trace and the output that its Python asks for by a variable
PROGRAM = """
import hashlib, json, os, sys
asked = json.loads(os.environ["ASKED"])
ids = {"frame_id": 0, "frame_compile_id": 0, "attempt": 0}
def record(value, payload=None):
    if payload is not None:
        value["has_payload"] = hashlib.md5(payload.encode()).hexdigest()
    log.write("V1120 09:14:22.968000 1 torch/x.py:1] " + json.dumps({**value, **ids}) + chr(10))
    for row in (payload or "").splitlines():
        log.write(chr(9) + row + chr(10))
where = os.environ["TC_TRACE"]
assert where == os.environ["TORCH_TRACE"]
assert not os.listdir(os.path.dirname(os.environ["TC_CACHE_DIR"]))
if not asked.get("nothing"):
    with open(where + "/dedicated_log_torch_trace_a.log", "w") as log:
        record({"dynamo_start": {"stack": [{"line": 3, "name": "f", "filename": -1}]}})
        graph = "def forward(self, x):" + chr(10) + "    y = x.%s()" % asked.get("op", "sin")
        record({"dynamo_output_graph": {}}, graph)
        record({"inductor_output_code": {}}, "kernel = '%s'" % asked.get("kernel", "k"))
        if asked.get("breaks"):
            reason = "Graph break in user code at prog.py:5" + chr(10) + "Reason: generic_jump"
            name = {"name": "dynamo_graph_break_reason", "encoding": "string"}
            record({"artifact": name}, reason)
print("arguments", sys.argv[1:])
print("loss", asked.get("loss", 0.5))
sys.exit(asked.get("code", 0))
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prog.py").write_text(PROGRAM)
    return tmp_path


def python(place: Path, name: str, **asked: object) -> str:
    """Make a Python under which the program behaves as asked."""
    path = place / name
    path.write_text(f"#!/bin/sh\nASKED='{json.dumps(asked)}' exec {sys.executable} \"$@\"\n")
    path.chmod(0o755)
    return f".{os.sep}{name}"


def upgraded(place: Path, *options: str, **asked: object) -> int:
    pythons = python(place, "a"), python(place, "b", **asked)
    return main(["upgrade", *options, *pythons, "--", "python", "prog.py", "--json", "7"])


@pytest.mark.parametrize(
    ("asked", "first", "reported"),
    [
        ({"code": 3}, "end of the program", "exit code 0 → 3"),
        ({"breaks": True, "op": "cos"}, "graph breaks", "new: TC110"),
        ({"op": "cos", "kernel": "l"}, "captured graphs", "f: - y = x.sin() | + y = x.cos()"),
        ({"kernel": "l", "loss": 9}, "kernels", "f: - kernel = 'k' | + kernel = 'l'"),
        ({"loss": 0.75}, "results", "'loss 0.75' in place of 'loss 0.5'"),
    ],
)
def test_the_first_difference_is_named(
    asked: dict[str, object],
    first: str,
    reported: str,
    place: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert upgraded(place, **asked) == 1
    assert capfd.readouterr().out.startswith(f"first difference: {first}: {reported}")


def test_runs_that_are_alike_up_to_rounding(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert upgraded(place, "--json", "--html", "page.html", loss=0.50001) == 0
    found = json.loads(capfd.readouterr().out)
    assert [row["stage"] for row in found["stages"] if row["differs"]] in ([], ["speed"])
    assert found["a"]["exit_code"] == 0 and Path(found["b"]["trace"]).is_dir()
    assert (place / "tc_upgrade" / "a" / "output.txt").read_text() == (
        "arguments ['--json', '7']\nloss 0.5\n"
    )
    assert "<!doctype html>" in (place / "page.html").read_text()
    assert upgraded(place) == 0 and (place / "tc_upgrade-2").is_dir()


@pytest.mark.parametrize(
    ("words", "reported"),
    [
        (["a", "b"], "tc-report upgrade PYTHON_A PYTHON_B -- train.py"),
        (["./a", "./none", "--", "prog.py"], "./none is no program"),
        (["./a", "--", "prog.py"], "PYTHON_B"),
        (["./a", "./c", "--", "python"], "name the program after --"),
        (["./a", "./c", "--", "prog.py"], "under ./c the program compiled nothing"),
        (["./a", "./d", "--", "prog.py"], "under ./d the program ended with exit code 9"),
    ],
)
def test_what_cannot_be_compared_is_said_in_a_sentence(
    words: list[str], reported: str, place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    python(place, "a")
    python(place, "c", nothing=True)
    python(place, "d", nothing=True, code=9)
    assert main(["upgrade", *words]) == 2
    error = capfd.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("tc-report: ") and reported in error
    has_run = reported.startswith("under ")
    assert Path("tc_upgrade").exists() is has_run
