"""The pages about code in a real browser: three panes, two runs compared, cache keys."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from real_traces import unpacked
from report_reader import CHROMIUM, DRIVER, Reader

from tc.tlparse.__main__ import main

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="no chromium and chromedriver"),
]
HERE = Path(__file__).parent
CONTRAST = (HERE / "contrast.js").read_text("utf-8")
UNNAMED = (HERE / "unnamed.js").read_text("utf-8")


def no_complaints(reader: Reader) -> None:
    for theme in ("light", "dark"):
        reader.driver.execute_script("document.documentElement.dataset.theme = arguments[0]", theme)
        time.sleep(0.2)
        assert reader.driver.execute_script(CONTRAST) == []
        assert reader.driver.execute_script(UNNAMED) == []


def test_a_line_lights_its_node_and_its_kernel(read: Callable[[str], Reader]) -> None:
    from selenium.webdriver.common.keys import Keys

    reader = read("recompile")
    reader.go("#/c/0/1")
    reader.driver.find_element("link text", "Source, graph and kernels side by side →").click()
    reader.wait_for("[data-pane=source] .linked")
    reader.driver.execute_script("document.querySelector('[data-pane=source] .rows').focus()")
    reader.press(Keys.ARROW_DOWN)
    assert reader.texts("[data-pane=source] .lit")[0].startswith(("y = ", "return"))
    assert len(reader.all("[data-pane=graph] .lit")) == 2
    assert any("cpp_fused_sigmoid_sum_0" in row for row in reader.texts("[data-pane=code] .lit"))
    assert reader.texts(".status") == ["recompile.py:6 → sigmoid, sum_1 → cpp_fused_sigmoid_sum_0"]
    no_complaints(reader)
    reader.press(Keys.ESCAPE)
    assert not reader.all(".lit")
    reader.press(Keys.ARROW_RIGHT, "j", "n")
    assert reader.texts("[data-pane=graph] .from")[0].strip().startswith("sum_1")
    reader.press("]")
    reader.until(lambda: reader.route == "#/c/0/2/code", "the code of the next compile")


@pytest.mark.slow
def test_forward_and_backward_of_a_training_step(read: Callable[[str], Reader]) -> None:
    reader = read("train")
    reader.go("#/c/0/0/code")
    reader.wait_for("[data-pane=graph] .linked")
    assert [one.text for one in reader.all(".way")] == ["forward", "backward"]
    reader.press("f")
    reader.until(lambda: reader.route == "#/c/0/0/code/backward", "the backward")
    reader.wait_for("[data-pane=code] .linked")
    reader.all("[data-pane=code] .linked")[-1].click()
    assert reader.texts(".status")[0].endswith("cpp_fused_sum_1")
    reader.press("\ue00c")
    reader.until(lambda: reader.texts(".status") == ["Nothing is chosen."], "the line let go")
    reader.press("\ue00c")
    reader.until(lambda: reader.route == "#/c/0/0", "the compile")


@pytest.mark.slow
def test_why_the_cache_missed(read: Callable[[str], Reader]) -> None:
    reader = read("recompile")
    reader.go("#/c/0/2")
    assert reader.texts(".keys td:first-child") == ["example_inputs[0]"]
    assert "1 of 635 key parts differ" in " ".join(reader.texts("section .why"))
    no_complaints(reader)


def test_two_runs_compared_on_a_page(browser: Any, tmp_path: Path) -> None:
    a, b = (unpacked() / "simple"), (unpacked() / "recompile")
    page = tmp_path / "diff.html"
    assert main(["diff", str(a), str(b), "--html", str(page)]) == 0
    reader = Reader(browser, page.as_uri())
    assert "new findings" in reader.texts("h1")[0]
    for one in reader.all("summary"):
        one.click()
    no_complaints(reader)
    size = {"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": True}
    reader.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        width = reader.driver.execute_script("return document.documentElement.scrollWidth")
        assert width <= 360
    finally:
        reader.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    before = reader.driver.execute_script("return document.documentElement.dataset.theme")
    reader.all("#theme")[0].click()
    assert reader.driver.execute_script("return document.documentElement.dataset.theme") != before
    assert reader.requests() == set()
    assert browser.get_log("browser") == []


@pytest.mark.slow
def test_what_became_of_each_line_of_a_file(read: Callable[[str], Reader]) -> None:
    reader = read("graph_break")
    link = reader.driver.find_element("link text", "graph_break.py")
    link.click()
    reader.until(lambda: reader.route == "#/src/graph_break.py", "the file")
    assert "5 lines in graphs · 3 graph breaks" in reader.texts("main > p")[0]
    gutters = [one.get_attribute("title") for one in reader.all(".coverage .gutter")]
    assert gutters.count("graph break") == 2
    assert gutters.count("in a graph") == 4
    no_complaints(reader)
    reader.driver.find_element("partial link text", "TC110").click()
    reader.until(lambda: reader.route.startswith("#/f/TC110"), "the finding")
    reader.driver.find_element("partial link text", "graph_break.py:9").click()
    reader.until(lambda: reader.route == "#/src/graph_break.py/9", "the line")
    assert len(reader.all("tr.wanted")) == 1


@pytest.mark.slow
def test_two_artifacts_compared(read: Callable[[str], Reader]) -> None:
    from selenium.webdriver.support.select import Select

    reader = read("recompile")
    reader.go("#/c/0/1")
    reader.wait_for("select.copy")
    chosen = Select(reader.all("select.copy")[0])
    chosen.select_by_visible_text("[0/0] captured graph")
    reader.until(lambda: "/vs/0/0/" in reader.route, "the comparison")
    reader.wait_for(".row-in")
    assert "came" in reader.texts(".lines .more")[0]
    assert any("sigmoid" in row for row in reader.texts(".row-in"))
    assert any("relu" in row for row in reader.texts(".row-out"))
    no_complaints(reader)
    reader.driver.refresh()
    reader.wait_for(".row-in")


def test_lines_are_compared_rightly(read: Callable[[str], Reader]) -> None:
    """The diff turns one text into the other, whatever the texts."""
    import random

    reader = read("simple")
    source = (HERE.parents[1] / "tlparse" / "static" / "textdiff.js").read_text("utf-8")
    dice = random.Random(7)
    pairs = [
        [[dice.choice("abcd") for _ in range(dice.randrange(0, 14))] for _ in "ab"]
        for _ in range(300)
    ]
    rows = reader.driver.execute_script(
        source + "; return arguments[0].map(([a, b]) => diffRows(a, b));", pairs
    )
    for (a, b), made in zip(pairs, rows, strict=True):
        assert [row[3] for row in made if row[0] != "+"] == a
        assert [row[3] for row in made if row[0] != "-"] == b
        assert [row[1] for row in made if row[0] != "+"] == list(range(len(a)))


@pytest.mark.slow
def test_where_the_time_went(read: Callable[[str], Reader]) -> None:
    reader = read("graph_break")
    reader.driver.find_element("link text", "By function, compile and step →").click()
    reader.until(lambda: reader.route == "#/time", "the time page")
    pieces = reader.all(".bar-piece.fn, .bar-piece.compile, .bar-piece.build")
    assert len(pieces) > 8
    widths = [one.size["width"] for one in reader.all(".bar-piece.fn")]
    assert widths == sorted(widths, reverse=True)
    firsts = reader.texts("tbody tr:first-child")
    assert len(firsts) == 3
    assert firsts[0].startswith("graph_break.py:9") and "18.2 s" in firsts[0]  # by line
    assert firsts[1].startswith("f") and "27.3 s" in firsts[1]  # by function
    no_complaints(reader)


def test_a_split_report_loads_its_texts_from_beside(browser: Any, tmp_path: Path) -> None:
    page = tmp_path / "r.html"
    for _ in range(2):  # the second takes the place of the first
        assert main([str(unpacked() / "train"), "-o", str(page), "--split"]) == 0
    data = tmp_path / "r_data"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["r.html", "r_data"]
    assert {one.suffix for one in data.iterdir()} == {".js"}
    reader = Reader(browser, page.as_uri())
    reader.go("#/c/0/0/code")
    reader.wait_for("[data-pane=graph] .linked")
    reader.go("#/c/0/0/a/1")
    reader.until(lambda: reader.all(".lines div"), "the text")
    assert reader.requests() == {one.as_uri() for one in data.glob("*-0.js")}
    assert browser.get_log("browser") == []


def test_a_folder_of_others_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "r_data").mkdir()
    (tmp_path / "r_data" / "mine.txt").write_text("x")
    code = main([str(unpacked() / "simple"), "-o", str(tmp_path / "r.html"), "--split"])
    assert code == 2 and "holds other files" in capsys.readouterr().err
    assert [one.name for one in tmp_path.iterdir()] == ["r_data"]
