"""What became of each line of the user's files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from real_traces import unpacked
from tc_log import Compiler

from tc.tlparse.coverage import coverage, short_names
from tc.trace import FunctionLines, OutputGraph, SourceLines
from tc.trace.findings import diagnose
from tc.trace.provenance import code_map
from tc.trace.session import all_compiles, load


def covered(name: str) -> list[dict[str, Any]]:
    diagnosis = diagnose(load(unpacked() / f"{name}"))
    compiles = list(all_compiles(diagnosis.session))
    codes = [code_map(diagnosis.session, one) for one in compiles]
    return coverage(diagnosis, compiles, codes)


def test_lines_in_graphs_breaks_and_times() -> None:
    (file,) = covered("graph_break")
    assert (file["graph"], file["breaks"], file["recompiles"]) == (5, 3, 0)
    states = {row[0]: row[2] for row in file["lines"]}
    assert (states[3], states[4], states[9]) == ("ok", "break", "break")
    assert file["seconds"] == pytest.approx(36.7, abs=0.1)
    starts = {row[0]: row[8] for row in file["lines"]}
    assert starts[6] == ["f"]


def test_recompiles_stand_at_the_line_that_needs_the_guard() -> None:
    (file,) = covered("recompile")
    found = {row[0]: row[7] for row in file["lines"] if row[7]}
    again = [n for rows in found.values() for name, n in rows if name.startswith("TC201")]
    assert sum(again) == 6
    assert file["recompiles"] == 6


def test_files_of_torch_are_not_the_users() -> None:
    for name in ("train", "transformer", "two_rank"):
        assert all("/torch/" not in one["file"] for one in covered(name))


def test_files_of_one_name_are_distinguished() -> None:
    names = short_names(["/a/x/m.py", "/a/y/m.py", "/a/n.py", "m.py"])
    assert names == {
        "/a/x/m.py": "x/m.py",
        "/a/y/m.py": "y/m.py",
        "/a/n.py": "n.py",
        "m.py": "m.py",
    }


def test_lines_that_no_compile_reached(tmp_path: Path) -> None:
    text = "def f(x):\n    if x.ndim > 3:\n        x = x.sum(-1)\n    return x.sin()\n"
    lines = FunctionLines("/me/m.py", "f", 3, text, (3, 4, 5, 6), (3, 4, 6))
    graph = "class G:\n    def forward(self, x):\n        # File: /me/m.py:6 in f, code: return\n"
    graph += "        sin = x.sin()\n"
    found = Compiler(tmp_path).start().say(SourceLines((lines,))).say(OutputGraph(graph)).end()
    compiles = list(all_compiles(found.session))
    files = coverage(found, compiles, [code_map(found.session, one) for one in compiles])
    file = next(one for one in files if one["name"] == "m.py")
    assert {row[0]: row[2] for row in file["lines"]} == {
        3: "traced", 4: "traced", 5: "never", 6: "ok",
    }  # fmt: skip
    assert (file["coded"], file["graph"], file["traced"], file["never"]) == (4, 1, 2, 1)
    assert file["lines"][2][1] == "        x = x.sum(-1)"
