"""A served page in a browser: it learns what is new, and the reader stays where they are."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from hashlib import md5
from pathlib import Path
from typing import Any

import pytest
from report_reader import CHROMIUM, DRIVER, Reader
from selenium.webdriver.common.keys import Keys

from tc.tlparse import serve

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="no chromium and chromedriver"),
]
HEAD = "V1120 09:14:22.968000 7 torch/x.py:1] "
LINES = "\n".join(f"needle {row}" for row in range(200))
TEXT = "\t" + LINES.replace("\n", "\n\t") + "\n"
SUM = md5(LINES.encode()).hexdigest()
TOP = (
    "return [...document.querySelectorAll('main a[href]')]"
    ".find((a) => a.textContent.includes('f20')).getBoundingClientRect().top"
)


def compiled(number: int) -> bytes:
    ids = f'"frame_id": {number}, "frame_compile_id": 0, "attempt": 0'
    stack = f'[{{"line": {number + 1}, "name": "f{number}", "filename": "/home/me/m.py"}}]'
    rows = (
        f'{{"dynamo_start": {{"stack": {stack}}}, {ids}}}\n',
        f'{{"dynamo_output_graph": {{}}, {ids}, "has_payload": "{SUM}"}}\n{TEXT}',
        f'{{"compilation_metrics": {{"co_name": "f{number}", '
        f'"entire_frame_compile_time_s": 1.0}}, {ids}}}\n',
    )
    return "".join(HEAD + row for row in rows).encode()


Live = tuple[Reader, Any]


@pytest.fixture
def live(browser: Any, tmp_path: Path, looks_often: None) -> Iterator[Live]:
    log = (tmp_path / "dedicated_log_torch_trace_a.log").open("wb", buffering=0)
    log.write(b"".join(map(compiled, range(30))))
    follower = serve.Follower(str(tmp_path))
    follower.look()
    server = serve.opened(0, follower)
    for job in (follower.run, server.serve_forever):
        threading.Thread(target=job, daemon=True).start()
    reader = Reader(browser, f"http://127.0.0.1:{server.server_address[1]}/")
    yield reader, log
    log.close()
    assert reader.requests() == set()
    assert browser.get_log("browser") == []
    browser.get("about:blank")
    follower.stop()
    server.shutdown()
    server.server_close()


def shows(reader: Reader, words: str) -> Callable[[], bool]:
    return lambda: words in reader.texts("#job")[0]


def script(reader: Reader, words: str, *given: object) -> Any:
    return reader.driver.execute_script(words, *given)


def test_it_says_how_the_job_stands_and_shows_what_is_new(live: Live) -> None:
    reader, log = live
    reader.until(shows(reader, "running"), "the state")
    reader.go("#/functions")
    log.write(compiled(30) + compiled(31)[:-5])
    reader.until(lambda: "f30" in " ".join(reader.texts("main")), "the new function")
    reader.until(shows(reader, "compiling f31"), "what is under way")
    log.close()
    reader.until(shows(reader, "cut off"), "the end of the job")
    reader.press("r")
    reader.until(
        lambda: "cut off" in reader.texts("main")[0], "the damage on the page of the trace"
    )


@pytest.mark.slow
def test_the_reader_keeps_the_place_and_the_search(live: Live) -> None:
    reader, log = live
    reader.go("#/functions")
    script(reader, "scrollTo(0, 900)")
    before = script(reader, TOP)
    reader.press("/")
    reader.press("needle 199")
    reader.until(lambda: reader.texts("#search li.within"), "what the texts hold")
    log.write(compiled(30))
    shown = "return document.getElementById('main').textContent.includes('f30')"
    reader.until(lambda: script(reader, shown), "the new function")
    assert abs(script(reader, TOP) - before) < 2
    assert script(reader, "return scrollY") > 300
    assert script(reader, "return document.querySelector('#search input').value") == "needle 199"
    assert script(reader, "return document.getElementById('search').open")
    reader.press(Keys.ESCAPE)
    assert reader.route == "#/functions"


@pytest.mark.slow
def test_a_page_whose_compile_did_not_change_is_left_alone(live: Live) -> None:
    reader, log = live
    reader.go("#/c/0/0/a/1")
    reader.until(lambda: "needle 3" in " ".join(reader.texts("main")), "the text")
    script(reader, "document.querySelector('.lines').dataset.mine = 'yes'; scrollTo(0, 200)")
    log.write(compiled(30))
    reader.press("/")
    reader.until(lambda: script(reader, "return document.getElementById('search').open"))

    def found() -> bool:
        script(
            reader,
            "const box = document.querySelector('#search input'); box.value = 'f30';"
            "box.dispatchEvent(new Event('input'))",
        )
        return any("f30" in row for row in reader.texts("#search li"))

    reader.until(found, "the new function in the search")
    assert script(reader, "return document.querySelector('.lines').dataset.mine") == "yes"
    reader.press(Keys.ESCAPE)
    reader.go("#/c/5/0/a/1")
    reader.go("#/c/30/0/a/1")
    reader.until(lambda: "needle 3" in " ".join(reader.texts("main")), "a text of the new state")


@pytest.mark.slow
def test_what_is_selected_stays_selected(live: Live) -> None:
    reader, log = live
    reader.go("#/functions")
    script(reader, "getSelection().selectAllChildren(document.querySelector('main h1'))")
    log.write(compiled(30))
    reader.until(
        lambda: (
            script(reader, "return fetch('state').then((a) => a.json()).then((s) => s.version)") > 1
        )
    )
    assert "f30" not in reader.texts("main")[0]
    assert script(reader, "return getSelection().type") == "Range"
    script(reader, "getSelection().removeAllRanges()")
    reader.until(lambda: "f30" in " ".join(reader.texts("main")), "the new function")


@pytest.mark.slow
def test_no_line_stands_above_texts_where_no_name_matches(live: Live) -> None:
    reader, _ = live
    reader.press("/")
    reader.press("needle 199")
    reader.until(lambda: reader.texts("#search li.within"), "what the texts hold")
    borders = (
        "return [...document.querySelectorAll('#search li')]"
        ".map((row) => getComputedStyle(row).borderTopWidth)"
    )
    assert set(script(reader, borders)) == {"0px"}
