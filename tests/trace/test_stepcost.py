"""What a step costs, worked out of records of running programs."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest
from tc_log import Compiler

from tc.tlparse.report import render
from tc.tlparse.summary import as_json, text
from tc.trace import Gap, GraphBreak, Profile, ProgramTime, StackFrame, StepTime
from tc.trace.stepcost import (
    ARITHMETIC,
    CALLS,
    MEMORY,
    NEITHER,
    PYTHON,
    UNKNOWN,
    merged,
    step_cost,
    table,
)

GB, GFLOP = 1e9, 1e9


def step(name: str, seconds: float, moved: float, operations: float, *lines: int) -> StepTime:
    places = tuple(f"/me/m.py:{line}" for line in lines)
    return StepTime(9, name, places, seconds, int(moved), int(operations))


def program(
    steps: tuple[StepTime, ...], gaps: tuple[Gap, ...] = (), function: str = "f", **more: Any
) -> ProgramTime:
    known = {"compile": "0/0", "graph": "inference", "calls": 10, "seconds": 1.0, "sampled": 3}
    return ProgramTime(
        function=function, file="/me/m.py", line=3, steps=steps, gaps=gaps, **{**known, **more}
    )


def profile(*programs: ProgramTime) -> dict[str, Any]:
    """A record of a machine with 10 GB/s and 100 GFLOP/s."""
    return dataclasses.asdict(Profile(programs, 0, 10 * GB, 100 * GFLOP))


@pytest.mark.parametrize(
    "one, limit, reached",
    [
        (step("copy", 0.01, 0.08 * GB, 0), MEMORY, 0.8),
        (step("mm", 0.01, 0.01 * GB, 0.9 * GFLOP), ARITHMETIC, 0.9),
        (step("tiny", 1e-6, 100, 100), CALLS, 0),
        (step("call", 0.01, -1, -1), UNKNOWN, 0),
        (StepTime(0, "wrapper", (), 0.01, -1, -1), PYTHON, 0),
    ],
)
def test_a_step_is_held_against_the_limit_it_is_nearest_to(
    one: StepTime, limit: str, reached: float
) -> None:
    (row,) = step_cost(profile(program((one,)))).rows
    assert (row.steps[0].limit, row.steps[0].reached) == (limit, pytest.approx(reached))
    assert row.verdict == limit


def test_the_verdict_is_of_what_takes_most_time() -> None:
    fast, slow = step("copy", 0.02, 0.18 * GB, 0), step("gather", 0.05, 0.05 * GB, 0)
    (row,) = step_cost(profile(program((fast, slow)))).rows
    assert [one.name for one in row.steps] == ["gather", "copy"]
    assert row.verdict == NEITHER


def test_gaps_are_rows_that_name_both_ends() -> None:
    first = program((), (Gap("1/0", "inference", 9, 0.2), Gap("0/0", "inference", 3, 0.1)))
    resumed = "torch_dynamo_resume_in_f_at_12"
    second = program((), (Gap("0/0", "inference", 10, 3.0),), resumed, compile="1/0", seconds=0.5)
    rows = step_cost(profile(first, second)).rows
    assert [(row.label, row.calls, row.seconds) for row in rows if row.between] == [
        ("f [0/0] → f, resumed at 12, [1/0]", 10, 3.0),
        ("f, resumed at 12, [1/0] → f [0/0]", 9, 0.2),
        ("between calls of f [0/0]", 3, 0.1),
    ]
    assert rows[0].between and sum(row.seconds for row in rows) == pytest.approx(4.8)


def test_what_passed_once_between_steps_is_no_part_of_a_step() -> None:
    """Where a program was compiled, more passes than the compile."""
    again = Gap("1/0", "inference", 9, 0.2), Gap("0/0", "inference", 1, 5.0)
    cost = step_cost(profile(program(()), program((), again, compile="1/0")))
    assert [row.label for row in cost.rows if row.between] == ["between calls of f [1/0]"]
    resumed = program((), again, "torch_dynamo_resume_in_f_at_12", compile="1/0")
    assert sum(row.between for row in step_cost(profile(program(()), resumed)).rows) == 2


def test_lines_share_what_is_computed_together() -> None:
    both = step("k0", 0.03, 0, 0, 7, 8), step("k1", 0.01, 0, 0, 8)
    cost = step_cost(profile(program(both)))
    assert cost.lines() == [
        ("/me/m.py:8", pytest.approx(0.25)), ("/me/m.py:7", pytest.approx(0.15)),
    ]  # fmt: skip


def test_programs_of_before_a_reset_stay() -> None:
    old = merged({}, profile(program((), seconds=1.0), program((), compile="1/0")), str)
    again = merged(old, profile(program((), seconds=2.0)), str)
    other = merged(again, profile(program((), seconds=5.0)), "r1:{}".format)
    assert [(one["compile"], one["seconds"]) for one in other["programs"]] == [
        ("0/0", 2.0), ("1/0", 1.0), ("r1:0/0", 5.0),
    ]  # fmt: skip


def test_the_table_says_share_time_and_verdict() -> None:
    slow = step("k0_add", 0.08, 0.7 * GB, 0, 7)
    rows = table(step_cost(profile(program((slow,), (Gap("0/0", "inference", 9, 1.0),)))))
    assert "memory gives 10.0 GB/s" in rows[0]
    text = "\n".join(rows)
    assert re.search(r"50 %\s+100\.00 ms\s+×10\s+f \[0/0\]: bound by memory", text)
    assert re.search(r"80\.00 ms  k0_add, 88 % of memory  /me/m.py:7", text)
    assert "between calls of f [0/0]: guards, dispatch, Python" in text


def test_summary_and_report_show_it(tmp_path: Path) -> None:
    one = program((step("k0_add", 0.08, 0.7 * GB, 0, 7),))
    found = Compiler(tmp_path).start().say(Profile((one,), 0, 10 * GB, 100 * GFLOP)).end()
    assert "running: 100.00 ms a step × 10 = 1.00 s: 100 % f [0/0]" in text(found, "x")
    (report,) = as_json(found)["running"]
    assert report["rows"][0]["steps"][0]["limit"] == MEMORY
    page = b"".join(render(found)).decode()
    assert "bound by memory" in page and '"running":[{' in page


def test_a_log_without_it_has_no_page(tmp_path: Path) -> None:
    found = Compiler(tmp_path).start().end()
    assert as_json(found)["running"] == []
    assert "running" not in text(found, "x")


def test_a_break_costs_what_passes_between_its_graphs(tmp_path: Path) -> None:
    file, resumed = "/home/me/model.py", "torch_dynamo_resume_in_f_at_5"
    log = Compiler(tmp_path).start()
    for line, name in ((5, resumed), (8, "torch_dynamo_resume_in_f_at_8")):
        frames = (StackFrame(file, line, "f", f"line {line}"),)
        log.say(GraphBreak("TC104", f"call {line}", "", file, line, "f", stack=frames, resume=name))
    log.start(frame=1, name=resumed)
    gaps = (Gap("0/0", "inference", 10, 0.5), Gap("1/0", "inference", 1, 0.25))
    after = ProgramTime("1/0", resumed, file, 3, "inference", 10, 1.0, 3, (), gaps)
    found = log.say(Profile((after,))).end()
    breaks = [one for one in found.findings if one.code == "TC104"]
    assert [(one.title, one.between) for one in breaks] == [("call 5", 0.75), ("call 8", 0.0)]
    assert "0.75 s of running between its graphs" in breaks[0].cost
