"""The arithmetic of failures that do not always show."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from minifier_scripts import chain

from tc.minifier import odds
from tc.minifier.answer import Answer
from tc.minifier.identity import Identity
from tc.minifier.ladder import Ladder
from tc.minifier.oracle import Oracle, Search


@pytest.mark.parametrize("rate", [0.05, 0.1, 0.3, 0.5, 0.9, 0.99])
def test_a_rule_keeps_both_bounds(rate: float) -> None:
    rule = odds.rule_for(rate)
    assert odds.at_least(rule.need, rule.of, rate) >= 1 - odds.REJECTS
    assert odds.at_least(rule.need, rule.of, rate * odds.FADED) <= odds.ACCEPTS


def test_what_always_fails_is_asked_once() -> None:
    assert odds.rule_for(1.0) == odds.Rule(1, 1)


@pytest.mark.parametrize("runs, rate", [(5, 0.3), (20, 0.05), (1, 1.0)])
def test_probabilities_are_those_of_all_outcomes(runs: int, rate: float) -> None:
    assert odds.at_least(0, runs, rate) == pytest.approx(1)
    assert odds.missed(rate, runs) == pytest.approx(1 - odds.at_least(1, runs, rate))


def test_an_interval_holds_the_rate_it_was_drawn_from() -> None:
    source = random.Random(0)
    held = 0
    for _ in range(200):
        failed = sum(source.random() < 0.3 for _ in range(20))
        low, high = odds.interval(failed, 20)
        held += low <= 0.3 <= high
    assert held >= 0.93 * 200


@pytest.mark.parametrize("share, taken", [(1.0, True), (0.0, False)])
def test_a_search_asks_as_often_as_its_rule_says(share: float, taken: bool) -> None:
    target = Identity("raises")
    search = Search(target=target, rule=odds.Rule(2, 5))
    source = random.Random(1)
    calls = []

    def ask() -> Answer:
        calls.append(1)
        return Answer("crash", target) if source.random() < share else Answer("ok")

    assert search.is_target(search.answered("x", ask)) is taken
    assert len(calls) == (2 if taken else 4)
    search.answered("x", ask)
    assert len(calls) == (2 if taken else 4)  # it is known


def test_error_rates_of_a_rule_are_as_stated() -> None:
    source = random.Random(2)
    target = Identity("raises")
    rule = odds.rule_for(0.3)

    def accepted(rate: float) -> float:
        def ask() -> Answer:
            return Answer("crash", target) if source.random() < rate else Answer("ok")

        searches = [Search(target=target, rule=rule) for _ in range(300)]
        return sum(one.is_target(one.answered("x", ask)) for one in searches) / 300

    assert accepted(0.3) >= 1 - 3 * odds.REJECTS
    assert accepted(0.3 * odds.FADED) <= odds.ACCEPTS + 0.08


@pytest.mark.parametrize("rate, runs", [(1.0, 1), (0.5, 7), (0.3, 13), (0.05, 90), (0.001, 200)])
def test_what_does_not_show_is_looked_for_until_it_is_excluded(rate: float, runs: int) -> None:
    assert odds.runs_for(rate) == runs
    assert odds.missed(rate, runs) <= odds.REJECTS or runs == odds.MOST


LOST = Identity("raises", "loops", ("RuntimeError",), "lost")
NAMES = [f"loops.lower.op{number}" for number in range(12)]


class Flaky:
    """A compiler whose seventh step goes wrong in a share of its runs."""

    def __init__(self, source: random.Random, rate: float) -> None:
        self.source, self.rate = source, rate

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        taken = request["stage"] in ("loops", "schedule", "kernels", "program")
        bad = taken and request["refuse"].get("*", 99) > 7 and self.source.random() < self.rate
        found = LOST.as_json() if bad else None
        return {
            "kind": "crash" if bad else "ok",
            "identity": found,
            "steps": [(name, ()) for name in NAMES],
        }


def blamed(seed: int, rule: odds.Rule) -> tuple[str, str]:
    """The stage and the step that are found."""
    server: Any = Flaky(random.Random(seed), 0.3)
    oracle = Oracle(server=server, target=LOST, rule=rule)
    ladder = Ladder(oracle, chain(3), Answer("crash", LOST))
    rung = ladder.climb()
    step = ladder.step(rung) if rung else None
    return rung.name if rung else "", step.kind if step else ""


def test_a_failure_that_does_not_always_show_is_blamed_on_its_step() -> None:
    right = ("loops", "loops.lower.op6")
    found = [blamed(seed, odds.rule_for(0.3)) for seed in range(40)]
    assert found.count(right) >= 36, Counter(found)
    assert [blamed(seed, odds.Rule()) for seed in range(40)].count(right) < 10
