"""A program is run again with fixes; what they gave is kept beside its trace and reported."""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tc.tlparse import tries
from tc.tlparse.__main__ import main
from tc.tlparse.changes import BY_HAND, Change, change_of, together
from tc.tlparse.edits import NoEdit, Splice
from tc.tlparse.tries import Outcome, Program
from tc.trace.findings.model import Finding, Where

# Stands in for a compiler: what breaks a graph is written to the trace, with the caller's line.
RECORDER = """
import hashlib, inspect, json, os, sys
from torch._dynamo import config

IDS = {"frame_id": 0, "frame_compile_id": 0, "attempt": 0}
HEAD = "V1120 09:14:22.968000 1 torch/x.py:1] "
LOG = open(os.environ["TC_TRACE"] + f"/dedicated_log_torch_trace_{os.getpid()}.log", "w")

def write(record, payload=None):
    if payload is not None:
        record["has_payload"] = hashlib.md5(payload.encode()).hexdigest()
    print(HEAD + json.dumps({**record, **IDS}), file=LOG)
    for row in (payload or "").splitlines():
        print("\\t" + row, file=LOG)

write({"dynamo_start": {"stack": [{"line": 3, "name": "f", "filename": "f.py"}]}})

def broke(code, title, *fix):
    frame = sys._getframe(2)
    where = {"file": frame.f_code.co_filename, "line": frame.f_lineno, "function": "f"}
    record = json.dumps({"code": code, "title": title, "fix": fix, **where})
    write({"artifact": {"name": "tc_graph_break", "encoding": "json"}}, record)

def graph_break():
    broke("TC105", "graph_break() was called", "remove the call of graph_break()",
          "write it otherwise")

def show(*what):
    if print not in config.shown:
        broke("TC104", "call of print() while tracing",
              "for print and loggers: torch._dynamo.config.shown.add(print)",
              "torch._dynamo.config.strict = True, or not")
    print(*what)
    if config.strict:
        sys.exit("strict: nothing may be shown")
"""
TRAIN = """\
import sys
import lib
from recorder import graph_break, show

graph_break()
lib.work()
show("shown", __file__, sys.argv, __name__)
"""
LIB = "from recorder import graph_break\n\ndef work():\n    graph_break()\n"


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    package = tmp_path / "torch" / "_dynamo"
    package.mkdir(parents=True)
    (tmp_path / "torch" / "__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "config.py").write_text("shown, strict = set(), False\n")
    for name, text in (("recorder", RECORDER), ("train", TRAIN), ("lib", LIB)):
        (tmp_path / f"{name}.py").write_text(text)
    return tmp_path / "train.py"


def verified(tmp_path: Path, *command: str) -> list[dict[str, Any]]:
    assert main(["run", "--verify-fixes", "--trace", "t", "--", sys.executable, *command]) == 0
    rows: list[dict[str, Any]] = json.loads((tmp_path / "t" / "fix_trials.json").read_text())[
        "trials"
    ]
    return rows


def reported(rows: list[dict[str, Any]]) -> dict[str, list[str]]:
    said: dict[str, list[str]] = {}
    for row in rows:
        said.setdefault(row["text"], []).append(f"{row['state']}: {row['outcome']}")
    return said


@pytest.mark.parametrize("command", [["train.py", "7"], ["-m", "train", "7"]])
def test_each_fix_is_tried_on_the_program(
    program: Path, tmp_path: Path, command: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    before = {one: one.read_bytes() for one in tmp_path.rglob("*.py")}
    rows = verified(tmp_path, *command)
    assert reported(rows) == {
        "remove the call of graph_break()": ["helped: breaks 3 → 2, same results"] * 2,
        "write it otherwise": [f"untried: {BY_HAND}"] * 2,
        "for print and loggers: torch._dynamo.config.shown.add(print)": [
            "helped: breaks 3 → 2, same results"
        ],
        "torch._dynamo.config.strict = True, or not": [
            "failed: the program then ended with exit code 1: strict: nothing may be shown"
        ],
        "": ["helped: breaks 3 → 0, same results"],
    }
    assert {row["patch"] for row in rows} == {
        "", "- graph_break()\n+ pass", "-     graph_break()\n+     pass",
        "- graph_break()\n+ pass\n-     graph_break()\n+     pass",
    }  # fmt: skip
    assert {one: one.read_bytes() for one in before} == before
    out, err = capfd.readouterr()
    ran = "ran with the edit: breaks 3 → 2, same results"
    assert f"fix: remove the call of graph_break()  (safe, {ran})" in out
    assert "3 fixes together: breaks 3 → 0, same results (ran with the edits)" in out
    assert "trying 3 fixes together" in err
    assert out.count("['") == 1  # of the tries nothing is shown


def test_what_was_tried_is_reported_from_the_trace_later(
    program: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    verified(tmp_path, "train.py")
    capfd.readouterr()
    assert main(["show", "TC104", "t"]) == 0
    shown = capfd.readouterr().out.splitlines()
    first = next(row for row in shown if row.startswith("  fix"))
    assert first.endswith(
        "shown.add(print)  (review, ran with the edit: breaks 3 → 2, same results)"
    )
    assert shown[shown.index(first) + 1].endswith(
        "(review, unchecked: the program then ended with exit code 1: strict: nothing may be shown)"
    )
    assert main(["summary", "t", "--json"]) == 0
    summary = json.loads(capfd.readouterr().out)
    assert summary["together"]["outcome"] == "breaks 3 → 0, same results"
    ways = [way for one in summary["findings"] for way in one["fixes"]]
    assert [way["verified"] for way in ways if way["patch"]] == ["yes", "yes"]
    (tmp_path / "t" / "fix_trials.json").write_text('{"schema": 1, "trials": [{"findings": 3}]}')
    assert main(["show", "TC104", "t"]) == 0
    assert "checked:" not in capfd.readouterr().out


def test_the_stand_in_for_a_script_looks_like_it(program: Path, tmp_path: Path) -> None:
    program.write_text(
        "import inspect, os, sys\nfrom recorder import graph_break\n\ndef f():\n    graph_break()\n"
        "f()\nassert __name__ == '__main__' and '_hook' not in globals()\n"
        "assert os.path.samefile(__file__, 'train.py') and sys.argv == ['train.py', 'x']\n"
        "assert sys.path[0] == os.getcwd()\n"
        "assert 'def f' in inspect.getsource(f)\n"
    )
    assert reported(verified(tmp_path, "train.py", "x"))["remove the call of graph_break()"] == [
        "helped: breaks 1 → 0, it prints no results to compare"
    ]


def test_the_site_of_the_program_is_run_as_well(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text("import builtins\nbuiltins.of_the_site = 1\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(site), os.environ.get("PYTHONPATH", ""))))
    program.write_text("from recorder import graph_break\nof_the_site\ngraph_break()\n")
    rows = reported(verified(tmp_path, "train.py"))
    assert rows["remove the call of graph_break()"] == [
        "helped: breaks 1 → 0, it prints no results to compare"
    ]


def test_a_program_that_takes_too_long_is_ended(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tries, "_LEAST_SECONDS", 0.3)
    slow = Program([sys.executable, "-c", "import time; time.sleep(60)"], 0, 0.0)
    assert slow.again(Change()) == Outcome(error="the program then took too long")


def test_a_change_that_never_takes_effect_is_reported(program: Path) -> None:
    row = {"path": ["x"], "value": 1, "mark": "m"}
    idle = Program([sys.executable, "-c", "pass"], 0, 0.0)
    outcome = idle.again(Change(modules={"never_loaded": (row,)}))
    assert outcome.error == "the program never loaded what it changes"
    assert idle.again(Change()) == Outcome()
    assert Program([sys.executable, "-c", "raise OSError(5)"], 0, 0.0).again(Change()).error == (
        "the program then ended with exit code 1: OSError: 5"
    )


def test_ctrl_c_ends_the_tries_but_not_the_report(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    def interrupted(self: Program, change: Change) -> Outcome:
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("not reached")

    monkeypatch.setattr(Program, "again", interrupted)
    # a process that `nohup` or a shell started in the background ignores it
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert verified(tmp_path, "train.py") == []
    finally:
        signal.signal(signal.SIGINT, before)
    assert "no more fixes are tried: interrupted" in capfd.readouterr().err
    assert (tmp_path / "t" / "tc_report.html").exists()


def test_the_number_of_runs_is_bounded(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tries, "MOST_RUNS", 1)
    rows = verified(tmp_path, "train.py")
    assert sum(row["state"] in ("helped", "failed") for row in rows) == 1
    assert any(
        row["outcome"] == "the program was run 1 times for more expensive ones" for row in rows
    )


def test_a_fix_with_other_results_is_no_help_and_not_combined() -> None:
    """However many breaks it saves; another fix of the same finding takes its place."""
    causes = {"TC101-0000": 1, "TC104-0000": 1}
    before = Outcome(breaks=2, graphs=3, findings=causes, output="1.0\n2.0")
    asked: list[set[str]] = []

    class Fake:
        def again(self, change: Change) -> Outcome:
            rows = change.modules.get("tc.compiler.options", ())
            asked.append({row["path"][-1] for row in rows})
            marks = " ".join(change.marks)
            shown = "1.0" if "bad" in marks else before.output
            return Outcome(breaks=2 - len(change.marks), output=shown)

    tried = tries._Tries(Fake(), before)  # type: ignore[arg-type]
    one, other = finding(), replace(finding(), code="TC104", id="TC104-0000")
    tried.one(one, "tc.config.bad = True")
    tried.one(one, "tc.config.good = True")
    tried.one(other, "tc.config.worse_bad = True")
    tried.all_at_once()
    assert [row.state for row in tried.trials] == ["other results", "helped", "other results"]
    assert "OTHER RESULTS: '2.0' is gone" in tried.trials[0].outcome
    tried.one(other, "tc.config.fine = True")
    tried.all_at_once()
    assert asked[-1] == {"good", "fine"} and tried.trials[-1].state == "helped"


# ------------------------------------------------------------------------------- what is changed


def finding(title: str = "", where: Where | None = None, reason: str = "") -> Finding:
    return Finding("TC101", "TC101-0000", title, where or Where(), "", (), 1, "", 0.0, (), reason)


@pytest.mark.parametrize(
    ("text", "module", "row"),
    [
        ("torch._dynamo.config.capture_scalar_outputs = True, if the number only feeds tensors",
         "torch._dynamo.config", {"path": ["capture_scalar_outputs"], "value": True}),
        ("tc.config.recompile_limit = 16", "tc.compiler.options",
         {"path": ["config", "recompile_limit"], "value": 16}),
        ("for print and loggers: tc.config.reorderable_logging_functions.add(print)",
         "tc.compiler.options",
         {"path": ["config", "reorderable_logging_functions"], "add": "print"}),
        ("torch.compile(..., dynamic=True) makes all sizes dynamic", "torch._dynamo.config",
         {"path": ["assume_static_by_default"], "value": False}),
    ],
)  # fmt: skip
def test_a_switch(text: str, module: str, row: dict[str, Any]) -> None:
    (made,) = change_of(finding("print() is called"), text).modules[module]
    assert {name: value for name, value in made.items() if name != "mark"} == row


def test_sizes_of_pytorch_are_marked_by_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_COMPILE_DYNAMIC_SOURCES", "L['y']")
    change = change_of(finding(), "torch._dynamo.mark_dynamic(x, 0) before the first call")
    inner = change_of(finding(), "torch._dynamo.mark_dynamic(self.x, 1) before the first call")
    assert change.variables == {"TORCH_COMPILE_DYNAMIC_SOURCES": "L['y'],L['x']"}
    assert inner.variables == {"TORCH_COMPILE_DYNAMIC_SOURCES": "L['y'],L['self'].x"}


@pytest.mark.parametrize(
    ("text", "title", "where", "why"),
    [
        ("move it out", "", Where(), "by hand"),
        ("tc.mark_dynamic(x, 0)", "", Where(), "at the call of the function"),
        ("tc.config.reorderable_logging_functions.add(print)", "a logger", Where(), "none of"),
        ("remove the call of graph_break()", "", Where(), "line is not in the trace"),
        ("remove the call of graph_break()", "", Where("/no/such.py", 1), "cannot be read"),
        ("remove the call of graph_break()", "",
         Where("/x/lib/python3.11/site-packages/torch/a.py", 1), "library"),
    ],
)  # fmt: skip
def test_what_cannot_be_tried(text: str, title: str, where: Where, why: str) -> None:
    with pytest.raises(NoEdit, match=why):
        change_of(finding(title, where), text)


def test_changes_are_put_together_unless_they_touch_the_same_place() -> None:
    a = Change({"m": ({"mark": "1"},)}, {"V": "x"}, {"f": (Splice(0, 1, ""),)})
    b = Change({"m": ({"mark": "2"},)}, {"V": "y"}, {"f": (Splice(2, 3, ""),)})
    both = together([a, b, a])
    assert both is not None
    assert both.marks == {"1", "2", "f"}
    assert both.files == {"f": (Splice(0, 1, ""), Splice(2, 3, ""))}
    assert together([a, Change(files={"f": (Splice(0, 2, ""),)})]) is None


REAL = """\
import {who} as compiler
import torch

def f(x):
    y = x.sin()
    scale = y.sum().item()
    if y.sum() > 0:
        return y * scale
    return y - scale

compiler.compile(f)(torch.ones(3))
"""


@pytest.mark.slow
@pytest.mark.parametrize("who", ["tc", "torch"])
def test_fixes_of_a_real_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, who: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(REAL.format(who=who))
    rows = verified(tmp_path, "train.py")
    helped = {
        row["text"].partition(":")[0]: row["outcome"] for row in rows if row["state"] == "helped"
    }
    switch = "torch._dynamo.config" if who == "torch" else "tc.config"
    assert helped[""].startswith("breaks 2 → 0, ")
    assert [
        reported for text, reported in helped.items() if "torch.where" in text or "choose" in text
    ]
    expected = f"{switch}.capture_scalar_outputs"
    assert any(text.removeprefix("set ").startswith(expected) for text in helped)
