"""Subclasses of list: methods, attributes and special methods, as inputs and made inside."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tc


class Plain(list):
    """Adds methods and leaves all that Python asks to list."""

    tag = "t"

    def push(self, item):
        self.append(item)
        return self

    @property
    def last(self):
        return self[-1]


class Own(list):
    """Overrides what it is made, filled and read by."""

    def __init__(self, items=(), name="n"):
        super().__init__(items)
        self.name = name
        self.log = []

    def append(self, item):
        self.log.append("append")
        super().append(item)

    def __getitem__(self, key):
        found = super().__getitem__(key)
        return type(self)(found, self.name) if isinstance(key, slice) else found

    def __setitem__(self, key, item):
        self.log.append(key)
        super().__setitem__(key, item)

    def __len__(self):
        return super().__len__() + 10

    def __eq__(self, other):
        return "equal"

    __hash__ = None


class Made(list):
    """Has a `__new__`."""

    def __new__(cls, *items):
        made = super().__new__(cls)
        made.count = len(items)
        return made

    def __init__(self, *items):
        super().__init__(items)


class Stack(list):
    """A stack that is a context, too."""

    def __enter__(self):
        self.append("entered")
        return self

    def __exit__(self, *error):
        self.pop()


KINDS = {"plain": Plain, "own": Own, "made": lambda items: Made(*items)}


def filled(x, items):
    items.append(x + 1)
    first, items[0] = items[0], x
    items.extend([x * 2])
    items.insert(1, x - 1)
    popped = items.pop()
    items.count_of_calls = getattr(items, "count_of_calls", 0) + 1
    return first, popped, len(items), items.count_of_calls, items


def operated(x, items):
    same = items
    items += [x]
    items *= 2
    items.reverse()
    del items[0]
    both = items + [x], [x] + items  # noqa: RUF005
    return same is items, both, items[1:], items[-1], items


def iterated(x, items):
    total = sum(item.sum() for item in items)
    return total, [*items], list(reversed(items)), dict(enumerate(items)), tuple(items), not items


def compared(x, items):
    items[:] = numbers = [1, len(items)]
    return x + 1, items == numbers, numbers == items, items != numbers, isinstance(items, list)


def through_a_break(x, items):
    items.append(x)
    print(end="")
    items[0] = x + 1
    for item in items:
        print(end="")
        x = x + item
    items.extend([x])
    return x, items


PROGRAMS = (filled, operated, iterated, compared, through_a_break)


def shown(value: Any) -> Any:
    """Return what a result looks like: classes, items and attributes."""
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, dict):
        return {key: shown(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        items = list.__iter__(value) if isinstance(value, list) else value
        return type(value).__name__, [shown(item) for item in items], shown(vars_of(value))
    return value


def vars_of(value: Any) -> dict[str, Any]:
    return getattr(value, "__dict__", {})


def made_of(kind: str, length: int) -> Any:
    return KINDS[kind]([torch.full((2,), float(i)) for i in range(length)])


@pytest.mark.sample(5)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_an_input_is_that_of_eager(program, kind):
    compiled = tc.compile(program, backend="eager", fullgraph=program is not through_a_break)
    for length in (1, 2, 2, 3):
        one, other = made_of(kind, length), made_of(kind, length)
        found, wanted = compiled(torch.ones(2), one), program(torch.ones(2), other)
        assert shown((found, one)) == shown((wanted, other))
        assert any(item is one for item in found) == any(item is other for item in wanted)


@pytest.mark.sample(5)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_one_made_inside_is_that_of_eager(program, kind):
    def made(x):
        return program(x, KINDS[kind]([x, x + 1]))

    compiled = tc.compile(made, backend="eager", fullgraph=program is not through_a_break)
    for _ in range(2):
        assert shown(compiled(torch.ones(2))) == shown(made(torch.ones(2)))


def test_methods_attributes_and_nesting():
    def f(x):
        outer = Plain([Plain([x]), {"k": Plain()}])
        outer[0].push(x * 2)
        outer[1]["k"].push(3).push(4)
        stack = Stack()
        with stack as held:
            held.append(outer[0].last)
            inside = len(stack)
            held.pop()
        return outer, outer[0].last, outer.tag, outer[1]["k"].last, inside, stack

    compiled = tc.compile(f, backend="eager", fullgraph=True)
    assert shown(compiled(torch.ones(2))) == shown(f(torch.ones(2)))


def test_a_method_that_is_replaced_and_another_subclass_are_seen():
    class Base(list):
        def total(self):
            return sum(self)

    class Derived(Base):
        pass

    def f(x, items):
        return x + items.total(), type(items).__name__, len(items)

    compiled, x = tc.compile(f, backend="eager"), torch.ones(2)
    for _ in range(2):
        for items in (Base([1, 2]), Derived([1, 2]), Derived([3])):
            assert shown(compiled(x, items)) == shown(f(x, items))
        Base.total = lambda self: 5
        Derived.__len__ = lambda self: 9


def test_one_that_is_only_filled_is_compiled_once():
    def f(x, items):
        items.push(x)
        return x + 1

    compiled, items = tc.compile(f, backend="eager"), Plain()
    before = tc.counters["frames"]["ok"]
    for _ in range(4):
        compiled(torch.ones(2), items)
    assert (len(items), tc.counters["frames"]["ok"] - before) == (4, 1)


def test_containers_can_be_initialised_again():
    def f(x):
        values, names, kinds, fixed = [1, 2], {1: 2}, {1, 2}, frozenset([3])
        values.__init__([5])
        names.__init__(a=3)
        kinds.__init__("ab")
        fixed.__init__("ab")
        return x + values[0], values, names, sorted(kinds), sorted(fixed)

    compiled = tc.compile(f, backend="eager", fullgraph=True)
    assert shown(compiled(torch.ones(2))) == shown(f(torch.ones(2)))
