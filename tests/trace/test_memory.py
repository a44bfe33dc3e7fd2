"""The memory of a step, worked out of the plans of its programs."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from tc_log import Compiler

from tc.tlparse.rundata import memory
from tc.trace import MemoryHolder, MemoryInput, MemoryPlan
from tc.trace.memory import size_text, step_memory

FORWARD = MemoryPlan(
    "forward", ("k0", "k1"), ("/me/m.py:4", ""), (10, 30), (MemoryInput("x", 5),),
    (MemoryHolder("buf1", "k1", "", 20), MemoryHolder("buf0", "k0", "/me/m.py:4", 10)), 30,
)  # fmt: skip
BACKWARD = MemoryPlan(
    "backward", ("k2", "k3"), ("/me/m.py:4", "/me/m.py:4"), (8, 9),
    (MemoryInput("x", 5), MemoryInput("relu", 20, 1), MemoryInput("tangent0", 4)),
    (MemoryHolder("buf2", "k2", "/me/m.py:4", 8),), 9,
)  # fmt: skip


def test_a_backward_holds_what_was_saved_until_it_is_freed() -> None:
    found = step_memory([dataclasses.asdict(one) for one in (FORWARD, BACKWARD)])
    # 30 from forward and the tangent; what was saved is freed after one step of backward
    assert [moment.bytes for moment in found.moments] == [10, 30, 42, 23]
    assert found.peak == 42 and found.at is not None and found.at.step == "k2"
    assert [(one.name, one.bytes) for one in found.holders] == [
        ("relu", 20), ("buf2", 8), ("tangent0", 4),
    ]  # fmt: skip


def test_one_graph_alone() -> None:
    found = step_memory([dataclasses.asdict(FORWARD)])
    assert (found.peak, found.holders[0].name) == (30, "buf1")
    assert step_memory([]).text() == []
    assert found.text()[0] == "30 bytes beside the inputs at the peak, in k1 (forward)"


def test_sizes_are_written_short() -> None:
    assert [size_text(n) for n in (12, 1500, 2.5e6, 3e9)] == [
        "12 bytes", "1.5 kB", "2.5 MB", "3.0 GB",
    ]  # fmt: skip


def test_the_report_draws_no_more_than_it_can_show(tmp_path: Path) -> None:
    alive = tuple(range(1000))
    many = dataclasses.replace(FORWARD, steps=("k",) * 1000, lines=("",) * 1000, alive=alive)
    (one,) = Compiler(tmp_path).start().say(many).end().session.compiles
    reported = memory(one)
    assert reported is not None
    assert len(reported["moments"]) == 200 and reported["moments"][-1][3] == reported["peak"] == 999
