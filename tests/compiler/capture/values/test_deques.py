"""Deques: what ends an iterator over one, here and outside of the compiled function."""

from __future__ import annotations

import collections

import pytest
import torch

import tc

CHANGES = {
    "item": lambda d: d.__setitem__(1, 7),
    "reverse": lambda d: d.reverse(),
    "nothing": lambda d: d.extend([]),
    "nothing added": lambda d: d.__iadd__(()),
    "rotate": lambda d: d.rotate(1),
    "rotate by nothing": lambda d: d.rotate(0),
    "append and popleft": lambda d: (d.append(5), d.popleft()),
    "append at the maximum": lambda d: d.append(5),
    "appendleft": lambda d: d.appendleft(5),
    "del and append": lambda d: (d.__delitem__(0), d.append(4)),
    "remove and insert": lambda d: (d.remove(2), d.insert(0, 2)),
    "clear": lambda d: d.clear(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_ends_iterators_that_eager_ends(change):
    def inside(x):
        d = collections.deque([1, 2, 3], maxlen=4 if "and" in change else 3)
        held = iter(d)
        first = next(held)
        CHANGES[change](d)
        try:
            return x + next(held), first, list(held)
        except RuntimeError as error:
            return str(error)

    x = torch.ones(2)
    assert str(tc.compile(inside, backend="eager")(x)) == str(inside(x))

    def outside(x, d):
        CHANGES[change](d)
        return x + d[0] if d else x + 1

    found = []
    for function in (outside, tc.compile(outside, backend="eager", fullgraph=True)):
        d = collections.deque([1, 2, 3], maxlen=4 if "and" in change else 3)
        held = iter(d)
        next(held)
        results: list[object] = [str(function(x, d)), list(d)]
        try:
            results += held
        except RuntimeError as error:
            results.append(str(error))
        found.append(results)
    assert found[0] == found[1]


@pytest.mark.parametrize("count", [0, 1, 3, -1])
@pytest.mark.parametrize("maxlen", [None, 2, 4])
def test_repeated_in_place(count, maxlen):
    def program(x, given):
        made = collections.deque([0, 1, 2], maxlen)
        same = made
        made *= count
        given *= count
        return x + len(made), made, same is made

    def run(call):
        given = collections.deque([5, 6], maxlen)
        return str(call(torch.ones(1), given)), given

    assert run(tc.compile(program, backend="eager", fullgraph=True)) == run(program)
