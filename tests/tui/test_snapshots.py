"""How every screen looks, at three sizes, in the dark, in the light and without colours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

SIZES = {"80x24": (80, 24), "120x40": (120, 40), "200x60": (200, 60)}
# What is pressed to get there.
SCREENS = {
    "findings": (),
    "finding": ("j", "j", "enter"),
    "functions": ("2", "l"),
    "compile": ("3", "G", "k", "k", "k", "l"),
    "search": ("3", "G", "k", "k", "k", "l", "slash", "x", "0", "enter", "n"),
    "time": ("4",),
    "log": ("5", "j", "j"),
    "filter": ("slash", "h", "e", "l", "p"),
    "help": ("question_mark",),
}
DARK = [(screen, size, "dark") for screen in SCREENS for size in SIZES]
DARK = [row for row in DARK if row[1] == "80x24" or row[0] not in ("finding", "filter", "search")]
OTHER = [
    (screen, size, look)
    for look in ("light", "nocolor")
    for screen, size in (
        ("findings", "80x24"), ("findings", "120x40"), ("findings", "200x60"),
        ("functions", "120x40"), ("search", "120x40"), ("time", "120x40"), ("log", "80x24"),
    )
]  # fmt: skip


# Where it is tight and where it is usual, always; large screens in the slow suite.
ALL = [
    pytest.param(*row, marks=[pytest.mark.slow] if row[1] == "200x60" else [])
    for row in DARK + OTHER
]


@pytest.mark.sample(2)
@pytest.mark.parametrize(("screen", "size", "look"), ALL)
def test_screen(
    screen: str,
    size: str,
    look: str,
    trace: Path,
    tools: Any,
    snap_compare: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if look == "nocolor":
        monkeypatch.setenv("NO_COLOR", "1")
    app = tools.make_app(theme="light" if look == "light" else "dark")

    async def go(pilot: Pilot[int]) -> None:
        await tools.settle(pilot)
        for key in SCREENS[screen]:
            await pilot.press(key)
        await tools.settle(pilot)

    assert snap_compare(app, terminal_size=SIZES[size], run_before=go)


def test_ascii_only(trace: Path, tools: Any, snap_compare: Any) -> None:
    app = tools.make_app()
    app.ascii_only = True

    async def go(pilot: Pilot[int]) -> None:
        await tools.settle(pilot)
        for key in ("4", "5", "question_mark", "escape", "2", "l"):
            await pilot.press(key)
            assert tools.screen_of(app).isascii()

    assert snap_compare(app, terminal_size=(80, 24), run_before=go)
