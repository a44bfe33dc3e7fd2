"""The flows of a report from symptom to fix, each once by keyboard alone and once by mouse."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from report_reader import CHROMIUM, DRIVER, Reader
from tc_log import Compiler

from tc import trace
from tc.tlparse.report import render
from tc.trace.findings import Diagnosis

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="no chromium and chromedriver"),
]
BEFORE = ("  in[0]  x: f32[4]", "  add: f32[4] = aten.add(x, 0)  # m.py:4")
AFTER = ("  in[0]  x: f32[4]", "  sin: f32[4] = aten.sin(x)  # m.py:5", "  return [sin]")


def graph_text(lines: tuple[str, ...]) -> str:
    return "inference graph\n" + "\n".join(lines)


def region(calls: int, seconds: float) -> trace.Region:
    return trace.Region("0/0", "f", "/home/me/model.py", 3, "compiled", calls, 3, seconds)


def a_run(folder: Path) -> Diagnosis:
    """Return a run of one function whose graph two passes changed and one left alone."""
    dropped = trace.Edit(1, (BEFORE[1], "  sin: f32[4] = aten.sin(add)  # m.py:5"), (AFTER[1],))
    dead = trace.Edit(1, ("  cos: f32[4] = aten.cos(x)  # m.py:6",), ())
    passes = (
        trace.PassRan("aot.drop_dead_code", 1, 1, changed=True, before=5, after=4, edits=(dead,)),
        trace.PassRan("aot.share", 2, 2, before=4, after=4),
        trace.PassRan("aot.drop_no_ops", 3, 3, changed=True, before=4, after=3, edits=(dropped,)),
        trace.PassRan("aot.fold", 4, 4, refused=True, before=3, after=3),
    )
    fired = (trace.Fired(6, "loops.rule.mul_one", "mul(x[i0], 1)", "x[i0]", "buf0", "/me/m.py:7"),)
    steps = (trace.Steps("loops.rule.mul_one", 1, 0, 6, 6, ("buf0",)),)
    return (
        Compiler(folder)
        .start()
        .say(trace.OutputGraph("def forward(self, x):\n    y = x + 0\n"))
        .say(trace.AtenGraph("inference", graph_text(AFTER)))
        .say(trace.StageRan("inference", "aot", 1, 4, passes))
        .say(trace.StageRan("inference", "loops", 6, 6, (), steps, fired))
        .say(trace.OutputCode("def call(args):\n    return args", "/tmp/c.py"))
        .say(trace.RegionsRan((region(1, 0.00005), region(40, 0.0006))))
        .end()
    )


@pytest.fixture
def tc_page(browser: Any, tmp_path: Path) -> Iterator[Reader]:
    target = tmp_path / "x.html"
    target.write_bytes(b"".join(render(a_run(tmp_path))))
    reader = Reader(browser, target.as_uri())
    yield reader
    assert reader.requests() == set()
    assert browser.get_log("browser") == []


def keys() -> Any:
    from selenium.webdriver.common.keys import Keys

    return Keys


def rows_of_diff(reader: Reader) -> list[str]:
    return [
        " ".join(text.split())
        for text in reader.texts(".sheet .row-in, .sheet .row-out, .sheet .row-same")
    ]


def test_passes_are_stepped_through_by_keyboard(tc_page: Reader) -> None:
    tc_page.go("#/c/0/0")
    for _ in range(9):
        tc_page.press("j")
        if "pass" in tc_page.driver.switch_to.active_element.text:
            break
    tc_page.press(keys().ENTER)
    tc_page.until(lambda: tc_page.route == "#/c/0/0/passes", "the passes")
    tc_page.wait_for("#passes .sheet header b")
    names = [text.partition("\n")[0] for text in tc_page.texts("#passes .list a")]
    assert names == ["drop_dead_code", "drop_no_ops", "fold", "rule.mul_one"]
    assert tc_page.texts("#passes .sheet header b") == ["aot.drop_dead_code"]
    tc_page.wait_for(".sheet .row-out")
    assert any("cos" in row for row in rows_of_diff(tc_page))
    assert any("add" in row for row in rows_of_diff(tc_page)), "lines before it are worked out"
    tc_page.press(keys().ARROW_RIGHT)
    tc_page.until(
        lambda: tc_page.texts("#passes .sheet header b") == ["aot.drop_no_ops"], "the next"
    )
    assert tc_page.route == "#/c/0/0/passes/2"
    assert any(row.startswith("added: + sin") for row in rows_of_diff(tc_page))
    tc_page.press(keys().ARROW_RIGHT)
    tc_page.until(
        lambda: "gate did not let it run" in tc_page.texts(".sheet")[0], "the refused one"
    )
    tc_page.press("c")
    assert len(tc_page.all("#passes .list a")) == 5
    tc_page.press("c", keys().ARROW_LEFT)
    tc_page.until(lambda: tc_page.route == "#/c/0/0/passes/2", "the one before")
    tc_page.press(keys().ESCAPE)
    tc_page.until(lambda: tc_page.route == "#/c/0/0", "the compile")


@pytest.mark.slow
def test_passes_by_mouse_and_the_numbers_for_bisecting(tc_page: Reader) -> None:
    tc_page.go("#/c/0/0/passes")
    tc_page.wait_for("#passes .list a")
    tc_page.all("#passes .list a")[-1].click()
    tc_page.until(
        lambda: tc_page.texts("#passes .sheet header b") == ["loops.rule.mul_one"], "a rule"
    )
    assert "TC_BISECT=6 stops before it" in tc_page.texts("#passes .sheet header")[0]
    assert rows_of_diff(tc_page) == ["removed: - mul(x[i0], 1)", "1 added: + x[i0]"] or any(
        "mul(x[i0], 1)" in row for row in rows_of_diff(tc_page)
    )
    assert [text.split()[3] for text in tc_page.texts("main tbody tr")] == ["loops.rule.mul_one"]


@pytest.mark.slow
def test_the_strip_of_stages_leads_to_what_changed(tc_page: Reader) -> None:
    tc_page.go("#/c/0/0")
    tc_page.until(lambda: "2 ops" in " ".join(tc_page.texts(".strip .stage"))
               or "1 op" in " ".join(tc_page.texts(".strip .stage")), "sizes")  # fmt: skip
    assert [text.split("\n")[0] for text in tc_page.texts(".strip .stage")] == [
        "graph", "inference", "code",
    ]  # fmt: skip
    tc_page.all(".strip .arrow a")[0].click()
    tc_page.until(lambda: "/vs/" in tc_page.route, "a comparison")
    tc_page.wait_for(".sheet .row-in")


@pytest.mark.slow
def test_torchs_passes_can_be_stepped_through_too(read: Callable[[str], Reader]) -> None:
    reader = read("simple")
    reader.go("#/c/0/0/passes")
    reader.wait_for("#passes .sheet header b")
    reader.press("c")
    assert len(reader.all("#passes .list a")) >= 1


@pytest.mark.slow
def test_screens_have_digits_and_a_place(read: Callable[[str], Reader]) -> None:
    reader = read("graph_break")
    names = [text.split()[-1] for text in reader.texts("#screens a")]
    assert names == ["Findings", "Functions", "Time", "Source", "Cache", "Trace"]
    for digit, route in (("2", "#/functions"), ("3", "#/time"), ("4", "#/source"),
                         ("5", "#/cache"), ("6", "#/raw"), ("1", "#/")):  # fmt: skip
        reader.press(digit)
        reader.until(lambda route=route: reader.route == route, route)
        here = f"#screens li:nth-child({digit}) [aria-current]"  # the page follows its address
        reader.until(lambda here=here: reader.all(here), here)


def test_commands_by_keyboard(read: Callable[[str], Reader]) -> None:
    reader = read("graph_break")
    reader.press(">")
    reader.wait_for("#search[open] input")
    assert reader.texts("#search li")[0].startswith("Go to findings")
    reader.press("t", "i", "m", "e", keys().ENTER)
    reader.until(lambda: reader.route == "#/time", "the time")
    theme = "return document.documentElement.dataset.theme"
    before = reader.driver.execute_script(theme)
    reader.press(">")
    reader.wait_for("#search[open] input")
    reader.press(*"light", keys().ENTER)
    reader.until(lambda: reader.driver.execute_script(theme) != before, "the other theme")
    reader.press("t")


@pytest.mark.slow
def test_two_artifacts_are_marked_and_compared(read: Callable[[str], Reader]) -> None:
    reader = read("recompile")
    reader.go("#/c/0/0/a/2")
    reader.press("d")
    reader.until(lambda: "Marked [0/0]" in reader.texts("#toast")[0], "a word that it is marked")
    reader.go("#/c/0/1/a/2")
    reader.press("d")
    reader.until(lambda: reader.route == "#/c/0/1/a/2/vs/0/0/2", "the comparison")


def test_from_a_break_to_its_patch(read: Callable[[str], Reader]) -> None:
    """Symptom 1: run, read the finding, paste the fix; three steps."""
    reader = read("graph_break")
    reader.press("j", keys().ENTER)
    reader.until(lambda: reader.route.startswith("#/f/TC1"), "a finding")
    for _ in range(30):
        reader.press(keys().TAB)
        if (reader.driver.switch_to.active_element.get_attribute("aria-label") or "") == (
            "Copy this fix"
        ):
            break
    reader.press(keys().ENTER)
    reader.until(lambda: "opied" in reader.texts("#toast")[0], "the fix is copied")


@pytest.mark.slow
def test_from_a_recompile_to_the_input_that_changed(read: Callable[[str], Reader]) -> None:
    """Symptom 2: the ledger's marked column, from the first page by keyboard."""
    reader = read("recompile")
    assert "recompiles" in reader.texts(".savings")[0]
    reader.press("2")
    reader.until(lambda: reader.route == "#/functions", "the functions")
    reader.press("j", keys().ENTER)
    reader.until(lambda: reader.route == "#/fn/f", "the function")
    assert len(reader.all(".ledger td.changed")) == 6
    reader.go("#/")
    reader.all("main section table a.row")[0].click()
    reader.until(lambda: reader.route == "#/fn/f", "the function, by mouse")


