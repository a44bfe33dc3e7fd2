"""The page *Running*: what a step costs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from report_reader import CHROMIUM, DRIVER, Reader
from tc_log import Compiler

from tc.tlparse.report import render
from tc.trace import (
    Gap,
    GraphBreak,
    MemoryHolder,
    MemoryPlan,
    Profile,
    ProgramTime,
    StackFrame,
    StepTime,
)

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
    resumed = "torch_dynamo_resume_in_f_at_5"
    at = "/home/me/model.py"
    program = ProgramTime("0/0", "f", at, 3, "inference", 20, 1.0, 5, steps, gaps)
    broken = (Gap("0/0", "inference", 20, 0.2),)
    after = ProgramTime("1/0", resumed, at, 3, "inference", 20, 0.1, 0, (), broken, guards=0.001)
    memory = MemoryPlan(
        "inference", ("k0_add", "k1_mul"), (f"{at}:5", f"{at}:6"), (1000, 3000), (),
        (MemoryHolder("buf1", "k1_mul", f"{at}:6", 2000),), 2000,
    )  # fmt: skip
    stack = (StackFrame(at, 7, "f", "print(x)"),)
    broke = GraphBreak("TC104", "call of print()", "", at, 7, "f", stack=stack, resume=resumed)
    log = Compiler(tmp_path).start().say(broke).say(memory).start(frame=1, name=resumed)
    found = log.say(Profile((program, after), 0, 2e10, 1e11)).end()
    target = tmp_path / "x.html"
    target.write_bytes(b"".join(render(found)))
    reader = Reader(browser, target.as_uri())
    yield reader
    assert reader.requests() == set()
    assert browser.get_log("browser") == []


def test_it_reports_programs_gaps_lines_and_steps(report: Reader) -> None:
    report.go("#/running")
    rows = [" ".join(text.split()) for text in report.texts("main tbody tr")]
    assert rows[0] == "43 % 1.00 s 50.00 ms 20 f [0/0] bound by arithmetic"
    assert rows[1].startswith("43 % 1.00 s 52.63 ms 19 between calls of f [0/0]")
    assert rows[2].endswith(
        "graph break at model.py:7: guards (1.00 ms), dispatch, autograd, Python"
    )
    lines = [row for row in rows if "model.py:" in row and " ms " in row][1:5]
    assert [row.split()[0] for row in lines] == ["26", "9", "4", "4"]
    assert "↯ model.py:7" in lines[1]
    content = "\n".join(rows)
    assert "90 % of arithmetic" in content and "50 % of memory" in content


@pytest.mark.slow
def test_the_flame_has_lines_under_programs_and_marks_breaks(report: Reader) -> None:
    report.go("#/running")
    assert report.texts(".icicle .bar-piece.compile")[0] == "f [0/0] 50.00 ms"
    assert report.texts(".icicle .bar-piece.fn")[0].startswith("model.py:4")
    (broke,) = report.all(".icicle .bar-piece.gap-break")
    assert broke.get_attribute("title") == "↯ break at model.py:7: 10.00 ms (9 %)"
    broke.click()
    report.until(lambda: report.route.startswith("#/f/TC104"), "the finding")


@pytest.mark.slow
def test_a_compile_shows_the_memory_of_its_step(report: Reader) -> None:
    report.go("#/c/0/0")
    bars = report.all(".skyline rect")
    assert [bar.get_attribute("class") for bar in bars] == ["inference", "inference peak"]
    (row,) = [text for text in report.texts("main tbody tr") if "buf1" in text]
    assert row.split() == ["67", "%", "2.0", "kB", "model.py:6", "k1_mul", "buf1"]


def test_time_by_line_says_that_it_is_an_estimate() -> None:
    from tc.tlparse.report import static

    assert "estimated, not measured" in static("timepage.js")


@pytest.mark.slow
def test_a_program_leads_to_its_compile(report: Reader) -> None:
    report.go("#/")
    report.press("4")
    report.until(lambda: report.route == "#/running", "the page by its number")
    report.all("main tbody a.row")[0].click()
    report.until(lambda: report.route == "#/c/0/0", "the compile")
