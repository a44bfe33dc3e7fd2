"""Fixes that were tried, settings that are not at their defaults, calls that ran in Python."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from real_traces import unpacked
from report_reader import CHROMIUM, DRIVER, Reader
from tc_log import Compiler

from tc.tlparse.report import render
from tc.trace import Region, RegionsRan
from tc.trace import events as ev
from tc.trace.findings import diagnose
from tc.trace.ids import CompileId
from tc.trace.session import load
from tc.trace.trials import FAILED, HELPED, Trial, write_trials

TRACES = unpacked()

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="no chromium and chromedriver"),
]
PATCH = "- if x.sum() > 0:\n+ return torch.where(x.sum() > 0, </script><b>, x)"


def test_what_came_of_a_fix_stands_beside_it(browser: Any, tmp_path: Path) -> None:
    shutil.copytree(TRACES / "graph_break", tmp_path / "t")
    found = diagnose(load(tmp_path / "t")).findings
    branch = next(one for one in found if one.code == "TC110")
    write_trials(tmp_path / "t", [
        Trial((branch.id,), branch.fix[0], FAILED, "the program then took too long"),
        Trial((branch.id,), branch.fix[1], HELPED, "breaks 3 → 2", PATCH),
        Trial((branch.id, found[0].id), "", HELPED, "breaks 3 → 0, graphs 3 → 1"),
    ])  # fmt: skip
    page = tmp_path / "report.html"
    page.write_bytes(b"".join(render(diagnose(load(tmp_path / "t")))))
    reader = Reader(browser, page.as_uri())
    assert "2 fixes together (TC110, TC104): breaks 3 → 0, graphs 3 → 1, ran with the edits" in (
        reader.texts(".savings")
    )
    reader.go(f"#/f/{branch.id}")
    assert reader.texts(".fix .verdict") == [
        "review, ran with the edit: breaks 3 → 2",
        *["review, unchecked"] * (len(branch.fix) - 2),
        "review, unchecked: the program then took too long",
    ]  # fmt: skip
    assert reader.texts(".patch ins") == [PATCH.partition("\n")[2]]
    assert not reader.all(".patch b")
    assert reader.requests() == set()


@pytest.mark.slow
def test_settings_that_differ_are_reported_with_their_compiles(
    read: Callable[[str], Reader],
) -> None:
    reader = read("dynamic")
    shown = reader.texts("section:last-of-type p")[-1]
    assert shown.startswith("1 setting not at the default of torch 2.13: ")
    reader.go("#/raw")
    rows = [row for row in reader.texts("tbody tr") if row.startswith("dynamo.")]
    assert rows == ["dynamo.capture_scalar_outputs True False [2/0]"]
    for route, count in (("#/c/2/0", 1), ("#/c/0/0", 0)):
        reader.go(route)
        for one in reader.all("main details summary"):
            if one.text.startswith("Settings"):
                one.click()
        found = [row for row in reader.texts("tbody tr") if row.startswith("dynamo.")]
        assert len(found) == count


@pytest.mark.slow
def test_calls_in_python_stand_beside_what_made_them(browser: Any, tmp_path: Path) -> None:
    cause = ev.RecompileCause("n", "L['n'] == 1", "1", "9", "a constant")
    region = Region("0/2", "f", "/home/me/model.py", 3, "python", 1234, 0, 0.0)
    log = Compiler(tmp_path).start().start(1)
    log.say(ev.Recompile("f", "m.py", 3, CompileId(0, 0), (replace(cause, new="1", old="0"),)), 1)
    log.say(ev.RecompileLimit("f", "/home/me/model.py", 3, 2, (cause,)), 2)
    page = tmp_path / "report.html"
    page.write_bytes(b"".join(render(log.say(RegionsRan((region,)), 1).end())))
    reader = Reader(browser, page.as_uri())
    assert "1× · 1234 calls in Python" in reader.texts(".card header .push")
    reader.go("#/fn/f")
    assert "1234 calls in Python" in reader.texts(".badges")[0]
    assert any("reached the recompile limit" in title for title in reader.texts(".card h3"))
    last = reader.texts(".ledger tbody tr")[-1]
    assert last.startswith("refused 9") and "runs in Python" in last
    assert reader.requests() == set()
