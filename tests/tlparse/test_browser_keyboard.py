"""What the other tests reach with the mouse, reached by keyboard alone: nobody needs a mouse."""

from __future__ import annotations

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
ENTER, SPACE, DOWN, RIGHT = "\ue007", "\ue00d", "\ue015", "\ue014"  # as selenium's Keys
Read = Callable[[str], Reader]


def _open_code(reader: Reader, link: str) -> None:
    """Follow a link to the code of a compile, and go to its pane of source."""
    reader.tab_to(link)
    reader.press(ENTER)
    reader.until(lambda: "/code" in reader.route, "the code")
    reader.wait_for(".pane[data-pane=code] .linked")
    reader.tab_to("[data-pane=source] .rows")


def test_from_a_line_of_source_to_its_kernel(read: Read) -> None:
    reader = read("graph_break")
    reader.press("4")
    reader.until(lambda: reader.route == "#/source", "the source")
    reader.press("j", ENTER)
    reader.until(lambda: reader.route.startswith("#/src/"), "a file")
    _open_code(reader, ".coverage a.chip[href*=code]")
    reader.press("n")
    reader.wait_for(".pane[data-pane=code] .lit")


@pytest.mark.slow
def test_from_a_kernel_back_to_the_lines(read: Read) -> None:
    reader = read("recompile")
    reader.go("#/c/0/0")
    _open_code(reader, "a.go")
    reader.press(RIGHT, RIGHT)
    pane = "return document.activeElement.closest('.pane').dataset.pane"
    assert reader.driver.execute_script(pane) == "code"
    reader.press("n")
    reader.wait_for("[data-pane=source] .lit")


@pytest.mark.slow
def test_the_kernels_of_a_training_step_one_by_one(read: Read) -> None:
    reader = read("train")
    reader.go("#/c/0/0/code")
    reader.wait_for("[data-pane=code] .linked")
    reader.press("f")
    reader.until(lambda: reader.route.endswith("/backward"), "the way back")
    reader.wait_for("[data-pane=code] .linked")
    reader.tab_to("[data-pane=graph] .rows")
    reader.press(RIGHT)
    kernels = []
    for _ in range(6):
        reader.press("n")
        kernels.append(reader.texts(".status")[0].rpartition(" → ")[2])
    assert kernels[0] != kernels[1], "n moves to the next kernel, not to the next line of this one"
    reader.press(*"NNNNNN")
    assert reader.texts(".status")[0].endswith(kernels[0])


@pytest.mark.slow
def test_stages_and_artifacts_are_compared(read: Read) -> None:
    reader = read("recompile")
    reader.go("#/c/0/1")
    reader.until(lambda: "op" in " ".join(reader.texts(".strip .stage")), "sizes")
    reader.tab_to(".strip .arrow a")
    reader.press(ENTER)
    reader.until(lambda: "/vs/" in reader.route, "what changed between two stages")
    reader.wait_for(".sheet .lines.diff")
    reader.go("#/c/0/1/a/5")
    reader.tab_to("#viewer select")
    reader.press(DOWN)
    reader.until(lambda: "/vs/" in reader.route, "what differs from another artifact")


@pytest.mark.slow
def test_functions_of_a_kind(read: Read) -> None:
    reader = read("graph_break")
    reader.press("2")
    reader.until(lambda: reader.route == "#/functions", "the functions")
    every = len(reader.all("main tbody tr"))
    reader.tab_to(".filters button[aria-pressed=false]")
    reader.press(SPACE)
    assert reader.texts(".filters button[aria-pressed=true]") == ["with findings"]
    assert 0 < len(reader.all("main tbody tr")) < every


@pytest.mark.slow
def test_the_evidence_of_a_finding(read: Read) -> None:
    reader = read("graph_break")
    reader.press("j", ENTER)
    reader.until(lambda: reader.route.startswith("#/f/"), "a finding")
    reader.tab_to("main summary")
    reader.press(ENTER)
    assert reader.all("main details[open] .words")
    finding = reader.route
    reader.go("#/")
    reader.go(finding)
    reader.tab_to("main td a[href*='/a/']")
    reader.press(ENTER)
    reader.until(lambda: "/a/" in reader.route, "the record")


