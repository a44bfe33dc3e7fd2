"""The page *Running*: what a step costs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from report_reader import CHROMIUM, DRIVER, Reader
from tc_log import Compiler

from tc.tlparse.report import render
from tc.trace import Gap, Profile, ProgramTime, StepTime

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="no chromium and chromedriver"),
]


@pytest.fixture
def report(browser: Any, tmp_path: Path) -> Iterator[Reader]:
    steps = (
        StepTime(9, "aten.mm.default", ("/home/me/model.py:4",), 0.03, 4096, 2_700_000_000),
        StepTime(11, "k0_add", ("/home/me/model.py:5", "/home/me/model.py:6"), 0.01, 10**8, 10),
        StepTime(0, "wrapper", (), 0.001, -1, -1),
    )
    gaps = (Gap("0/0", "inference", 19, 1.0),)
    program = ProgramTime("0/0", "f", "/home/me/model.py", 3, "inference", 20, 1.0, 5, steps, gaps)
    found = Compiler(tmp_path).start().say(Profile((program,), 0, 2e10, 1e11)).end()
    target = tmp_path / "x.html"
    target.write_bytes(b"".join(render(found)))
    reader = Reader(browser, target.as_uri())
    yield reader
    assert reader.requests() == set()
    assert browser.get_log("browser") == []


def test_it_reports_programs_gaps_lines_and_steps(report: Reader) -> None:
    report.go("#/running")
    rows = [" ".join(text.split()) for text in report.texts("main tbody tr")]
    assert rows[0] == "50 % 1.00 s 50.00 ms 20 f [0/0] bound by arithmetic"
    assert rows[1].startswith("50 % 1.00 s 52.63 ms 19 between calls of f [0/0]")
    assert [row.split()[0] for row in rows[2:5]] == ["30", "5", "5"]
    assert "90 % of arithmetic" in rows[5] and "50 % of memory" in rows[6]
    assert report.texts(".icicle .bar-piece.compile") == ["f [0/0] 1.00 s"]


def test_a_program_leads_to_its_compile(report: Reader) -> None:
    report.go("#/")
    report.press("4")
    report.until(lambda: report.route == "#/running", "the page by its number")
    report.all("main tbody a.row")[0].click()
    report.until(lambda: report.route == "#/c/0/0", "the compile")
