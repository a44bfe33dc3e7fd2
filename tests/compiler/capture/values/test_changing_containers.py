"""Containers, objects and modules that change while they are read: Python's answers, in order.

Each program computes something, since a frame without a graph runs as Python anyway.
"""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import tc


class Own:
    """An object with attributes, a class attribute and a property with a setter."""

    shared = 1

    def __init__(self) -> None:
        self.y, self.z = 1, 2
        self.log: list[int] = []

    @property
    def watched(self) -> int:
        return 7

    @watched.setter
    def watched(self, value: int) -> None:
        self.log.append(value)

    def method(self) -> int:
        return 1


class Slotted:
    """An object with slots, of which one is filled."""

    __slots__ = ("first", "second")

    def __init__(self) -> None:
        self.first = 1


# -- containers that change while they are iterated over -------------------------------------------
def grow_dict(x, d):
    for key in d:
        d[key + "1"] = 1
    return x + 1


def grow_by_values(x, d):
    for value in d.values():
        d[str(value)] = 5
    return x + 1


def grow_by_items(x, d):
    for key, _ in d.items():
        d[key + "q"] = 5
    return x + 1


def grow_and_catch(x, d):
    try:
        for key in d:
            d[key + "1"] = 1
            x = x + 1
    except RuntimeError:
        x = x * 10
    return x + 1


def grow_own_dict(x):
    d = {"a": 1}
    for key in d:
        d[key + "1"] = 1
    return x + 1


def shrink_set(x, s):
    for item in s:
        s.discard(item)
    return x + 1


def pop_ordered(x, d):
    for key in d:
        d.pop(key)
    return x + 1


def grow_deque(x, q):
    for item in q:
        q.append(item)
    return x + 1


def grow_list(x, items):
    for item in items:
        if len(items) < 6:
            items.append(item)
    return x + len(items)


def stay_exhausted(x, items):
    iterator = iter(items)
    first = list(iterator)
    items.append(5)
    return x + len(list(iterator)), first


def change_values(x, d):
    for key in d:
        d[key] = d[key] + 1
    return x + 1, d


# -- comparisons and text --------------------------------------------------------------------------
def compare_ordered(x):
    one, other = collections.OrderedDict(a=1, b=2), collections.OrderedDict(b=2, a=1)
    return x + 1, one == other, one != other, one == dict(other), dict(one) == other


def compare_counters(x):
    counted, plain = collections.Counter(a=1), {"a": 1}
    return x + 1, counted == plain, plain == counted, counted == collections.Counter("a")


def compare_views(x):
    d = {"a": 1}
    held = d.values()
    return x + 1, held == held, d.values() == d.values(), d.values() != held, d.keys() == d.keys()


def compare_methods(x, own):
    return x + 1, own.method == own.method, own.method != own.method, own.method is own.method


def unite_ordered(x, d):
    return x + 1, type({"k": 1} | d).__name__, type(d | {"k": 1}).__name__, {"k": 1} | d


def show_deque(x, q):
    return x + 1, repr(q), f"{q}", str(collections.deque([1])), repr([q])


# -- attributes ------------------------------------------------------------------------------------
def delete_and_set(x, own):
    del own.y
    own.y = 5
    return x + 1, list(own.__dict__), own.y


def pop_and_set(x, own):
    own.__dict__.pop("y")
    own.y = 5
    return x + 1, list(vars(own))


def uncover_shared(x, own):
    own.shared = 9
    before = own.shared
    del own.shared
    return x + 1, before, own.shared


def empty_slot(x, own):
    del own.first
    return x + 1, hasattr(own, "first")


def fill_and_empty_slot(x, own):
    own.second = 3
    del own.second
    return x + 1, hasattr(own, "second")


def hide_in_dict(x, own):
    own.__dict__["watched"] = 4
    return x + own.watched


# -- modules ---------------------------------------------------------------------------------------
def no_bias(x, m):
    m.bias = None
    return x + 1, len(list(m.parameters()))


def no_buffer(x, m):
    m.register_buffer("held", x)
    m.held = None
    return x + 1, len(list(m.buffers()))


def no_child(x, m):
    m[1] = None
    return x + 1, [name for name, _ in m.named_children()]


def new_weight(x, m):
    del m.weight
    m.weight = nn.Parameter(x)
    return x * 2, [name for name, _ in m.named_parameters()]


# -- what was an internal error --------------------------------------------------------------------
def cached_inside(x):
    @functools.cache
    def plus_one(k):
        return k + 1

    return x * plus_one(6)


def move_what_is_not_there(x, d):
    try:
        d.move_to_end("zz")
    except (KeyError, AttributeError):
        return x - 1
    return x + 1


def mapping_of_a_view(x, d):
    return x + d.keys().mapping["a"]


def type_of_a_method(x):
    return x + 1, type([].append).__name__


def write_an_array(x):
    x = x.clone()
    x[:] = np.ones(3)
    return x + 1


def _ordered() -> Any:
    return collections.OrderedDict(a=1, b=2)


def _sequence() -> Any:
    return nn.Sequential(nn.ReLU(), nn.Tanh())


