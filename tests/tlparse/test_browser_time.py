"""A span of the time page is chosen, by dragging and by keyboard; the tables show it alone."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator

import pytest
from report_reader import CHROMIUM, DRIVER, Reader

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="no chromium and chromedriver"),
]
TOTAL = 36.687  # seconds that traces/graph_break compiled, f the first 27.3 of them


@pytest.fixture
def times(read: Callable[[str], Reader]) -> Iterator[Reader]:
    reader = read("graph_break")
    reader.press("3")
    reader.until(lambda: reader.route == "#/time", "the time page")
    yield reader


def seconds(text: str) -> float:
    number, unit = re.fullmatch(r"([\d.]+) (m?s)", text).groups()  # type: ignore[union-attr]
    return float(number) / (1000 if unit == "ms" else 1)


def table(reader: Reader, name: str) -> dict[str, list[str]]:
    """Return the rows of a section's table, by their first cell."""
    rows = reader.driver.find_elements(
        "xpath", f"//section[div/h2[contains(., '{name}')]]//tbody/tr"
    )
    cells = [[cell.text for cell in row.find_elements("css selector", "td")] for row in rows]
    return {row[0]: row[1:] for row in cells}


def span(reader: Reader) -> tuple[float, float]:
    reader.until(lambda: "/time/" in reader.route, "a span in the address")
    begin, _, end = reader.route.removeprefix("#/time/").partition("-")
    return float(begin), float(end)


def test_all_of_the_time_at_first(times: Reader) -> None:
    functions = table(times, "Functions and phases")
    assert sum(seconds(row[-1]) for row in functions.values()) == pytest.approx(TOTAL, rel=0.01)
    assert len(functions) == 5
    assert next(iter(table(times, "Steps"))) == "compile_file"


@pytest.mark.slow
def test_dragging_over_the_icicle(times: Reader) -> None:
    from selenium.webdriver import ActionChains

    (icicle,) = times.all(".icicle")
    left = icicle.rect["width"] / 2
    mouse = ActionChains(times.driver).move_to_element_with_offset(icicle, int(-left * 0.5), 40)
    mouse.click_and_hold().move_by_offset(int(left * 0.4), 0).release().perform()
    assert times.route.startswith("#/time"), "what was dragged over is not opened"
    begin, end = span(times)
    assert (begin, end) == (
        pytest.approx(0.25 * TOTAL, abs=0.3),
        pytest.approx(0.45 * TOTAL, abs=0.3),
    )
    functions = table(times, "Functions and phases")
    assert list(functions) == ["f"]
    assert seconds(functions["f"][-1]) == pytest.approx(end - begin, abs=0.1)
    lines = table(times, "Your lines")
    assert list(lines) == ["graph_break.py:9", "graph_break.py:8"]
    spent = [seconds(row[2]) for row in lines.values()]
    assert sum(spent) == pytest.approx(end - begin, abs=0.1)
    assert list(table(times, "Steps")) == ["compile_file"]
    times.all(".chosen button")[0].click()
    assert len(table(times, "Functions and phases")) == 5


@pytest.mark.slow
def test_by_keyboard_alone(times: Reader) -> None:
    from selenium.webdriver.common.keys import Keys

    times.tab_to(".ends input[aria-label^=Begin]")
    times.press(*[Keys.PAGE_UP] * 8)
    assert list(table(times, "Functions and phases")) != []
    begin, end = span(times)
    assert (begin, end) == (pytest.approx(0.8 * TOTAL, rel=0.01), pytest.approx(TOTAL, rel=0.01))
    assert "f" not in table(times, "Functions and phases")
    times.press(Keys.TAB, Keys.ARROW_LEFT, Keys.ARROW_LEFT)
    times.until(lambda: span(times)[1] == pytest.approx(0.99 * TOTAL, rel=0.001), "a nearer end")
    assert "from 29.3 s to 36.3 s" in times.texts(".chosen")[0]
    times.press(*[Keys.HOME] * 2)
    assert span(times)[0] < span(times)[1], "the ends do not pass each other"
    times.press(Keys.ESCAPE)
    times.until(lambda: times.route == "#/time", "all of it again")
    times.press(Keys.ESCAPE)
    times.until(lambda: times.route == "#/", "the first page")


@pytest.mark.slow
def test_a_link_to_a_span(times: Reader) -> None:
    times.go("#/time/28.000-36.000")
    assert "8.00 s of 36.7 s" in times.texts(".chosen")[0]
    assert "f" not in table(times, "Functions and phases")
    times.go("#/time/9.9.9-x")
    assert times.texts("h1") == ["Not in this report"]
    times.go("#/time/99.000-100.000")  # of another run
    assert len(table(times, "Functions and phases")) == 5


@pytest.mark.slow
def test_the_address_is_that_of_the_page_that_was_opened_last(times: Reader) -> None:
    for route in ("#/time/28.000-36.000", "#/time", "#/time/30-31"):
        times.driver.execute_script("location.hash = arguments[0]", route)
    time.sleep(0.5)  # longer than until a choice goes into the address
    assert times.driver.execute_script("return location.hash") == "#/time/30-31"
