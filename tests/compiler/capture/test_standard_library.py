"""Containers and functions of the standard library: captured without a break, as in eager."""

from __future__ import annotations

import bisect
import collections
import enum
import functools
import heapq
import itertools
import math
import os
import pathlib
import re
import statistics
import string
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch

import tc

x = torch.arange(3.0)


class Doubling(dict[int, int]):
    def __missing__(self, key: int) -> int:
        self[key] = made = 2 * key
        return made


def counted(x: torch.Tensor) -> tuple[torch.Tensor, Any]:
    seen = collections.Counter("abca")
    seen["b"] += 2
    seen.update(["a", "d"])
    more = seen + collections.Counter("dd") - collections.Counter(a=1)
    return x * seen["a"] + seen["none"], more


def counted_outside(x: torch.Tensor, seen: collections.Counter[str]) -> torch.Tensor:
    seen["new"] += 1
    return x * seen.most_common(1)[0][1] + seen.total()


def made_up(x: torch.Tensor) -> tuple[torch.Tensor, dict[int, int]]:
    table = Doubling({1: 5})
    return x * table[1] + table[3] + len(table), table


def heaped(x: torch.Tensor) -> tuple[torch.Tensor, list[int]]:
    heap = [5, 1, 4, 2]
    heapq.heapify(heap)
    heapq.heappush(heap, 0)
    least = heapq.heappop(heap) + heapq.heappushpop(heap, 3) + heapq.heapreplace(heap, 9)
    return x * least + sum(heapq.nlargest(2, heap)) + heapq.nsmallest(1, heap)[0], heap


def bisected(x: torch.Tensor) -> tuple[torch.Tensor, list[int]]:
    steps = [1, 3, 3, 7]
    bisect.insort(steps, 4)
    left, right = bisect.bisect_left(steps, 3), bisect.bisect_right(steps, 3)
    return x * left + right + bisect.bisect([7, 5], 2, key=lambda v: -v), steps


def located(x: torch.Tensor) -> torch.Tensor:
    return x * len(os.path.join("data", "train")) + len(os.path.splitext("a.pt")[1])


def versioned(x: torch.Tensor) -> torch.Tensor:
    return x * sys.version_info[0] + sys.version_info.minor + (sys.version_info >= (3, 11))


def of_locals(x: torch.Tensor) -> tuple[torch.Tensor, list[str], str]:
    scale, unused = 3, "text"
    found = locals()
    return found["x"] * found["scale"], list(found), found["unused"]


def of_cells(x: torch.Tensor) -> tuple[torch.Tensor, list[str]]:
    scale = 3

    def inner(x: torch.Tensor) -> tuple[torch.Tensor, list[str]]:
        more = scale + 1
        return x * locals()["more"] * scale, sorted(locals())

    return inner(x)


PATTERN = re.compile(r"(\w)(\d*)")


def substituted(x: torch.Tensor) -> tuple[Any, ...]:
    seen: list[str] = []

    def doubled(match: re.Match[str]) -> str:
        seen.append(match.group())
        return match.group(2) * x.shape[0]

    once = re.sub(r"\d", lambda m: str(int(m.group()) * 2), "a1b2", count=1)
    texts = once, PATTERN.sub(doubled, "a1b"), PATTERN.sub("", "a1", 1)
    empty = re.sub("x*", lambda m: "-", "abxd"), re.sub("x*", "-", "abxd")
    template = string.Template("$a ${b} $$").safe_substitute(a=3)
    return x + 1, texts, seen, PATTERN.subn(doubled, "c2", 1), empty, template


def compared(x: torch.Tensor) -> tuple[Any, ...]:
    key = functools.cmp_to_key(lambda a, b: b - a)
    largest = max([2, 5, 3], key=functools.cmp_to_key(lambda a, b: b - a))
    return x + largest, sorted([1, 3, 2], key=key), key(1) == key(1), key(2) < key(1)


def summarised(x: torch.Tensor) -> tuple[Any, ...]:
    means = statistics.fmean([1, 2.5]), statistics.geometric_mean([1, 2, 4])
    more = statistics.correlation([1, 2, 3], [1, 2, 4]), math.fsum(v / 10 for v in range(10))
    merged = list(heapq.merge([1, 4], [2, 3])), list(heapq.merge(["aa"], ["b"], key=len))
    pairs = list(itertools.combinations_with_replacement("ab", r=2))
    return x * statistics.mean([1, 2]), means, more, merged, pairs


def flagged(x: torch.Tensor) -> tuple[Any, ...]:
    return x + (Flags.R | Flags.W) + Flags.X, Flags(7), x.sum(Flags(0)), Flags.R | 8


class Flags(enum.IntFlag):
    R = 4
    W = 2
    X = 1


@pytest.mark.parametrize("fn", [substituted, compared, summarised, flagged])
def test_functions_that_are_traced_in_the_place_of_others(fn: Callable[..., Any]) -> None:
    found, wanted = tc.compile(fn, fullgraph=True, backend="eager")(x), fn(x)
    assert repr(found) == repr(wanted)


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "fn",
    [counted, made_up, heaped, bisected, located, versioned, of_locals, of_cells],
    ids=lambda fn: fn.__name__,
)
def test_nothing_breaks(fn: Callable[..., Any]) -> None:
    found, wanted = tc.compile(fn, fullgraph=True)(x), fn(x)
    assert repr(found) == repr(wanted)  # classes and values


def test_a_counter_of_the_caller_is_counted_on() -> None:
    compiled = tc.compile(counted_outside, fullgraph=True)
    got, theirs = collections.Counter("aab"), collections.Counter("aab")
    for _ in range(3):
        assert torch.equal(compiled(x, got), counted_outside(x, theirs))
        assert got == theirs and type(got) is collections.Counter


def in_runs(xs: list[torch.Tensor]) -> list[Any]:
    by_size = itertools.groupby(sorted(xs, key=len), key=len)
    sums = [torch.stack(list(group)).sum(0) * size for size, group in by_size]
    firsts = [next(group) for _, group in itertools.groupby([1, 1, 2, 1])]
    late = [list(group) for _, group in list(itertools.groupby([1, 1, 2]))]
    return [*sums, firsts, late]


def in_pairs(xs: list[torch.Tensor]) -> list[Any]:
    pairs = [xs[i][0] * j for i, j in itertools.combinations(range(3), 2)]
    return [*pairs, [sum(two) for two in itertools.product((1, 2), repeat=2)]]


@pytest.mark.parametrize("fn", [in_runs, in_pairs])
def test_iterators_over_numbers_and_tensors(fn: Callable[..., list[Any]]) -> None:
    xs = [torch.arange(2.0), torch.arange(3.0), torch.ones(2), torch.ones(3)]
    torch.testing.assert_close(tc.compile(fn, fullgraph=True)(xs), fn(xs), rtol=0, atol=0)


def test_a_missing_key_is_still_an_error() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        try:
            return x * collections.OrderedDict(a=1)["b"]
        except KeyError as error:
            return x + len(str(error))

    assert torch.equal(tc.compile(fn, fullgraph=True)(x), fn(x))


def test_paths_of_objects() -> None:
    def fn(x: torch.Tensor, path: pathlib.Path) -> torch.Tensor:
        return x + len(os.path.basename(path))

    path = pathlib.Path("a") / "weights.pt"
    assert torch.equal(tc.compile(fn)(x, path), fn(x, path))


def test_globals_are_left_to_python() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        names = globals()
        return x * ("counted" in names) + len([name for name in names if name == "heaped"])

    assert torch.equal(tc.compile(fn)(x), fn(x))
