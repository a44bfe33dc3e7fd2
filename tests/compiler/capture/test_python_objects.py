"""Iterators, sets, enums, named tuples, descriptors and reflection, captured whole."""

# ruff: noqa: C417, E731, UP045
# (the programs are written as people write them)
from __future__ import annotations

import collections
import datetime
import enum
import functools
import inspect
import itertools
import types
import typing
from typing import Any, NamedTuple, TypeVar

import pytest
import torch
from capture_harness import Programs, check, two_tensors

import tc

T = TypeVar("T")
program = Programs()
whole = functools.partial(program, graphs=1, breaks=0)
FUNCTIONS = frozenset([torch.add, int])
TYPES = {torch.Tensor, list}


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2

    def shifted(self, x):
        return self == Level.LOW, x + 1

    @property
    def half(self):
        return self.value / 2

    @classmethod
    def highest(cls):
        return cls.HIGH


class Window(NamedTuple):
    a: torch.Tensor
    b: torch.Tensor

    def __getitem__(self, index):
        return Window(tuple.__getitem__(self, 0)[index], self.b[index])

    def total(self):
        return self.a + self.b


class Described:
    x = 4

    def __init__(self):
        self.q = 3

    @property
    def doubled(self):
        return self.q * 2


class Box(typing.Generic[T]):
    def __init__(self, held):
        self.held = held


class Root:
    scale = 4

    def add(self, x):
        return x + 10


class Leaf(Root):
    def add(self, x):
        return super().scale * x + super().add(x)


# -- iterators -------------------------------------------------------------------------------
@whole()
def itertools_of_all_kinds(x, y):
    below = lambda v: v < 3
    return (
        list(itertools.compress([x, y, x + y], [1, 0, 1])),
        list(itertools.takewhile(below, [1, 2, 3, 1])),
        list(itertools.dropwhile(below, [1, 2, 3, 1])),
        list(itertools.starmap(lambda a, b: a + b, [(x, 1), (y, 2)])),
        list(itertools.filterfalse(lambda v: v % 2, range(5))),
        list(itertools.islice(itertools.cycle(iter([1, x])), 5)),
        list(itertools.islice(range(10), 1, 9, 3)),
        [v for v, _ in zip(itertools.count(2, 3), range(3), strict=False)],
        list(itertools.chain.from_iterable([[x, y], [1, 2]])),
        list(itertools.repeat(y, 2)),
        list(iter([3, 1, 2].pop, 1)),
    )


@whole()
def cycle_of_endless(x, y):
    for iterator in (iter([]), iter([10, 11.0]), itertools.repeat(-1, 3), itertools.count(10)):
        for index, item in enumerate(itertools.cycle(iterator)):
            x = x + item
            if index > 5:
                break
    return x


RETURNED: list[typing.Callable[[torch.Tensor], Any]] = [
    lambda x: (zip([1, 2, 3], map(lambda v: v + 1, [1, 2, 3]), strict=True), x + 1),
    lambda x: (filter(None, [0, 1, 2]), x + 1),
    lambda x: (stepped(enumerate([5, 6, 7], 3), 1), x + 1),
    lambda x: (stepped(itertools.count(2, 3), 2), x + 1),
    lambda x: (itertools.repeat(7), x + 1),
    lambda x: (stepped(itertools.repeat(7, 4), 1), x + 1),
    lambda x: (stepped(itertools.cycle([1, 2, 3]), 5), x + 1),
    lambda x: (stepped(itertools.chain([1], [2, 3], [4]), 2), x + 1),
    lambda x: (stepped(itertools.islice(range(20), 1, 12, 4), 1), x + 1),
    lambda x: (stepped(itertools.compress("abcd", [1, 0, 1, 1]), 1), x + 1),
    lambda x: (itertools.starmap(max, [(1, 2), (4, 3)]), x + 1),
    lambda x: (stepped(iter(range(5)), 2), x + 1),
    lambda x: (stepped(iter([4, 5, 6]), 1), x + 1),
    lambda x: (stepped(iter("abc"), 1), x + 1),
]


def stepped(iterator, count):
    for _ in range(count):
        next(iterator)
    return iterator


@pytest.mark.parametrize("number", range(len(RETURNED)))
def test_iterators_come_back_as_their_own_kind(number):
    fn = RETURNED[number]
    expected, _ = fn(torch.ones(2))
    found, _ = tc.compile(fn, backend="eager", fullgraph=True)(torch.ones(2))
    assert type(found) is type(expected)
    assert list(itertools.islice(found, 6)) == list(itertools.islice(expected, 6))


