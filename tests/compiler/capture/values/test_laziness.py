"""Items are asked for when Python asks for them: effects, errors and changes come in its order."""

from __future__ import annotations

import collections
import functools
import itertools
import operator

import pytest
import torch

import tc

#: what the programs use
MODULES = {m.__name__: m for m in (collections, functools, itertools, operator)}


class Counted:
    """An iterator that counts what it was asked for."""

    def __init__(self):
        self.asked = 0

    def __iter__(self):
        return self

    def __next__(self):
        self.asked += 1
        if self.asked > 7:
            raise StopIteration
        return self.asked


class Items:
    """Has items and a length, but no iterator; counts what it was asked for."""

    def __init__(self):
        self.asked = 0

    def __getitem__(self, index):
        self.asked += 1
        if index > 5:
            raise IndexError
        return index

    def __len__(self):
        return 4


class Sum:
    """Adds, compares, and writes down in which order."""

    def __init__(self, log, value):
        self.log, self.value = log, value
        log.append(("made", value))

    def __radd__(self, other):
        self.log.append(("radd", self.value))
        return self

    def __add__(self, other):
        self.log.append(("add", self.value, other.value))
        return Sum(self.log, self.value + other.value)

    def __lt__(self, other):
        self.log.append(("lt", self.value, other.value))
        return self.value < other.value


def endless():
    number = 0
    while True:
        yield number
        number += 1


def fails():
    yield 1
    yield 2
    raise ValueError("from the generator")


def noted(log, items, note="item"):
    for item in items:
        log.append((note, item))
        yield item


def attempt(call):
    try:
        return call()
    except Exception as error:
        return type(error).__name__, str(error)


def unpack(iterable):
    a, b = iterable
    return a, b


#: what stands in `r` and in `log` is compared, and how often `it` and `g` were asked
PROGRAMS = """
r = 3 in it
r = 3 not in it, 3 in g
r = 3 in endless()
r = any(v > 2 for v in it), all(v < 3 for v in g)
r = list(zip([1, 2], it))
r = attempt(lambda: unpack(it)), attempt(lambda: unpack(g)), attempt(lambda: unpack(endless()))
r = next(itertools.zip_longest(it, [1]))
r = list(itertools.zip_longest(noted(log, [1, 2]), noted(log, [5]), fillvalue=0))
r = next(itertools.accumulate(it)), next(itertools.pairwise(it))
r = list(itertools.accumulate(noted(log, [1, 2]), lambda a, b: log.append(b) or a + b, initial=9))
r = list(itertools.pairwise([1, 2, 3])), list(itertools.pairwise([1]))
r = {3}.isdisjoint(it), {0, 1, 9}.issuperset(g)
r = list(reversed(g)), next(reversed(g))
l = [1, 2, 3]; q = reversed(l); l[0] = 9; l.append(4); r = list(q)
l = [1, 2, 3]; q = reversed(l); next(q); l.pop(); l.pop(); r = list(q)
l = [1]; l.extend(v for v in [1, 1, 2, 2, 3] if v not in l); r = l
l = [1]; l += (v for v in [1, 1, 2, 2, 3] if v not in l); r = l
l = [1]; l[1:] = (v for v in [1, 1, 2, 2, 3] if v not in l); r = l
l = [1, 2]; l.extend(l); l += l; r = l
s = {1}; s.update(v for v in [1, 1, 2, 2, 3] if v - 1 in s); r = sorted(s)
s = {1, 2, 3}; s.difference_update(log.append(sorted(s)) or v for v in [2, 3]); r = sorted(s)
q = collections.deque([1]); q.extend(v for v in [1, 2, 2] if v not in list(q)); r = list(q)
q = collections.deque([9], maxlen=2); q.extend(log.append(list(q)) or v for v in [1, 2, 3])
q = collections.deque(maxlen=2); q.extendleft([1, 2, 3]); r = list(q)
r = functools.reduce(lambda a, b: log.append(b) or a + b, noted(log, [1, 2, 3]))
r = functools.reduce(lambda a, b: log.append(b) or a + b, noted(log, [1, 2, 3]), 5)
r = sum(Sum(log, v) for v in [1, 2, 3]).value
r = max(noted(log, [1, 2, 3]), key=lambda v: log.append(v) or -v)
r = min(Sum(log, v) for v in [3, 1, 2]).value
r = attempt(lambda: max([])), max([], default=4), attempt(lambda: max(1, 2, default=3))
l = []; r = attempt(lambda: l.extend(fails())), l
l = []; r = attempt(lambda: operator.iadd(l, fails())), l
l = []; r = attempt(lambda: l.extend(zip(fails(), fails()))), l
s = set(); r = attempt(lambda: s.update(fails())), sorted(s)
q = collections.deque(); r = attempt(lambda: q.extendleft(fails())), list(q)
d = {}; r = attempt(lambda: d.update((v, 1) for v in fails())), d
d = {1: 2, 3: 4}; i = iter(d.items()); next(i); d[3] = 10; r = list(i)
d = {1: 2, 3: 4}; i = iter(d.values()); d[1] = 9; next(i); d[3] = 10; r = list(i)
d = {1: 2, 3: 4}; r = [d.update({3: v + 1}) or v for k, v in d.items()]
d = {1: 2, 3: 4}; r = attempt(lambda: [d.pop(k) for k in d])
l = [1, 2]; m = map(lambda v: v * 2, l); l.append(3); r = list(m)
"""


