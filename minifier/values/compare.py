"""Finds the first value in which two logs differ by more than rounding.

Values are paired by provenance: line, operation, result, and how often they occurred. Where one run
has a value more often, the occurrences that it has more are put where most of the others agree, so
that an iteration more at the beginning shifts nothing.

Rounding. The distance of a pair is relative to the larger norm. It may be `LEAST` units in the last
place of the narrower type, and, where a third run is given whose results were moved by one unit
each, `SLACK` times as far as that one is away. Without it, what comes in counts: a value may be
`AMPLIFIES` times as far off as the worst of those it is computed from. Of masks and indices see
`Comparison.is_near_tie`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from tc.minifier.values.log import GRADIENT, INPUT, VALUE, VJP, Event, Log

#: types -> their unit in the last place at 1
EPS: Final = {"float64": 2.0**-52, "complex128": 2.0**-52, "float32": 2.0**-23,
              "complex64": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}  # fmt: skip
WIDE: Final = 64.0  # units that are always rounding, as for `sentinel.rounding`
NARROW: Final = 4.0  # the same for types of 16 bits
SLACK: Final = 4.0
AMPLIFIES: Final = 16.0
DECIDED: Final = 1e-3  # part of the elements of a mask that may be near a tie


@dataclass(frozen=True)
class Pair:
    """A value in two runs.

    Attributes:
        distance: relative; infinite where type, shape or odd elements differ.
    """

    one: Event
    other: Event
    distance: float

    @property
    def is_discrete(self) -> bool:
        """Whether its type knows no rounding."""
        return self.one.dtype not in EPS


def distance(one: Event, other: Event) -> float:
    """Return how far two values are apart, relative to the larger norm."""
    if one.check == other.check and (one.dtype, one.shape) == (other.dtype, other.shape):
        return 0.0
    if one.shape != other.shape or one.dtype != other.dtype or one.odd != other.odd:
        return math.inf
    pairs = zip(one.sums, other.sums, strict=True)
    square = sum((mine - theirs) ** 2 for mine, theirs in pairs)
    scale = max(one.norm, other.norm)
    return math.sqrt(square) / scale if scale else 0.0


def aligned(ones: Sequence[Event], others: Sequence[Event]) -> list[tuple[Event, Event]]:
    """Pair the occurrences of one value: the surplus of the longer list is left out as a block."""
    if len(ones) > len(others):
        return [(mine, theirs) for theirs, mine in aligned(others, ones)]
    more = len(others) - len(ones)
    if not more:
        return list(zip(ones, others, strict=True))
    early = [is_close(mine, theirs) for mine, theirs in zip(ones, others, strict=False)]
    late = [is_close(mine, theirs) for mine, theirs in zip(ones, others[more:], strict=True)]
    best, place = sum(early), len(ones)  # the surplus comes last
    score = best
    for number in range(len(ones) - 1, -1, -1):
        score += late[number] - early[number]
        if score > best:
            best, place = score, number
    return [(mine, others[k if k < place else k + more]) for k, mine in enumerate(ones)]


def is_close(one: Event, other: Event) -> bool:
    """Whether two values may be the same but for rounding."""
    return distance(one, other) <= least(one)


def least(event: Event) -> float:
    """Return the distance that is always rounding."""
    eps = EPS.get(event.dtype, 0.0)
    return eps * (NARROW if event.dtype in ("float16", "bfloat16") else WIDE)


def paired(one: Log, other: Log) -> dict[int, Pair]:
    """Return the values that both runs have, by their number in the first.

    Gradients go with what they are gradients of, in whatever order autograd computes them.
    """
    values = [_grouped(log, _value_key) for log in (one, other)]
    gradients = [_grouped(log, _gradient_key) for log in (one, other)]
    found: dict[int, Pair] = {}
    for key in values[0].keys() & values[1].keys():
        for mine, theirs in aligned(values[0][key], values[1][key]):
            pairs = [(mine, theirs)] if mine.dtype and theirs.dtype else []
            whats = range(-1, len(mine.enters))
            for what in whats:
                pairs += aligned(
                    gradients[0].get((mine.number, what), ()),
                    gradients[1].get((theirs.number, what), ()),
                )
            found |= {pair[0].number: Pair(*pair, distance(*pair)) for pair in pairs}
    return found


def _value_key(event: Event) -> Any:
    return event.key if event.kind in (VALUE, INPUT) else None


def _gradient_key(event: Event) -> Any:
    """Return whose gradient it is: a value's own (-1), or what its call passes to an argument."""
    if event.kind in (VALUE, INPUT):
        return None
    return event.enters[0], event.part if event.kind == VJP else -1


