"""The arithmetic of failures that do not always show: how often to ask, and what that proves.

A program that fails in a share `rate` of its runs fails k times or more in n runs with probability

    P(k, n, rate) = sum over i >= k of C(n, i) * rate**i * (1 - rate)**(n - i)

A rule "k of n" may reject what fails as often as the first program did with probability `REJECTS`
at most, and may accept what fails a quarter as often with probability `ACCEPTS` at most; without
the second bound the rate would sink step by step until nothing fails.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from tc.trace.words import count

T = TypeVar("T")

REJECTS: Final = 0.01
ACCEPTS: Final = 0.25
FADED: Final = 0.25  # share of the first rate at which a candidate should be rejected
MOST: Final = 200  # runs of one candidate


@dataclass(frozen=True)
class Rule:
    """A candidate fails alike if `need` of `of` runs do."""

    need: int = 1
    of: int = 1

    def __str__(self) -> str:
        return f"{self.need} of {self.of}"

    def decided(self, ask: Callable[[], T], fails: Callable[[T], bool]) -> T:
        """Ask until so many answers are failures, or cannot be any more; returns the last."""
        failed = passed = 0
        while True:
            answer = ask()
            failed += fails(answer)
            passed += not fails(answer)
            if failed >= self.need or passed > self.of - self.need:
                return answer


def at_least(need: int, runs: int, rate: float) -> float:
    """Return the probability of so many failures or more."""
    return sum(
        math.comb(runs, i) * rate**i * (1 - rate) ** (runs - i) for i in range(need, runs + 1)
    )


def rule_for(rate: float) -> Rule:
    """Return the rule of the fewest runs that keeps both bounds at a failure rate."""
    if rate >= 1:
        return Rule()
    for runs in range(1, MOST + 1):
        for need in range(1, runs + 1):
            if at_least(need, runs, rate) < 1 - REJECTS:
                break
            if at_least(need, runs, rate * FADED) <= ACCEPTS:
                return Rule(need, runs)
    return Rule(1, MOST)


def missed(rate: float, runs: int) -> float:
    """Return the probability that a failure does not show in so many runs."""
    return float((1 - rate) ** runs)


def runs_for(rate: float) -> int:
    """Return how many runs a failure has to be looked for until it is as good as excluded."""
    if rate >= 1:
        return 1
    return min(MOST, math.ceil(math.log(REJECTS) / math.log(1 - rate)))


def by_chance(failed: int, runs: int, others: int, other_runs: int) -> float:
    """Return how likely chance alone puts so many of the failures on one side (Fisher's test).

    Args:
        failed: failures among `runs` of one kind.
        others: failures among `other_runs` of another kind.
    """
    total = failed + others
    ways = math.comb(runs + other_runs, total)
    most = min(total, runs)
    shared = (
        math.comb(runs, i) * math.comb(other_runs, total - i) for i in range(failed, most + 1)
    )
    return sum(shared) / ways


def rests_on(runs: int) -> str:
    """Return what it proves that so many runs did not fail, as text."""
    many = count(runs, "run")
    half, third = missed(0.5, runs), missed(0.3, runs)
    return (
        f"{many} of the script; a failure in half of its runs would be missed with probability "
        f"{half:.1%}, one in 30 % of them with {third:.1%}"
    )


def interval(failures: int, runs: int, doubt: float = 0.05) -> tuple[float, float]:
    """Return the rates that a count is compatible with (Clopper and Pearson, 1934)."""

    def solved(need: int, share: float) -> float:
        low, high = 0.0, 1.0
        for _ in range(50):
            middle = (low + high) / 2
            if at_least(need, runs, middle) < share:
                low = middle
            else:
                high = middle
        return low

    low = solved(failures, doubt / 2) if failures else 0.0
    return low, solved(failures + 1, 1 - doubt / 2) if failures < runs else 1.0


def summary(failures: int, runs: int) -> str:
    """Return a count as text, ``fails 7 of 20``, with what it proves."""
    if failures == runs:
        return f"fails {failures} of {runs}"
    low, high = interval(failures, runs)
    return f"fails {failures} of {runs} (a rate of {low:.0%} to {high:.0%})"
