"""Reports of real traces, and a browser to read them with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from real_traces import unpacked
from report_reader import CHROMIUM, DRIVER, FLAGS, Reader

from tc.tlparse import serve
from tc.tlparse.report import render
from tc.trace.findings import diagnose
from tc.trace.session import load

TRACES = unpacked()


@pytest.fixture(scope="module", autouse=True)
def _no_passes(no_passes: None) -> None:
    """Logs and reports are enough objects for passes over everything that is loaded."""


@pytest.fixture
def looks_often(monkeypatch: pytest.MonkeyPatch, only_new_garbage: None) -> None:
    """Let who follows a trace look again at once, however long the last look took."""
    monkeypatch.setattr(serve, "_PAUSE", 0.02)
    monkeypatch.setattr(serve, "_REST", 0)


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    folder = tmp_path_factory.mktemp("reports")

    def url(name: str) -> str:
        path = folder / f"{name}.html"
        if not path.exists():
            path.write_bytes(b"".join(render(diagnose(load(TRACES / name)))))
        return path.as_uri()

    return url


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    webdriver = pytest.importorskip("selenium.webdriver")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    driver.get("about:blank")
    yield driver
    driver.quit()


@pytest.fixture
def read(browser: Any, pages: Callable[[str], str]) -> Iterator[Callable[[str], Reader]]:
    opened: list[Reader] = []

    def opener(name: str) -> Reader:
        opened.append(Reader(browser, pages(name)))
        return opened[-1]

    yield opener
    for reader in opened:
        assert reader.requests() == set()
        assert browser.get_log("browser") == []
