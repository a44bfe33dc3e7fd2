"""Times of public models become ratios, means and a list of the slowest."""

from __future__ import annotations

import argparse
import math

import pytest
import zoo_speed

ROWS = [
    {"family": "timm", "name": "a", "inference": {"eager": 8.0, "tc": 2.0, "torch": 4.0}},
    {"family": "timm", "name": "b", "inference": {"eager": 1.0, "tc": 2.0, "torch": 2.0}},
    {"family": "timm", "name": "c", "none": "it can't be built"},
    {"family": "timm", "name": "d", "inference": {"eager": 1.0}, "errors": {"inference tc": "E()"}},
]


def test_ratios_are_over_tc() -> None:
    assert zoo_speed.ratios(ROWS[0], "inference") == (4.0, 2.0)
    assert zoo_speed.ratios(ROWS[3], "inference") is None
    alone = {"inference": {"eager": 3.0, "tc": 2.0}}
    assert math.isnan((zoo_speed.ratios(alone, "inference") or (0, 0))[1])


def test_the_report_has_means_the_slowest_and_failures() -> None:
    lines = zoo_speed.report(ROWS)
    assert lines[0] == (
        "timm inference, 2 models: 1.41 of eager (least 0.50), 1.41 of torch.compile (least 1.00)"
    )
    assert [line.split()[2] for line in lines[1:3]] == ["timm:b", "timm:a"]
    assert "timm:d" in lines[-1] and "E()" in lines[-1]


def test_sides_take_turns_and_are_timed() -> None:
    calls: list[str] = []

    def busy(name: str, times: int) -> None:
        calls.append(name)
        sum(range(times))

    zoo_speed.SECONDS, before = 0.2, zoo_speed.SECONDS
    try:
        found = zoo_speed.rounds(
            {"fast": lambda: busy("fast", 2000), "slow": lambda: busy("slow", 200_000)}
        )
    finally:
        zoo_speed.SECONDS = before
    assert found["slow"] > 10 * found["fast"] > 0
    assert calls.index("slow") < len(calls) - calls[::-1].index("fast")


def test_models_are_named_or_drawn_alike_from_a_seed() -> None:
    pytest.importorskip("timm")
    named = argparse.Namespace(only="timm:a,transformers:b")
    assert zoo_speed.drawn(named) == [("timm", "a"), ("transformers", "b")]
    drawn = argparse.Namespace(only=None, seed=3, family=["timm"], sample=4)
    assert zoo_speed.drawn(drawn) == zoo_speed.drawn(drawn)
    assert len(set(zoo_speed.drawn(drawn))) == 4