@pytest.mark.parametrize("kind", [range, lambda *a: list(range(*a)), lambda *a: tuple(range(*a))])
def test_iterators_that_come_in_step_on(kind):
    fn = tc.compile(lambda x, it: x + next(it), backend="eager", fullgraph=True)
    iterator = iter(kind(1, 5))
    assert fn(torch.zeros(1), iterator).item() == 1
    assert fn(torch.zeros(1), iterator).item() == 2
    assert list(iterator) == [3, 4]


def test_map_is_lazy_after_the_graph():
    calls = []

    def fn(x):
        return map(calls.append, [1, 2]), x + 1

    items, _ = tc.compile(fn, backend="eager", fullgraph=True)(torch.ones(2))
    assert calls == []
    list(items)
    assert calls == [1, 2]


# -- sets, enums, numbers --------------------------------------------------------------------
@whole()
def sets(x, y):
    s = {x.shape[0], 5, 6}
    s &= {5, 6, 7}
    s.intersection_update({5, 9})
    s.symmetric_difference_update([1])
    some = frozenset([x.dim(), 9])
    return x + len(s), some.issuperset([9]), 3 in some, some | {1}, sorted(s), x in {x, y}


@whole()
def frozen_sets_refuse_changes(x, y):
    try:
        frozenset([1]).add(2)
    except AttributeError as error:
        return x + 1, str(error)
    return x


@whole()
def sets_of_functions(x, y):
    found = torch.add in FUNCTIONS, torch.mul in FUNCTIONS, list in TYPES, len(TYPES)
    return torch.add(x, y) if found[0] else x, found


@whole(make=lambda: (*two_tensors(), Level.LOW))
def enum_methods(x, y, level):
    low, moved = level.shifted(x)
    return moved + 2 * level.half if low else moved, Level.highest(), Level(2).shifted(y)[0]


@whole()
def number_methods(x, y):
    n, f, c = x.shape[0], 2.5, 3 - 4j
    return x + n.bit_length(), f.is_integer(), f.hex(), f.as_integer_ratio(), c.conjugate()


@whole()
def python_types_as_dtypes(x, y):
    return x.to(bool).to(float).to(int) + 8, torch.zeros(2, dtype=float)


@whole()
def extremes_of_tensors(x, y):
    a, b = x.sum(), y.sum()
    clamped = min(max(a, 0.0), 1.0)
    return max(a, b) - min(a, b) + clamped, max(map(lambda v: v.sum(), [x, y]))


@whole()
def wrong_arguments_of_builtins(x, y):
    caught = []
    for attempt in (
        lambda: isinstance(x, torch.Tensor, invalid=True),
        lambda: len(),
        lambda: setattr(x, "a"),
    ):
        try:
            attempt()
        except TypeError:
            caught.append(1)
    return x + len(caught)


# -- classes and functions -------------------------------------------------------------------
@whole(make=lambda: (Window(*two_tensors()),))
def named_tuple_with_own_getitem(t):
    return t.a + 1, t[0:2].b, t.total()


@whole()
def fromkeys(x, y):
    made = dict.fromkeys(["a", "b"])
    table = collections.OrderedDict.fromkeys(tuple(made), value=x)
    return table["a"] + y, collections.defaultdict.fromkeys(iter(made))


@whole()
def class_dictionaries(x, y):
    own = Described.__dict__
    doubled = own["doubled"].fget(Described()), Described.doubled.__get__(Described())
    return (x + 1 if "x" in own else x), doubled, "z" in own


@whole(make=lambda: (*two_tensors(), torch.Tensor.shape))
def slots_as_objects(x, y, slot):
    return slot.__get__(x), x + 1


@whole()
def annotations(x, y):
    def total(t: torch.Tensor) -> torch.Tensor:
        return t.sum()

    def applied(f: typing.Callable[[T], T], t: T, rest: list[Described] = None) -> T:  # noqa: RUF013
        return f(t)

    kinds = isinstance(3, int | str), typing.Optional[int], list[int]
    return applied(total, x), Box[int](y).held + 1, kinds


@whole()
def wrapped_functions(x, y):
    def add(a, b: int):
        """Add."""
        return a + b

    @functools.wraps(add)
    def wrapper(a, b):
        return add(a, b)

    wrapper.flag = 3
    seen = wrapper.__name__, wrapper.__doc__, wrapper.__dict__["flag"], wrapper.__wrapped__ is add
    return wrapper(x, y), seen, list(wrapper.__annotations__), wrapper.__defaults__


@whole()
def decorated_inside(x, y):
    @torch.no_grad()
    def scaled(t: torch.Tensor) -> torch.Tensor:
        return (t + 1) * 2

    return scaled(x)


