"""A trace of 100 MB: something to look at at once, all of it soon, and no key slow."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from tc.tui.widgets.rows import RowList

LARGE = 100_000_000
FIRST_FRAME = 1.5
KEY = 0.5  # seconds of CPU; generous, for machines that are slow


@pytest.fixture
def large(trace: Path, tools: Any) -> Path:
    """The small trace, then functions with long artifacts until it is large."""
    path = trace / "dedicated_log_torch_trace_a.log"
    written = path.stat().st_size
    with path.open("a") as file:
        frame = 10
        while written < LARGE:
            log = tools.log()
            for number in range(4):
                at = f"{frame}/{number}"
                if number:
                    log.artifact("recompile_reasons", f"{frame}/0: k == {number - 1}", at, "json")
                log.compile(at, f"layer_{frame}", 5, 0.5)
                log.artifact("aot_inference_graph", "add = torch.add(a, b)\n" * 2_000, at)
                log.metrics(at, f"layer_{frame}", 5)
            written += file.write(log.text)
            frame += 1
    return path


@pytest.mark.slow
def test_first_frame_of_a_100_mb_trace(large: Path, tools: Any) -> None:
    async def main() -> None:
        started = time.perf_counter()
        app = tools.make_app()
        async with app.run_test(size=(120, 40)) as pilot:
            await pilot.pause()
            assert time.perf_counter() - started < FIRST_FRAME
            # a fast machine has read all of it by now; else the screen says that more comes
            reported = "reading 100 MB" in tools.screen_of(app)
            assert reported or (app.model.diagnosis is not None and not app.model.partial)
            await tools.until(pilot, lambda: app.model.diagnosis is not None, 5)
            await tools.until(pilot, lambda: not app.model.partial, 60)
            for key in ("G", "2", "G", "3", "G", "l", "G", "4", "5", "G", "g"):
                before = time.thread_time()
                await pilot.press(key)
                assert time.thread_time() - before < KEY, key

    asyncio.run(main())


def test_a_million_rows_are_no_more_work_than_a_hundred(trace: Path, tools: Any) -> None:
    class Million:
        width = 0
        asked = 0

        def __len__(self) -> int:
            return 1_000_000

        def line(self, index: int, width: int) -> Any:
            from tc.tui.lines import line

            self.asked += 1
            return line(f"row {index}")

        def key(self, index: int) -> int:
            return index

        def index(self, key: Any) -> int:
            return int(key)

    async def main() -> None:
        app = tools.make_app()
        async with app.run_test(size=(100, 30)) as pilot:
            await tools.settle(pilot)
            rows = Million()
            app.view.list.show(rows)
            await pilot.press("G")
            assert "row 999999" in tools.screen_of(app)
            await pilot.press("g", "ctrl+d")
            assert isinstance(app.view.list, RowList) and app.view.list.cursor > 10
            assert rows.asked < 1_000

    asyncio.run(main())
