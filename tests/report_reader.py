"""A report opened in Chromium goes in; what somebody who reads it sees and types comes out."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")

FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage", "--window-size=1280,900",
)  # fmt: skip


# The address changes before the page does: what is shown is known once its handlers have run.
SHOWN = """
window.shownRoute = location.hash;
addEventListener("hashchange", () => { window.shownRoute = location.hash; });
const replace = history.replaceState.bind(history);
history.replaceState = (...given) => { replace(...given); window.shownRoute = location.hash; };
"""
TAB = "\ue004"  # as selenium's Keys.TAB


class Reader:
    """Somebody who reads a report."""

    def __init__(self, driver: Any, url: str) -> None:
        self.driver, self.url = driver, url
        driver.get("about:blank")
        driver.get_log("performance")
        driver.get_log("browser")
        driver.get(url)
        self.wait_for("main h1")
        driver.execute_script(SHOWN)

    def all(self, selector: str) -> list[Any]:
        return list(self.driver.find_elements("css selector", selector))

    def texts(self, selector: str) -> list[str]:
        return [one.text for one in self.all(selector)]

    def press(self, *keys: str) -> None:
        for key in keys:
            self.driver.switch_to.active_element.send_keys(key)

    def tab_to(self, selector: str, most: int = 80) -> None:
        """Press Tab until what has the focus fits a selector."""
        for _ in range(most):
            self.press(TAB)
            if self.driver.execute_script(
                "return document.activeElement.matches(arguments[0])", selector
            ):
                return
        raise AssertionError(f"{selector} cannot be reached with Tab")

    def go(self, route: str) -> None:
        """Open the page at an address of the report."""
        script = "location.hash = arguments[0]; return location.hash"
        address = self.driver.execute_script(script, route)
        self.until(lambda: self.route == address, f"the page of {route}")
        self.wait_for("main h1")

    @property
    def route(self) -> str:
        """The address of the page that is shown."""
        return str(self.driver.execute_script("return window.shownRoute ?? location.hash"))

    def wait_for(self, selector: str, seconds: float = 30) -> None:
        self.until(lambda: self.all(selector), selector, seconds)

    def until(self, fact: Callable[[], Any], what: str = "", seconds: float = 30) -> None:
        end = time.monotonic() + seconds
        while not fact():
            assert time.monotonic() < end, f"waited for {what} in vain"
            time.sleep(0.02)

    def requests(self) -> set[str]:
        rows = [json.loads(row["message"])["message"] for row in self.driver.get_log("performance")]
        urls = {
            row["params"]["request"]["url"]
            for row in rows
            if row["method"] == "Network.requestWillBeSent"
        }
        return {url for url in urls if not url.startswith(("data:", "about:", "blob:", self.url))}
