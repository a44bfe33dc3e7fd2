"""Fixes that were tried, and settings that are not at their defaults, in a real browser."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from report_reader import CHROMIUM, DRIVER, Reader
from support import shared

from tc.tlparse.report import render
from tc.trace.findings import diagnose
from tc.trace.session import load
from tc.trace.trials import FAILED, HELPED, Trial, write_trials

TRACES = shared("traces")

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not TRACES.is_dir(), reason=f"no real traces in {TRACES}"),
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
    assert "2 fixes together (TC110, TC104): breaks 3 → 0, graphs 3 → 1, checked" in (
        reader.texts(".savings")
    )
    reader.go(f"#/f/{branch.id}")
    assert reader.texts(".fix .verdict") == [
        "review, checked: breaks 3 → 2", "review, unchecked",
        "review, unchecked: the program then took too long",
    ]  # fmt: skip
    assert reader.texts(".patch ins") == [PATCH.partition("\n")[2]]
    assert not reader.all(".patch b")
    assert reader.requests() == set()


def test_settings_that_differ_are_told_with_their_compiles(read: Callable[[str], Reader]) -> None:
    reader = read("dynamic")
    told = reader.texts("section:last-of-type p")[-1]
    assert told.startswith("1 setting not at the default of torch 2.13: ")
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
