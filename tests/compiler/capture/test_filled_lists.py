"""Lists that came in and are only added to are not read: a loop that breaks fills one list."""

from __future__ import annotations

import pytest
import torch

import tc
from tc.compiler import api


@pytest.fixture(autouse=True)
def fresh():
    tc.reset()


def appended(xs):
    out = []
    for x in xs:
        y = x.sin()
        api.graph_break()
        out.append(y + 1)
    return out


def extended(xs):
    out = [xs[0]]
    for x in xs:
        y = x.sin()
        api.graph_break()
        out.extend([y, x + 1])
        out += (y,)
    return out


def comprehended(xs):
    return [inner(x) for x in xs]


def inner(x):
    y = x.sin()
    api.graph_break()
    return y + 1


def read_after(xs):
    out = []
    for x in xs:
        y = x.sin()
        api.graph_break()
        out.append(y)
        out.append(out[0] + out[-1] * len(out))
    return out


def of_itself(xs):
    out = [xs[0]]
    for x in xs[:2]:
        y = x.sin()
        api.graph_break()
        out.append(y)
        out.extend(out)
        other = out
        other.append(x)
        if out:
            out.insert(0, y + 1)
    return out


@pytest.mark.sample(3)
@pytest.mark.parametrize("program", [appended, extended, comprehended, read_after, of_itself])
def test_it_gets_what_eager_gives(program):
    for count in (2, 5):
        xs = tuple(torch.randn(3) for _ in range(count))
        found = tc.compile(program, backend="eager")(xs)
        expected = program(xs)
        assert type(found) is list and len(found) == len(expected)
        for got, wanted in zip(found, expected, strict=True):
            torch.testing.assert_close(got, wanted)


@pytest.mark.parametrize("program", [appended, extended, comprehended])
def test_longer_loops_need_no_more_graphs(program):
    graphs = []
    for count in (4, 12):
        tc.reset()
        tc.compile(program, backend="eager")(tuple(torch.randn(3) for _ in range(count)))
        graphs.append(api.graph_stats())
    assert graphs[0] == graphs[1]


@pytest.mark.parametrize("adding", [list.append, lambda items, x: items.extend([x, x])])
def test_a_list_that_is_added_to_may_have_any_length(adding):
    def add(items, x):
        adding(items, x + 1)

    compiled = tc.compile(add, backend="eager")
    for length in (0, 1, 4):
        items, plain = [list(range(length)) for _ in range(2)]
        compiled(items, torch.zeros(2))
        add(plain, torch.zeros(2))
        assert len(items) == len(plain) and items[:length] == plain[:length]
    assert api.graph_stats()["graphs"] == 1


def test_one_that_is_read_too_may_not():
    def add(items, x):
        items.append(x + len(items))

    compiled = tc.compile(add, backend="eager")
    for length in (0, 1, 4):
        items = list(range(length))
        compiled(items, torch.zeros(2))
        assert items[-1].tolist() == [float(length)] * 2
    assert api.graph_stats()["graphs"] > 1


def test_what_is_no_list_is_distinguished():
    class Items(list):
        def append(self, x):
            super().append(x * 2)

    def add(items, x):
        items.append(x + 1)

    compiled = tc.compile(add, backend="eager")
    for kind in (list, Items, list):
        items = kind()
        compiled(items, torch.zeros(1))
        assert items[0].item() == (2.0 if kind is Items else 1.0)