@whole()
def signatures(x, y):
    def inner(a, b: int = 2, *rest, c=10, **named):
        pass

    signature = inspect.signature(inner)
    bound = signature.bind(1, 2, 3, e=15)
    bound.arguments["b"] = 13
    bound.apply_defaults()
    plain = signature.parameters["a"].default is inspect.Parameter.empty
    return x + (1 if plain else 2), bound.args, bound.kwargs, list(signature.parameters)


SETTINGS = types.SimpleNamespace(scale=2, loss=lambda x: x.sum())


def test_simple_namespaces():
    def function(x, given):
        made = types.SimpleNamespace(m=3, x=x + 1)
        made.m += given.scale
        del made.x
        same = given == types.SimpleNamespace(**vars(given)), made != given, made == made
        given.calls = getattr(given, "calls", 0) + 1
        return made, same, given.loss(x) * made.m, isinstance(made, types.SimpleNamespace)

    compiled = tc.compile(function, backend="eager", fullgraph=True)
    for _ in range(2):
        actual, theirs = (types.SimpleNamespace(**vars(SETTINGS)) for _ in range(2))
        for scale in (2, 3):
            actual.scale = theirs.scale = scale
            got, want = compiled(torch.ones(2), actual), function(torch.ones(2), theirs)
            assert str(got) == str(want) and actual == theirs and type(got[0]) is type(want[0])


class Day(datetime.date):
    """Compares in C."""


def test_objects_whose_classes_compare_in_c():
    given = [Day(2020, 1, 1), Day(2020, 1, 1), Day(2021, 1, 1)]

    def function(x, a, b, c):
        return x + 1, a == b, a != b, a == c, a in (b, c), a is b

    assert tc.compile(function, backend="eager")(torch.ones(1), *given)[1:] == (
        True, False, False, True, False,
    )  # fmt: skip


def test_named_tuple_classes_made_inside():
    def fn(x, y):
        Both = collections.namedtuple("Both", ["x", "y", "z"], defaults=(None,))
        both = Both(x, y=y)
        return Both(both.x, both[1] + both.y, both.z)

    found = tc.compile(fn, backend="eager", fullgraph=True)(*two_tensors())
    expected = fn(*two_tensors())
    assert found._fields == expected._fields
    assert type(found).__module__ == __name__
    assert torch.equal(found.y, expected.y)


def test_class_attributes_found_by_super_are_guarded(monkeypatch):
    fn = tc.compile(lambda x, o: o.add(x), backend="eager", fullgraph=True)
    assert fn(torch.ones(1), Leaf()).item() == 15
    monkeypatch.setattr(Root, "scale", 5)
    assert fn(torch.ones(1), Leaf()).item() == 16


def test_sets_of_functions_are_guarded():
    fn = tc.compile(lambda x, s: x + (torch.add in s), backend="eager", fullgraph=True)
    changing = {torch.mul}
    assert fn(torch.ones(1), changing).item() == 1
    changing.add(torch.add)
    assert fn(torch.ones(1), changing).item() == 2


def test_code_without_tensor_operations_is_looked_at_again():
    graphs = []

    def backend(module, inputs):
        graphs.append(module)
        return module.forward

    fn = tc.compile(lambda x, n: x * 2 if n.bit_length() else x, backend=backend)
    assert fn(torch.ones(1), 0).item() == 1
    assert fn(torch.ones(1), 1).item() == 2
    assert len(graphs) == 1


def test_bodies_of_classes_are_left_to_python():
    def fn(x):
        class Local:
            n = 2

        return x * Local.n

    assert tc.compile(fn, backend="eager")(torch.ones(1)).item() == 2


def test_generators_that_are_returned_run_ahead():
    def running(items):
        total = 0
        for item in items:
            total = total + item
            yield total

    def fn(items):
        return running(items)

    items = [torch.ones(1), torch.ones(1)]
    found = tc.compile(fn, backend="eager")(items)
    assert [t.item() for t in found] == [1, 2]


def test_bound_methods_of_what_the_graph_makes_come_back():
    def fn(x):
        made = [x + 1]
        return made.append, made, x.numpy().tolist

    append, made, listed = tc.compile(fn, backend="eager")(torch.ones(1))
    append(2)
    assert made[1:] == [2]
    assert listed() == [1.0]


def test_mapping_proxies_are_read_only():
    def fn(x, view):
        try:
            view["a"] = 2
        except TypeError:
            return x + view["a"]
        return x

    view = types.MappingProxyType({"a": 1})
    assert tc.compile(fn, backend="eager", fullgraph=True)(torch.ones(1), view).item() == 2


@pytest.mark.sample(5)
@pytest.mark.parametrize("case", program, ids=lambda case: case.name)
def test_program(case):
    check(case)
