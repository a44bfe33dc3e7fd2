"""The arithmetic of failures that do not always show."""

from __future__ import annotations

import itertools
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
from tc.minifier.outside import PAIRS, Calls, Tally, around_graphs
from tc.minifier.problem import LOOKS, Problem, looks, more_looks
from tc.minifier.verdict import BUG


@pytest.mark.sample(3)
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


@pytest.mark.parametrize(
    "failed, runs, others, other_runs", [(5, 5, 0, 5), (3, 9, 1, 7), (0, 4, 0, 4)]
)
def test_chance_is_the_share_of_all_ways_to_deal_failures(
    failed: int, runs: int, others: int, other_runs: int
) -> None:
    total = failed + others
    ways = list(itertools.combinations(range(runs + other_runs), total))
    worse = sum(sum(place < runs for place in way) >= failed for way in ways)
    assert odds.by_chance(failed, runs, others, other_runs) == pytest.approx(worse / len(ways))


class Script(Calls):
    """A script that fails in a share of its runs: in any, or only where calls are compiled."""

    def __init__(self, source: random.Random, rate: float, compiled_only: bool) -> None:
        super().__init__(Any, Any, lambda text: None)
        self.source, self.rate, self.compiled_only = source, rate, compiled_only

    def once(self, count: int, fresh: bool = False) -> Problem:
        fails = self.source.random() < self.rate and (count > 2 or not self.compiled_only)
        fails = fails and not (fresh and self.compiled_only)
        found = Identity("raises", types=("ConnectionError",)) if fails else None
        return Problem("script" if fails else "ok", found, facts={"seen": min(count, 6)})


FLAKE = Problem("script", Identity("raises", types=("ConnectionError",)), "no answer")


def accused(rate: float) -> float:
    """The probability that a script is blamed on the compiler that fails in any run alike."""
    undecided, found = {0: 1.0}, 0.0
    for runs in range(1, PAIRS + 1):
        after: dict[int, float] = {}
        for failed, chance in undecided.items():
            chance *= 1 - rate  # the run without the compiler passes
            after[failed + 1] = after.get(failed + 1, 0) + chance * rate
            after[failed] = after.get(failed, 0) + chance * (1 - rate)
        decided = {failed for failed in after if Tally(failed, runs, 0, runs).is_decided}
        found += sum(after[failed] for failed in decided)
        undecided = {failed: after[failed] for failed in after.keys() - decided}
    return found


def test_what_fails_without_the_compiler_as_well_is_as_good_as_never_blamed_on_it() -> None:
    assert max(accused(percent / 100) for percent in range(1, 101)) <= 0.0014
    verdicts = [
        around_graphs(FLAKE, Script(random.Random(seed), 0.3, compiled_only=False))
        for seed in range(300)
    ]
    assert sum(verdict is not None and verdict.code == BUG for verdict in verdicts) <= 2


@pytest.mark.parametrize("rate", [0.3, 0.6, 1.0])
def test_what_fails_only_where_it_is_compiled_is_blamed_on_its_call(rate: float) -> None:
    found = [
        around_graphs(FLAKE, Script(random.Random(seed), rate, compiled_only=True))
        for seed in range(100)
    ]
    right = [one for one in found if one and one.code == BUG and one.facts.get("number") == 3]
    assert len(right) >= 95
    assert {one.facts["step"] for one in right} == {"guards"}


@pytest.mark.parametrize("each, least", [(0.1, 7), (5.0, 7), (40.0, 2), (1000.0, 2)])
def test_a_sound_script_is_looked_at_often_enough(each: float, least: int) -> None:
    count = 1
    while more_looks(count, (count - 1) * each):
        count += 1
    assert count >= least
    assert count < 7 or odds.missed(0.5, count) <= odds.REJECTS
    assert more_looks(2, 1e9, runs=3) and not more_looks(3, 0, runs=3)
    assert (len([*looks(3)]), len([*looks()])) == (3, LOOKS)  # these take no time
