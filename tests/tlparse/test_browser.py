"""The report in a real browser: no request, no error, every page, by keyboard."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from real_traces import unpacked
from report_reader import CHROMIUM, DRIVER, Reader

from tc.tlparse.report import render
from tc.trace.findings import diagnose
from tc.trace.session import load

TRACES = unpacked()

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="no chromium and chromedriver"),
]

CONTRAST = (Path(__file__).parent / "contrast.js").read_text("utf-8")
UNNAMED = (Path(__file__).parent / "unnamed.js").read_text("utf-8")


def test_three_graph_breaks_with_their_reasons(read: Callable[[str], Reader]) -> None:
    reader = read("graph_break")
    assert reader.texts("h1") == ["3 graph breaks"]
    counts = [text.partition("×")[0] for text in reader.texts(".card.break header .push")]
    assert sum(map(int, counts)) == 3
    assert reader.texts(".card.break h3") == [
        "print() is called while tracing",
        "Branch depends on tensor data",
    ]
    assert all(reader.texts(".card .fix"))


@pytest.mark.slow
def test_six_recompiles_with_their_reasons(read: Callable[[str], Reader]) -> None:
    reader = read("recompile")
    assert reader.texts("h1") == ["6 recompiles"]
    counts = [text.partition("×")[0] for text in reader.texts(".card.recompile header .push")]
    assert sum(map(int, counts)) == 6
    reader.go("#/fn/f")
    assert len(reader.all(".ledger td.changed")) == 6
    assert reader.texts(".ledger td.changed")[:2] == ["False", "8"]


@pytest.mark.slow
def test_by_keyboard_from_the_first_page_to_an_artifact_and_back(
    read: Callable[[str], Reader],
) -> None:
    from selenium.webdriver.common.keys import Keys

    reader = read("graph_break")
    reader.press("j", "j", "k", Keys.ENTER)
    reader.until(lambda: reader.route.startswith("#/f/TC104"), "a finding")
    reader.press("]")
    reader.until(lambda: reader.route.startswith("#/f/TC110"), "the next finding")
    assert reader.texts(".source mark") == ["y.sum() > 0"]
    reader.press(Keys.ESCAPE)
    reader.until(lambda: reader.route == "#/", "the overview")
    reader.go("#/c/0/0")
    for _ in range(20):  # past the links of what was found here, to the list of artifacts
        reader.press("j")
        if reader.driver.switch_to.active_element.get_attribute("data-artifact"):
            break
    reader.press(Keys.ENTER)
    reader.until(lambda: "/a/" in reader.route, "an artifact")
    reader.until(lambda: reader.all(".lines div"), "its text")
    reader.press("]")
    reader.until(lambda: reader.route == "#/c/1/0", "the next compile")


def test_search_finds_names_and_texts(read: Callable[[str], Reader]) -> None:
    from selenium.webdriver.common.keys import Keys

    reader = read("graph_break")
    reader.press("/")
    reader.wait_for("#search[open] input")
    reader.press("branch")
    assert "Branch" in reader.texts("#search li")[0] or "branch" in reader.texts("#search li")[0]
    reader.press(Keys.ENTER)
    reader.until(lambda: reader.route.startswith("#/f/TC110"), "the finding")
    reader.press("/")
    reader.wait_for("#search[open] input")
    reader.press("l_x_", Keys.CONTROL + Keys.ENTER + Keys.NULL)
    reader.until(lambda: any("l_x_" in text for text in reader.texts("#search li")), "hits")
    reader.press(Keys.ESCAPE)


@pytest.mark.slow
def test_the_theme_is_chosen_and_kept(read: Callable[[str], Reader]) -> None:
    reader = read("simple")
    theme = "return document.documentElement.dataset.theme"
    before = reader.driver.execute_script(theme)
    reader.press("t")
    after = reader.driver.execute_script(theme)
    assert {before, after} == {"light", "dark"}
    reader.driver.refresh()
    reader.wait_for("main h1")
    assert reader.driver.execute_script(theme) == after
    reader.press("t")


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", ["simple", "transformer", "two_rank", "backend_crash", "dynamic"])
def test_every_page_of_a_report_opens(read: Callable[[str], Reader], name: str) -> None:
    reader = read(name)
    script = "return JSON.parse(document.getElementById('index').textContent)"
    index = reader.driver.execute_script(script)
    routes = ["#/raw", "#/nonsense", "#/c/99/9", "#/f/none", "#/fn/none"]
    routes += [f"#/f/{one['id']}" for one in index["findings"]]
    routes += [f"#/fn/{one['name']}" for one in index["functions"]]
    routes += [f"#/c/{one['slug']}" for one in index["compiles"]]
    for route in routes:
        reader.go(route)
        assert reader.texts("h1")[0]
    for one in index["compiles"][:1]:
        for artifact in one["artifacts"]:
            reader.go(f"#/c/{one['slug']}/a/{artifact[0]}")
            reader.until(lambda: reader.all(".lines div"), route)


@pytest.mark.sample(1)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_is_readable_and_controls_have_names(
    read: Callable[[str], Reader], theme: str
) -> None:
    reader = read("recompile")
    reader.driver.execute_script("document.documentElement.dataset.theme = arguments[0]", theme)
    for route in ("#/", "#/fn/f", "#/c/0/2", "#/raw"):
        reader.go(route)
        time.sleep(0.2)
        assert reader.driver.execute_script(CONTRAST) == []
        assert reader.driver.execute_script(UNNAMED) == []
    assert reader.driver.execute_script("return document.documentElement.lang") == "en"
    for landmark in ("header", "main", "nav", "footer"):
        assert reader.all(landmark)


@pytest.mark.sample(1)
@pytest.mark.parametrize("route", ["#/", "#/fn/f", "#/c/0/2", "#/raw"])
def test_a_phone_needs_no_sideways_scrolling(read: Callable[[str], Reader], route: str) -> None:
    reader = read("recompile")
    size = {"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": True}
    reader.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        reader.go(route)
        width = reader.driver.execute_script("return document.documentElement.scrollWidth")
        assert width <= 360
    finally:
        reader.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.sample(1)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_damaged_trace_is_readable_too(browser: Any, tmp_path: Path, theme: str) -> None:
    log = next((TRACES / "backend_crash").glob("*.log"))
    (tmp_path / log.name).write_bytes(b"other output\n" + log.read_bytes()[:-9])
    target = tmp_path / "x.html"
    target.write_bytes(b"".join(render(diagnose(load(tmp_path)))))
    reader = Reader(browser, target.as_uri())
    reader.driver.execute_script("document.documentElement.dataset.theme = arguments[0]", theme)
    time.sleep(0.2)
    assert "The trace: the trace was cut off" in reader.texts(".card h3")
    assert reader.driver.execute_script(CONTRAST) == []
    reader.go("#/raw")
    assert any("cut off" in text for text in reader.texts("main td"))


def test_hostile_text_does_nothing(browser: Any, tmp_path: Path) -> None:
    evil = (
        "<img src=x onerror=\"document.title='hit'\"></script><script>document.title='hit'</script>"
    )
    head = "V1120 09:14:22.968000 1 torch/x.py:1] "
    stack = [{"line": 1, "name": evil, "filename": -1}]
    record = {"dynamo_start": {"stack": stack}, "frame_id": 0, "frame_compile_id": 0}
    log = tmp_path / "dedicated_log_torch_trace_a.log"
    log.write_text(head + json.dumps(record) + "\n")
    target = tmp_path / "x.html"
    target.write_bytes(b"".join(render(diagnose(load(log)))))
    reader = Reader(browser, target.as_uri())
    for route in ("#/", "#/c/0/0", "#/fn/" + evil.replace("/", "%2F")):
        reader.go(route)
        assert reader.driver.title != "hit"
        assert not reader.all("main img")
    assert reader.requests() == set()