@pytest.mark.slow
def test_from_a_line_to_what_was_found_there(read: Read) -> None:
    reader = read("graph_break")
    reader.go("#/src/graph_break.py")
    reader.press("j", ENTER)
    reader.until(lambda: reader.route.startswith("#/f/TC"), "the finding")


@pytest.mark.slow
def test_from_a_miss_to_its_record(read: Read) -> None:
    reader = read("recompile")
    reader.press("5" if "Source" in " ".join(reader.texts("#screens a")) else "4")
    reader.until(lambda: reader.route == "#/cache", "the cache")
    reader.press("j", ENTER)
    reader.until(lambda: "/a/" in reader.route, "the record")


@pytest.mark.slow
def test_a_node_of_a_large_graph(read: Read) -> None:
    reader = read("transformer")
    reader.go("#/c/0/0")
    reader.press("g")
    reader.wait_for(".drawing .box")
    large = reader.driver.find_element("link text", "ATen graph: joint").get_attribute("href")
    while reader.driver.current_url != large:
        before = reader.route
        reader.press("f")
        reader.until(lambda at=before: reader.route != at, "the next graph")
    reader.until(lambda: "around the chosen one" in "".join(reader.texts("#chosen")), "it")
    reader.tab_to(".nodes input")
    wanted = reader.texts(".node b")[-1]
    reader.press(*wanted)
    reader.tab_to(".node")
    reader.until(lambda: reader.texts("#chosen")[0].startswith(f"{wanted} = "), "the chosen node")
    reader.until(lambda: len(reader.all(".drawing .box.lit")) == 1, "and drawn")


def test_the_buttons_at_the_top(read: Read) -> None:
    reader = read("simple")
    theme = "return document.documentElement.dataset.theme"
    before = reader.driver.execute_script(theme)
    reader.tab_to("#theme")
    reader.press(ENTER)
    assert reader.driver.execute_script(theme) != before
    reader.press(ENTER)
    reader.tab_to("#help")
    reader.press(ENTER)
    reader.wait_for("#keys[open]")
    assert any("time page" in text for text in reader.texts("#keys dd"))
    reader.tab_to("#keys button", most=2)
    reader.press(ENTER)
    reader.until(lambda: not reader.all("#keys[open]"), "the card closed")


@pytest.mark.slow
def test_a_comparison_of_two_runs(browser: Any, tmp_path: Path) -> None:
    page = tmp_path / "diff.html"
    traces = (str(unpacked() / "simple"), str(unpacked() / "recompile"))
    assert main(["diff", *traces, "--html", str(page)]) == 0
    reader = Reader(browser, page.as_uri())
    reader.tab_to("summary")
    opened = len(reader.all("details[open]"))
    reader.press(ENTER)
    assert abs(len(reader.all("details[open]")) - opened) == 1
    assert reader.requests() == set()
    assert browser.get_log("browser") == []


@pytest.mark.slow
def test_a_word_is_explained_where_it_is_used_first(read: Callable[[str], Reader]) -> None:
    from selenium.webdriver.common.keys import Keys

    reader = read("graph_break")
    reader.tab_to(".term")
    shown = reader.texts(".word:popover-open")
    assert len(shown) == 1 and shown[0].startswith("[0/2] a compile id")
    reader.press(Keys.ESCAPE)
    assert reader.all(".word:popover-open") == [] and reader.route in ("", "#/")
    reader.press(Keys.ENTER)
    assert len(reader.all(".word:popover-open")) == 1
    reader.tab_to(".term")
    (graph_break,) = reader.texts(".word:popover-open")
    assert graph_break.startswith("graph break ")
    words = [one.text.lower() for one in reader.all(".term")]
    assert len(words) == len(set(words)) > 2
    reader.go("#/nonsense")
    assert reader.all(".word") == []