@pytest.mark.sample(20)
@pytest.mark.parametrize("breaks", [False, True], ids=["whole", "broken"])
@pytest.mark.parametrize("program", PROGRAMS.strip().splitlines())
def test_program(program, breaks):
    head, _, last = program.rpartition("; ")
    parts = [p for p in (head, "print(end='')" if breaks and head else "", last) if p]
    body = "; ".join(parts)
    space = {**globals(), **MODULES}
    exec(
        "def f(x):\n"
        "    log, r, it, g = [], None, Counted(), Items()\n"
        f"    {body}\n"
        "    return x + 1, r, log, it.asked, g.asked\n",
        space,
    )
    x = torch.ones(2)
    found = tc.compile(
        space["f"], backend="eager", fullgraph=not breaks and "d.pop" not in program
    )(x)[1:]
    assert found == space["f"](x)[1:]


@pytest.mark.parametrize("kind", ["keys", "values", "items"])
def test_a_dict_that_changes_after_a_break(kind):
    def f(x, d):
        found = []
        for item in getattr(d, kind)():
            print(end="")
            d["b"] = 10
            found.append(item)
        return x + 1, found

    def grows(x, d):
        found = []
        try:
            for item in getattr(d, kind)():
                print(end="")
                d[str(item)] = 1
                found.append(item)
        except RuntimeError as error:
            found.append(str(error))
        return x + 1, found

    x = torch.ones(2)
    for program in (f, grows):
        one, other = {"a": 1, "b": 2}, {"a": 1, "b": 2}
        found = tc.compile(program, backend="eager")(x, one)[1]
        assert (found, one) == (program(x, other)[1], other)


@pytest.mark.parametrize(
    "make",
    [
        lambda: itertools.accumulate([1, 2, 3, 4]),
        lambda: itertools.accumulate([1, 2, 3, 4], operator.mul, initial=5),
        lambda: itertools.pairwise([1, 2, 3, 4]),
        lambda: itertools.zip_longest([1, 2, 3], [4], fillvalue=0),
        lambda: reversed([1, 2, 3, 4]),
        lambda: iter({1: 2, 3: 4, 5: 6}.items()),
        lambda: iter({1, 2, 3}),
    ],
)
def test_iterators_that_cross_a_break(make):
    def f(x, started):
        iterator = make()
        first = [next(iterator) for _ in range(started)]
        print(end="")
        return x + 1, first, list(iterator)

    x = torch.ones(2)
    run = tc.compile(f, backend="eager")
    for started in range(3):
        assert run(x, started)[1:] == f(x, started)[1:]
