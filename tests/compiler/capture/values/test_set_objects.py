"""Subclasses of set, frozenset and defaultdict: what they do, as inputs and made inside.

The cases are pairs of a class and a program. Each is called four times, with what is in the object
changed between calls, and gives what eager gives, the object's own items and attributes included.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import pytest
import torch

import tc


class Plain(set):
    """Adds methods and leaves all that Python asks to set."""

    def first(self):
        return min(self)


class Own(set):
    """Overrides what it is made, filled and asked by."""

    def __init__(self, items=()):
        super().__init__(items)
        self.log = []

    def add(self, item):
        self.log.append(item)
        super().add(item)

    def update(self, items):
        self.log.append("update")
        super().update(items)

    def __contains__(self, item):
        return super().__contains__(item) or item == 100

    def __len__(self):
        return super().__len__() + 10

    def __iter__(self):
        return iter(sorted(super().__iter__(), key=str)[:2])

    def __or__(self, other):
        return "or"

    def __eq__(self, other):
        return "equal"

    def first(self):
        return sum(1 for _ in self)

    __hash__ = None


class Frozen(frozenset):
    """Adds an attribute."""

    def first(self):
        return max(self)


class Made(frozenset):
    """Has a `__new__`."""

    def __new__(cls, *items):
        made = super().__new__(cls, *items)
        made.count = len(made)
        return made

    def first(self):
        return self.count


class Default(collections.defaultdict):
    """Adds a method."""

    def first(self):
        return next(iter(self))


class Counts(collections.defaultdict):
    """Is made without a factory by its callers, and stores what was missing."""

    def __init__(self, items=()):
        super().__init__(int, dict.fromkeys(items, 1))

    def __setitem__(self, key, value):
        super().__setitem__(key, value + 1)

    def first(self):
        return self["new"]


class Missing(collections.defaultdict):
    """Has its own `__missing__`."""

    def __missing__(self, key):
        return 7

    def first(self):
        return self["new"]


SETS = (Plain, Own, Frozen, Made)
MAKERS: dict[str, Callable[[Any], Any]] = {
    **{cls.__name__: cls for cls in SETS},
    "Default": lambda items: Default(list, dict.fromkeys(items, 1)),
    "without a factory": lambda items: Default(None, dict.fromkeys(items, 1)),
    "Counts": Counts,
    "Missing": lambda items: Missing(int, dict.fromkeys(items, 1)),
}


def discarded(a: Any) -> Any:
    a.discard(1)
    a.discard({2})
    return len(a)


def filled(a: Any) -> Any:
    a.add(8)
    a.update([9, 3])
    a.add(8)
    return sorted(set.__iter__(a))


def popped(a: Any) -> Any:
    a.remove(2)
    return a.pop() in (1, 3, 4, 5)


def united(a: Any) -> Any:
    other = a
    a |= {6, 7}
    return a is other, type(a).__name__


def stored(a: Any) -> Any:
    a["k"] = 4
    a["k"] += 1
    del a["k"]
    return a.get("k", 3), list(a)


def missed(a: Any) -> Any:
    return a["absent"], "absent" in a, a.default_factory


def attributes(a: Any) -> Any:
    a.extra = len(a)
    return a.extra, a.first()


def unions(a: Any) -> Any:
    found = [a | {5}, a & {1}, a - {1}, a ^ {1, 7}, {1} | a, {7} - a, a.union([4]), a.copy()]
    return [(type(one).__name__, one) for one in found]


def keyed(a: Any) -> Any:
    return {a: 3}[a], hash(a) == hash(a)


def counted(a: Any) -> Any:
    return len(a), bool(a), 1 in a, 100 in a, frozenset([1]) in a, {1} in a


def made(a: Any) -> Any:
    one = type(a)([3, 1]) if isinstance(a, set | frozenset | Counts) else type(a)(list, {3: 1})
    return one, one.first()


def iterated(a: Any) -> Any:
    total = []
    for item in a:
        total.append(item)
    return total


def compared(a: Any) -> Any:
    return a == {1, 2}, {1, 2} == a, a != {1}, a <= {1, 2, 3}, a < {1}, a.issubset([1, 2, 3])


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "counted": counted,
    "iterated": iterated,
    "listed": lambda a: (list(a), tuple(a), sorted(a, key=str), sum(1 for _ in a)),
    "copied": lambda a: (set(a), frozenset(a), {*a}),
    "first": lambda a: a.first(),
    "attributes": attributes,
    "united": united,
    "unions": unions,
    "compared": compared,
    "filled": filled,
    "discarded": discarded,
    "popped": popped,
    "stored": stored,
    "missed": missed,
    "keyed": keyed,
    "made": made,
    "returned": lambda a: a,
    "refused": lambda a: a + 1,
    "cleared": lambda a: (a.clear(), len(a)),
}


def shown(value: Any) -> Any:
    """Return the class of a value, what is in it in its order, and its attributes."""
    if isinstance(value, list | tuple):
        return [shown(one) for one in value]
    own = vars(value) if hasattr(value, "__dict__") and not callable(value) else None
    if isinstance(value, set | frozenset):
        base = set if isinstance(value, set) else frozenset
        return type(value).__name__, list(base.__iter__(value)), own
    if isinstance(value, dict):
        return type(value).__name__, dict.copy(value), getattr(value, "default_factory", 0), own
    return type(value).__name__, value


def outcome(run: Any, a: Any) -> Any:
    try:
        found, y = run(torch.ones(2), a)
    except Exception as error:
        return type(error).__name__, str(error), shown(a)
    return shown(found), y, shown(a)


@pytest.mark.sample(60)
@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("what", PROGRAMS)
def test_they_do_what_they_do_in_eager(what: str, name: str) -> None:
    def run(x: torch.Tensor, a: Any) -> Any:
        return PROGRAMS[what](a), x + 1

    compiled = tc.compile(run, backend="eager")
    for items in ([1, 2], [1, 2], [2, 3, 4], []):
        for again in range(2):
            given = MAKERS[name](items)
            mine = MAKERS[name](items)
            if again:  # an attribute of one of its kind
                given.mark = mine.mark = len(items)
            want = outcome(run, given)
            assert str(outcome(compiled, mine)) == str(want)


@pytest.mark.parametrize("name", ["counted", "filled", "united", "unions", "attributes", "first"])
@pytest.mark.parametrize("cls", [Plain, Own])
def test_one_graph(cls: type, name: str) -> None:
    def run(x: torch.Tensor, a: Any) -> Any:
        return PROGRAMS[name](a), x + 1

    assert str(outcome(tc.compile(run, fullgraph=True, backend="eager"), cls([1, 2]))) == str(
        outcome(run, cls([1, 2]))
    )


@pytest.mark.parametrize("cls", [Plain, Frozen])
def test_its_order_is_that_of_its_own_table(cls: type) -> None:
    """What was put in and taken out again decides the order, which a copy does not have."""
    grown = Plain(range(50))
    for item in range(3, 50):
        grown.discard(item)
    grown.update([40, 17])
    given = cls(grown) if cls is Frozen else grown

    def run(x: torch.Tensor, a: Any) -> Any:
        return list(a), x + 1

    assert str(tc.compile(run, backend="eager")(torch.ones(1), given)) == str(
        run(torch.ones(1), given)
    )
