"""Following a job whose log grows: what stays in place, and how its end is reported."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

See = Callable[[], str]
TEXT = {11: "y = x.sin().item()", 12: "z = x.cos().item()"}
BREAK = """\
Graph break in user code at model.py:{0}
Graph Break Reason: Unsupported Tensor.item() call with capture_scalar_outputs=False
  Developer debug context: call_method TensorVariable() item () {{}}

User code traceback:
  File "model.py", line {0}, in helper
    {1}
"""


def test_following_a_job_from_before_its_first_record(drive: Any, trace: Path, tools: Any) -> None:
    log = trace / "dedicated_log_torch_trace_a.log"
    whole = log.read_text()
    log.unlink()

    async def script(pilot: Pilot[int], see: See) -> None:
        await tools.until(pilot, lambda: "no compile records yet in tc_trace" in see())
        half = whole.index("recompile_reasons")
        log.write_text(whole[: whole.rindex("\n", 0, half) + 1])
        await tools.until(pilot, lambda: "1 Findings 1" in see())
        log.write_text(whole)
        await tools.until(pilot, lambda: "1 Findings 5" in see())
        await tools.until(pilot, lambda: "● running, " in see())  # it grows, and nobody is seen
        await pilot.press("F")
        await tools.until(pilot, lambda: "not following any more" in see())

    drive(script, follow=True)


@pytest.fixture
def grow(trace: Path) -> Callable[[], None]:
    """Cut the log where its graph breaks begin; what is returned writes the rest."""
    log = trace / "dedicated_log_torch_trace_a.log"
    whole = log.read_text()
    log.write_text(whole[: whole.index("V1120", whole.index("dynamo_graph_break_reason"))])

    def rest() -> None:
        log.write_text(whole)

    return rest


def test_a_log_that_grows_leaves_the_cursor_where_it_is(
    drive: Any, grow: Callable[[], None], tools: Any
) -> None:
    async def script(pilot: Pilot[int], see: See) -> None:
        await tools.until(pilot, lambda: "1 Findings 3" in see())
        await pilot.press("G")
        before = pilot.app.view.list.key  # type: ignore[attr-defined]
        grow()
        await tools.until(pilot, lambda: "1 Findings 5" in see())
        assert pilot.app.view.list.key == before  # type: ignore[attr-defined]

    drive(script, follow=True)


def test_the_cursor_stays_on_its_finding_when_others_come_above_it(
    drive: Any, grow: Callable[[], None], tools: Any
) -> None:
    async def script(pilot: Pilot[int], see: See) -> None:
        await tools.until(pilot, lambda: "1 Findings 3" in see())
        before = pilot.app.view.list.key  # type: ignore[attr-defined]
        assert "▸ ↻ TC201" in see()  # the first row, and no key was pressed
        grow()
        await tools.until(pilot, lambda: "1 Findings 5" in see())
        assert pilot.app.view.list.key == before  # type: ignore[attr-defined]
        rows = see().split("\n")
        assert "TC900" in rows[3] and "▸ ↻ TC201" in rows[4]

    drive(script, follow=True)


def test_the_cursor_follows_a_finding_whose_id_becomes_longer(
    drive: Any, trace: Path, tools: Any
) -> None:
    def broken(*lines: int) -> str:
        log = tools.log()
        for number, row in enumerate(lines):
            at = f"{number}/0"
            log.artifact("dynamo_graph_break_reason", BREAK.format(row, TEXT[row]), at)
            log.record("dynamo_start", {"stack": [{"line": 10, "name": "helper"}]}, None, at)
            log.metrics(at, "helper", 10)
        return str(log.text)

    log = trace / "dedicated_log_torch_trace_a.log"
    log.write_text(broken(12))

    async def script(pilot: Pilot[int], see: See) -> None:
        def chosen() -> tuple[str, int]:
            one = pilot.app.view.chosen()  # type: ignore[attr-defined]
            return one.id, one.where.line

        await tools.until(pilot, lambda: "1 Findings 1" in see())
        first, line = chosen()
        assert line == 12
        log.write_text(broken(12, 11, 11))
        await tools.until(pilot, lambda: "1 Findings 2" in see())
        now, line = chosen()
        assert line == 12 and now != first

    drive(script, follow=True)


def test_it_says_when_the_job_has_ended(drive: Any, trace: Path, tools: Any) -> None:
    file = (trace / "dedicated_log_torch_trace_a.log").open("ab")

    async def script(pilot: Pilot[int], see: See) -> None:
        await tools.until(pilot, lambda: "● running" in see())
        file.close()
        await tools.until(pilot, lambda: "the job has ended" in see())
        assert "■ ended" in see() and "● running" not in see()

    drive(script, follow=True)


def test_it_says_when_the_job_was_cut_off(drive: Any, trace: Path, tools: Any) -> None:
    file = (trace / "dedicated_log_torch_trace_a.log").open("ab")

    async def script(pilot: Pilot[int], see: See) -> None:
        file.write(b'V1120 09:14:22.968000 7 torch/x.py:1] {"dynamo_out')
        file.flush()
        await tools.until(pilot, lambda: "● running" in see())
        assert "TC901" not in see()
        file.close()
        await tools.until(pilot, lambda: "the job was cut off" in see())
        assert "■ cut off" in see() and "TC901" in see()

    drive(script, follow=True)


def test_the_end_of_a_growing_log_stays_in_sight(drive: Any, trace: Path, tools: Any) -> None:
    log = trace / "dedicated_log_torch_trace_a.log"

    async def script(pilot: Pilot[int], see: See) -> None:
        await tools.until(pilot, lambda: "5 Log 51" in see())
        await pilot.press("5")
        await tools.until(pilot, lambda: "torch_version" in see())
        await pilot.press("G")
        assert "brand_new_event" in see()
        more = tools.log()
        for number in range(40):
            more.record(f"later_event_{number}", {})
        with log.open("a") as file:
            file.write(more.text)
        await tools.until(pilot, lambda: "later_event_39" in see())

    drive(script, size=(160, 40), follow=True)