def _grouped(log: Log, key: Callable[[Event], Any]) -> dict[Any, list[Event]]:
    found: dict[Any, list[Event]] = defaultdict(list)
    for event in log.events:
        name = key(event)
        if name is not None:
            found[name].append(event)
    return found


@dataclass
class Comparison:
    """Two logs, and perhaps a third that shows what rounding does.

    Attributes:
        moved: the first run again, with each result moved by a unit in the last place.
    """

    one: Log
    other: Log
    moved: Log | None = None

    @cached_property
    def pairs(self) -> dict[int, Pair]:
        """The values that both have, by their number in the first."""
        return paired(self.one, self.other)

    @cached_property
    def measured(self) -> dict[int, float]:
        """How far rounding moves each value of the first run."""
        if self.moved is None:
            return {}
        return {number: pair.distance for number, pair in paired(self.one, self.moved).items()}

    @cached_property
    def consumers(self) -> dict[int, list[int]]:
        """The results that each value takes part in."""
        found: dict[int, list[int]] = defaultdict(list)
        for event in self.one.events:
            for number in event.enters if event.kind == VALUE else ():
                found[number].append(event.number)
        return found

    @cached_property
    def gradients(self) -> dict[tuple[int, int], list[int]]:
        """The gradients of each value (-1), and what its call passes back to each argument."""
        found: dict[tuple[int, int], list[int]] = defaultdict(list)
        for event in self.one.events:
            if event.kind in (GRADIENT, VJP):
                found[_gradient_key(event)].append(event.number)
        return found

    def enters(self, pair: Pair) -> list[Pair]:
        """Return what a value is computed from, or a gradient."""
        event = pair.one
        numbers = list(event.enters)
        if event.kind == VJP:  # from the gradients of the results
            numbers = [number for result in self._results(event.enters[0])
                       for number in self._before(event, result, -1)]  # fmt: skip
        elif event.kind == GRADIENT:  # a sum of what the calls pass back that take the value
            numbers = [
                number
                for consumer in self.consumers[event.enters[0]]
                for argument, given in enumerate(self.one.events[consumer].enters)
                if given == event.enters[0]
                for number in self._before(event, consumer, argument)
            ]
        return [self.pairs[number] for number in dict.fromkeys(numbers) if number in self.pairs]

    def _before(self, event: Event, value: int, what: int) -> list[int]:
        """Return the last gradient of a kind before an event."""
        return [one for one in self.gradients.get((value, what), ()) if one < event.number][-1:]

    def _results(self, first: int) -> list[int]:
        """Return the results of a call; its first one is given."""
        events, found = self.one.events, [first]
        for event in events[first + 1 :]:
            if event.part != len(found) or event.kind != VALUE:
                break
            found.append(event.number)
        return found

    def tolerance(self, pair: Pair) -> float:
        """Return the distance up to which a pair differs by rounding alone."""
        enters = max((one.distance for one in self.enters(pair)), default=0.0)
        if pair.is_discrete:
            return math.inf if 0 < enters < math.inf and self.is_near_tie(pair) else 0.0
        if self.moved is not None:
            return least(pair.one) + SLACK * self.measured.get(pair.one.number, 0.0)
        return max(least(pair.one), AMPLIFIES * enters if enters < math.inf else 0.0)

    def is_near_tie(self, pair: Pair) -> bool:
        """Whether rounding of what enters can decide otherwise, in a value without rounding.

        Where it can, the moved run decides some elements otherwise as well, or they are few.
        """
        if self.moved is None or pair.one.shape != pair.other.shape:
            return self.moved is None
        both = zip(pair.one.sums, pair.other.sums, strict=True)
        changed = sum((mine - theirs) ** 2 for mine, theirs in both)
        few = changed <= DECIDED * math.prod(pair.one.shape)
        return few or self.measured.get(pair.one.number, math.inf) > 0

    @cached_property
    def first(self) -> Pair | None:
        """The first value that differs by more than rounding, in the order of the first run."""
        for number in sorted(self.pairs):
            pair = self.pairs[number]
            if pair.distance and pair.distance > self.tolerance(pair):
                return pair
        return None

    @property
    def flipped(self) -> list[Pair]:
        """The values without rounding that differ where what they are made of does."""
        return [pair for pair in self.pairs.values() if pair.is_discrete and pair.distance]