@pytest.mark.slow
def test_from_a_line_to_its_kernel(read: Callable[[str], Reader]) -> None:
    """Symptom 5: source page, its line's compile, the kernel beside it."""
    reader = read("graph_break")
    reader.press("4")
    reader.until(lambda: reader.route == "#/source", "the source")
    reader.press("j", keys().ENTER)
    reader.until(lambda: reader.route.startswith("#/src/"), "a file")
    reader.all(".coverage a.chip[href*=code]")[0].click()
    reader.until(lambda: "/code" in reader.route, "the code")
    reader.wait_for(".pane[data-pane=code] .linked")
    reader.driver.execute_script("document.querySelector('[data-pane=source] .rows').focus()")
    reader.press("n")
    reader.wait_for(".pane[data-pane=code] .lit")


@pytest.mark.slow
def test_from_slow_to_the_function(read: Callable[[str], Reader]) -> None:
    """Symptom 3: the page of time, the line and the function that took most."""
    reader = read("graph_break")
    for steps, route in ((1, "#/src/"), (6, "#/fn/")):  # five lines stand before the functions
        reader.press("3")
        reader.until(lambda: reader.route == "#/time", "the time")
        reader.press(*"j" * steps, keys().ENTER)
        reader.until(lambda wanted=route: reader.route.startswith(wanted), route)


@pytest.mark.slow
def test_calls_are_counted_with_functions_and_compiles(tc_page: Reader) -> None:
    tc_page.go("#/functions")
    tc_page.wait_for("table")
    assert tc_page.texts("tbody tr td")[-2:] == ["40", "200 µs"]
    assert tc_page.texts("thead th")[-2:] == ["Calls", "A call"]
    tc_page.go("#/fn/f")
    tc_page.until(
        lambda: "40 calls · 200 µs a call (3 timed)" in "".join(tc_page.texts("main")), "calls"
    )
    assert tc_page.texts("tbody tr td")[-3:-1] == ["40", "200 µs"]
    tc_page.go("#/c/0/0")
    tc_page.until(
        lambda: "40 calls · 200 µs a call (3 timed)" in "".join(tc_page.texts("main")), "calls"
    )


@pytest.mark.slow
def test_a_narrow_window_needs_no_sideways_scrolling(tc_page: Reader) -> None:
    size = {"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": True}
    tc_page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        for route in ("#/", "#/c/0/0", "#/c/0/0/passes", "#/functions", "#/time"):
            tc_page.go(route)
            width = tc_page.driver.execute_script("return document.documentElement.scrollWidth")
            assert width <= 360, route
    finally:
        tc_page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
