"""axe-core finds nothing to complain of on any page of a report, light or dark; all by keyboard."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from real_traces import unpacked
from report_reader import CHROMIUM, DRIVER, Reader

from tc.tlparse.__main__ import main

axe_core = pytest.importorskip("axe_core_python")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="no chromium and chromedriver"),
]
AXE = (Path(axe_core.__file__).parent / "axe.min.js").read_text("utf-8")
RUN = """
const done = arguments[0];
axe.run(document, { resultTypes: ["violations"] }).then((found) => done(found.violations.map(
  (one) => `${one.id}: ${one.help}: ${one.nodes.map((node) => node.html).slice(0, 3).join(" ")}`)));
"""
PAGES = {
    "graph_break": ["#/", "#/fn/f", "#/c/0/0", "#/c/0/0/code", "#/c/0/0/graph",
                    "#/src/graph_break.py", "#/time", "#/time/9.3-16.8", "#/raw", "#/nonsense",
                    "#/functions", "#/findings", "#/source"],
    "recompile": ["#/", "#/fn/f", "#/c/0/2", "#/cache", "#/c/0/1/a/5/vs/0/0/5"],
    "train": ["#/c/0/0/code/backward", "#/c/0/0/graph", "#/c/0/0/passes"],
    "two_rank": ["#/", "#/ranks"],
    "backend_crash": ["#/", "#/c/0/0"],
}  # fmt: skip


def complaints(driver: Any) -> list[str]:
    if not driver.execute_script("return Boolean(window.axe)"):
        driver.execute_script(AXE)
    return list(driver.execute_async_script(RUN))


def dress(driver: Any, theme: str) -> None:
    driver.execute_script("document.documentElement.dataset.theme = arguments[0]", theme)
    time.sleep(0.25)  # colours fade


@pytest.mark.sample(1)
@pytest.mark.parametrize("theme", [pytest.param("light", marks=pytest.mark.slow), "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_no_page_has_a_violation(
    read: Callable[[str], Reader], name: str, theme: str, drawn: Any
) -> None:
    reader = read(name)
    routes = list(PAGES[name])
    routes += [one.get_attribute("href").partition("#")[2] for one in reader.all(".card h3 a")]
    dress(reader.driver, theme)
    for route in drawn(routes, 5):
        reader.go("#" + route.removeprefix("#"))
        reader.until(lambda: not reader.driver.find_elements("xpath", "//*[text()='Unpacking …']"))
        assert complaints(reader.driver) == [], route


@pytest.mark.sample(1)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_dialogs_have_no_violation(read: Callable[[str], Reader], theme: str) -> None:
    from selenium.webdriver.common.keys import Keys

    reader = read("recompile")
    dress(reader.driver, theme)
    reader.press("?")
    reader.wait_for("#keys[open]")
    assert complaints(reader.driver) == []
    reader.press(Keys.ESCAPE, "/")
    reader.wait_for("#search[open] input")
    reader.press("f", "l")
    assert complaints(reader.driver) == []
    reader.press(Keys.ESCAPE, ">")
    reader.wait_for("#search[open] input")
    assert complaints(reader.driver) == []


@pytest.mark.slow
def test_a_comparison_of_two_runs_has_no_violation(browser: Any, tmp_path: Path) -> None:
    page = tmp_path / "diff.html"
    traces = (str(unpacked() / "simple"), str(unpacked() / "recompile"))
    assert main(["diff", *traces, "--html", str(page)]) == 0
    reader = Reader(browser, page.as_uri())
    for theme in ("light", "dark"):
        dress(reader.driver, theme)
        assert complaints(reader.driver) == []


@pytest.mark.slow
def test_the_first_difference_of_ranks_by_keyboard(read: Callable[[str], Reader]) -> None:
    from selenium.webdriver.common.keys import Keys

    reader = read("two_rank")
    reader.press("/")
    reader.wait_for("#search[open] input")
    reader.press("r", "a", "n", "k", "s", Keys.ENTER)
    reader.until(lambda: reader.route == "#/ranks", "the ranks")
    assert reader.texts("h1") == ["Rank 1 did otherwise"]
    chain = reader.texts("ol.chain li")
    assert chain[0] == "Rank 1: x.shape[0]: 8 → 16"
    assert chain[1:3] == ["Rank 1 compiled f [0/1]", "Rank 0 did not"] or "did not" in chain[1]
    reader.press("j", "j", Keys.ENTER)
    reader.until(lambda: reader.route != "#/ranks", "a step")


@pytest.mark.slow
def test_the_cache_page_says_what_was_found(read: Callable[[str], Reader]) -> None:
    reader = read("recompile")
    reader.go("#/cache")
    assert reader.texts("h1") == ["Cache"]
    rows = reader.texts("section:first-of-type tbody tr")
    assert [row.split()[:2] for row in rows] == [["AOTAutograd", "0"], ["FX", "graph"]]
    assert len(reader.all("section:last-of-type tbody tr")) == 14
