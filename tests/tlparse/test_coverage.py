"""What became of each line of the user's files."""

from __future__ import annotations

from typing import Any

import pytest
from support import shared

from tc.tlparse.coverage import coverage, short_names
from tc.trace.findings import diagnose
from tc.trace.provenance import code_map
from tc.trace.session import all_compiles, load


def covered(name: str) -> list[dict[str, Any]]:
    diagnosis = diagnose(load(shared(f"traces/{name}")))
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


def test_files_of_one_name_are_told_apart() -> None:
    names = short_names(["/a/x/m.py", "/a/y/m.py", "/a/n.py", "m.py"])
    assert names == {
        "/a/x/m.py": "x/m.py",
        "/a/y/m.py": "y/m.py",
        "/a/n.py": "n.py",
        "m.py": "m.py",
    }