# fmt: off
CASES: tuple[tuple[Callable[..., Any], Callable[[], Any] | None], ...] = (
    (grow_dict, lambda: {"a": 1}), (grow_by_values, lambda: {"a": 1}),
    (grow_by_items, lambda: {"a": 1}), (grow_and_catch, lambda: {"a": 1}), (grow_own_dict, None),
    (shrink_set, lambda: {1, 2}), (pop_ordered, _ordered),
    (change_values, lambda: {"a": 1, "b": 2}),
    (grow_deque, lambda: collections.deque([1, 2])), (grow_list, lambda: [1, 2]),
    (stay_exhausted, lambda: [1, 2]), (compare_ordered, None), (compare_counters, None),
    (unite_ordered, _ordered), (show_deque, lambda: collections.deque([1], 3)),
    (compare_views, None), (compare_methods, Own), (delete_and_set, Own), (pop_and_set, Own),
    (uncover_shared, Own), (empty_slot, Slotted), (fill_and_empty_slot, Slotted),
    (hide_in_dict, Own), (no_bias, lambda: nn.Linear(3, 3)), (no_buffer, lambda: nn.Linear(3, 3)),
    (no_child, _sequence), (new_weight, lambda: nn.Linear(3, 3)), (cached_inside, None),
    (move_what_is_not_there, _ordered), (mapping_of_a_view, lambda: {"a": 1}),
    (type_of_a_method, None), (write_an_array, None),
)
# fmt: on


def _state(obj: Any) -> Any:
    if isinstance(obj, Slotted):
        return [getattr(obj, name, None) for name in obj.__slots__]
    if isinstance(obj, nn.Module):
        return [[n for n, _ in named()] for named in (obj.named_parameters, obj.named_children)]
    return list(vars(obj).items()) if isinstance(obj, Own) else repr(obj)


def _outcome(function: Any, make: Callable[[], Any] | None) -> Any:
    given = [make()] if make is not None else []
    try:
        found = repr(function(torch.arange(3.0), *given))
    except Exception as error:
        found = (type(error), str(error))
    return found, [_state(one) for one in given]


@pytest.mark.sample(16)
@pytest.mark.parametrize(("program", "make"), CASES, ids=lambda part: part and part.__name__)
def test_program(program, make):
    compiled = tc.compile(program, backend="eager")
    for _ in range(2):
        assert _outcome(compiled, make) == _outcome(program, make)


@pytest.mark.parametrize("first", [{"b": 2}, collections.defaultdict(int, b=2)])
def test_explaining_a_refusal_leaves_default_dicts_as_they_are(first):
    compiled = tc.compile(lambda x, d: x + 1 if d.get("b") == 2 else x, backend="eager")
    given = collections.defaultdict(int, a=3)
    compiled(torch.ones(2), first)
    assert torch.equal(compiled(torch.ones(2), given), torch.ones(2))
    assert given == {"a": 3}


# -- a list that its own sort's key function looks at ------------------------------------------
def sorted_by_what_appends(x, numbers):
    try:
        numbers.sort(key=lambda n: numbers.append(n) or -n)
    except ValueError as error:
        return x + 1, str(error)
    return x + 2, None


def sorted_by_what_measures(x, numbers):
    seen = []
    numbers.sort(key=lambda n: (seen.append(len(numbers)), -n)[1])
    return x + 1, seen


def sorted_by_what_raises(x, numbers):
    try:
        numbers.sort(key=lambda n: 1 / (n - 2))
    except ZeroDivisionError:
        return x + 1, None
    return x + 2, None


@pytest.mark.parametrize(
    "fn", [sorted_by_what_appends, sorted_by_what_measures, sorted_by_what_raises]
)
def test_a_list_is_empty_while_it_is_sorted(fn):
    mine, theirs, x = [3, 1, 2], [3, 1, 2], torch.ones(2)
    got, expected = tc.compile(fn, backend="eager")(x, mine), fn(x, theirs)
    torch.testing.assert_close(got[0], expected[0])
    assert got[1] == expected[1]
    assert mine == theirs


def another_factory(x, given):
    made = collections.defaultdict(lambda: [0])
    made["a"].append(1)
    made.default_factory = dict
    made["b"]["k"] = 2
    made.default_factory = None
    try:
        made["z"]
    except KeyError as error:
        return x + 1, made, repr(error), made.default_factory


def another_factory_of_an_input(x, given):
    given.default_factory = dict if given.default_factory is list else list
    return x + 1, given["new"], given


@pytest.mark.parametrize("fn", [another_factory, another_factory_of_an_input])
def test_the_factory_of_a_defaultdict_can_be_replaced(fn):
    mine, theirs, x = collections.defaultdict(list), collections.defaultdict(list), torch.ones(2)
    compiled = tc.compile(fn, backend="eager", fullgraph=fn is another_factory)
    for _ in range(3):
        assert compiled(x, mine)[1:] == fn(x, theirs)[1:]
        assert mine.default_factory is theirs.default_factory
        mine.clear()
        theirs.clear()
