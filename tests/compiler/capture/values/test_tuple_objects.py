"""Subclasses of named tuples: their ``__new__``, ``__init__``, attributes and methods."""

from __future__ import annotations

import collections
import copy
from typing import Any, NamedTuple

import pytest
import torch

import tc


class Typed(NamedTuple):
    """A typed named tuple."""

    x: torch.Tensor
    n: int = 3

    def total(self):
        return self.x.sum() + self.n

    @property
    def double(self):
        return self.x * 2


class TypedChild(Typed):
    """Its `__new__` sets an attribute."""

    def __new__(cls, x, n):
        made = super().__new__(cls, x, n + 1)
        made.extra = n
        return made


Base = collections.namedtuple("Base", "x n", defaults=[4])


class Child(Base):
    """Calls `super` with arguments."""

    def __new__(cls, x, n=1):
        made = super(Child, cls).__new__(cls, x, n * 2)  # noqa: UP008
        made.extra = n
        return made


class Slotted(Base):
    """Has no `__dict__`."""

    __slots__ = ()

    def __new__(cls, x, n=1):
        return super().__new__(cls, x, n * 2)


class Initialised(Base):
    """Sets its attributes in `__init__`."""

    def __init__(self, x, n=7):
        self.seen = (n,)
        self.y = x + 1

    @property
    def first(self):
        return self.seen[0]

    def grow(self):
        self.k = getattr(self, "k", 0) + 1
        return self.k


class Answering(Base):
    """Has `__getattr__`, and overrides a generated method."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return name

    def _replace(self, **changes):
        return "its own"


class Bare(Base):
    """Adds nothing but a `__dict__`."""


class Equal(Base):
    """Has equality and a hash of its own."""

    def __eq__(self, other):
        return True

    def __hash__(self):
        return 1


class Setting(Base):
    """Has `__setattr__`."""

    def __new__(cls, *args, **kwargs):
        return Base.__new__(cls, *args, **kwargs)

    def __init__(self, *args, **kwargs):
        self.count = len(args)

    def __setattr__(self, name, value):
        super().__setattr__(name, (value, "set"))


class Pair(tuple):
    """A plain subclass of tuple, which makes its items and has methods."""

    def __new__(cls, first):
        return super().__new__(cls, (first, 2))

    def __init__(self, first):
        self.count = len(self)

    def rest(self):
        return self[1:], self.index(2), self * 2, 2 in self, [*self]


class Slots(tuple):
    """A plain subclass of tuple that has neither a `__dict__` nor a `__new__`."""

    __slots__ = ()

    def last(self):
        return self[-1]


class Odd(tuple):
    """Overrides all that Python asks of a tuple."""

    def __len__(self):
        return 7

    def __iter__(self):
        return iter((9, 8))

    def __contains__(self, item):
        return item == "z"

    def __eq__(self, other):
        return "equal"

    def __add__(self, other):
        return "sum"

    def __getitem__(self, key):
        return "item", key

    def __hash__(self):
        return 5

    def __bool__(self):
        return False


def plain_pairs(x):
    c = Pair(3)
    return c, c.count, c.rest(), c.last() if hasattr(c, "last") else x


def plain_slots(x):
    c = Slots((x, x + 1))
    return c, c.last(), c == Slots(c), len(c), Slots()


def of_odd(x, c):
    asked = len(c), list(c), "z" in c, c == 3, c + 1, c[0], bool(c), hash(c)
    return x + 1, asked, tuple.__len__(c), tuple.__getitem__(c, 0)


def odd(x):
    return of_odd(x, Odd((1, 2)))


def typed(x):
    c = TypedChild(x, 2)
    return c, c.extra, c.n, c.total(), c.double


def replaced(x):
    c = Child(x, n=5)
    d = c._replace(n=7)
    return c, d, hasattr(d, "extra"), c._asdict(), Child._make([x, 3])


def slotted(x):
    c = Slotted(x, 5)
    return c, hasattr(c, "__dict__"), c._replace(x=x + 1)


def initialised(x):
    c = Initialised(x, 2)
    return c, c.seen, c.first, c.y, c.grow(), c.grow(), c.k


def broken(x):
    c = Initialised(x)
    print(end="")
    return c, c.seen, c.y


def answering(x):
    c = Answering(x)
    return c, c.anything, c.n, c._replace(n=1)


def stored(x):
    c = Bare(x)
    c.z, c.w = 1, x * 2
    del c.z
    return c, hasattr(c, "z"), c.w, vars(c), sorted(c.__dict__)


def set_by_the_class(x):
    c = Setting(x, n=3)
    return c, c.count


def nested(x):
    c, d = Bare(x), Bare(x)
    c.held, d.c = [c.x], c
    return d, d.c.held[0] + 1, d.c is c


def compared(x):
    found = Equal(1, 2) == Equal(2, 3), {Equal(1, 2): 1}.get(Equal(3, 4))
    same = Child(1, 2) == Child(1, 2), Child(1, 2) == (1, 4), Child(1, 2) == (1, 4)
    other = Child(1, 2) != Child(1, 3), Child(1, 2) < Child(1, 3), {Child(1, 2): 1}.get((1, 4))
    return x + 1, found, same, other, hash(Child(1, 2)) == hash((1, 4))


def as_a_tuple(x):
    c = Child(x)
    a, b = c
    kinds = isinstance(c, tuple), isinstance(c, Base), type(c) is Child, c._fields
    return a + b, [*c], (*c, 1), c * 2, 1 in Child(1, 2), Child(1, 2).index(4), c[:1], kinds


def copied(x):
    return copy.copy(Child(x, 2)), repr(Child(1, 2)), str(Initialised(1, 2))


def _error(function):
    try:
        function()
    except (AttributeError, TypeError, ValueError) as error:
        return type(error).__name__, str(error)
    return None


def refused(x):
    calls = (
        lambda: TypedChild(x), Base, lambda: Base(x, 1, 2), lambda: Base(x, q=2),
        lambda: Base(x)._replace(q=2), lambda: setattr(Bare(x), "n", 1),
        lambda: setattr(Base(x), "other", 1), lambda: Bare(x).nothing, lambda: Base(x).mro,
    )  # fmt: skip
    return x + 1, [_error(call) for call in calls]


PROGRAMS = (
    typed, replaced, slotted, initialised, broken, answering, stored, set_by_the_class, nested,
    compared, as_a_tuple, copied, refused, plain_pairs, plain_slots, odd,
)  # fmt: skip


def _shown(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, dict):
        return {key: _shown(held) for key, held in value.items()}
    if isinstance(value, tuple | list):
        attributes = getattr(value, "__dict__", None)
        return type(value).__name__, [_shown(item) for item in value], _shown(attributes)
    return value


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_a_tuple_of_ones_own_class_is_that_of_eager(program):
    compiled = tc.compile(program, backend="eager")
    for _ in range(2):
        assert _shown(compiled(torch.ones(2))) == _shown(program(torch.ones(2)))


def read(x, c):
    return x + c.x, c.extra, c.n, getattr(c, "late", None), c._replace(n=9), c


def written(x, c):
    c.hits = getattr(c, "hits", 0) + 1
    return x * c.hits


@pytest.mark.parametrize("program", [read, written], ids=lambda program: program.__name__)
def test_attributes_of_an_input_are_read_at_each_call(program):
    compiled, x = tc.compile(program, backend="eager"), torch.ones(2)
    one, other = Child(x, 3), Child(x, 3)
    for name in ("unused", "extra", "late", "hits", "n"):
        found, wanted = compiled(x, one), program(x, other)
        assert _shown((found, one)) == _shown((wanted, other))
        if name != "n":
            setattr(one, name, 17)
            setattr(other, name, 17)


@pytest.mark.parametrize("program", [typed, plain_pairs, plain_slots, odd])
def test_making_one_does_not_break_the_graph(program):
    compiled = tc.compile(program, backend="eager", fullgraph=True)
    assert _shown(compiled(torch.ones(2))) == _shown(program(torch.ones(2)))


def test_a_plain_subclass_is_read_as_an_input_without_a_break():
    def last(x, c):
        return x + c.last()

    compiled, x = tc.compile(last, backend="eager", fullgraph=True), torch.ones(2)
    for items in ((1, 2), (3, 4, x), (5,)):
        torch.testing.assert_close(compiled(x, Slots(items)), last(x, Slots(items)))
    asked = tc.compile(of_odd, backend="eager", fullgraph=True)
    for items in ((1, 2), (3, 4, 5)):
        assert asked(x, Odd(items))[1:] == of_odd(x, Odd(items))[1:]


# -- named tuples of C: results of torch -----------------------------------------------------
#: an operation -> what it returns of a matrix
RESULTS: dict[str, Any] = {
    "max": lambda x: x.max(1),
    "topk": lambda x: x.topk(2),
    "qr": torch.linalg.qr,
    "slogdet": lambda x: torch.linalg.slogdet(x @ x.mT),
    "lstsq": lambda x: torch.linalg.lstsq(x, x),
}
USES: dict[str, Any] = {
    "fields": lambda r: [getattr(r, name) * 2 for name in type(r).__match_args__],
    "index": lambda r: (r[0] * 2, r[-1] + 1),
    "part": lambda r: r[:1][0] * 2,
    "unpacking": lambda r: (lambda first, *rest: (first * 2, len(rest)))(*r),
    "iteration": lambda r: [one + 1 for one in r],
    "length": lambda r: r[0] * len(r),
    "class": lambda r: (r[0] * isinstance(r, tuple), len(type(r).__name__)),
    "tree": lambda r: torch.utils._pytree.tree_map(lambda one: one + 1, r),
    "itself": lambda r: (r, r[0] + 1),
    "a break": lambda r: (_broken(r[0]), r[0] + r[1].sum()),
}


def _broken(x):
    tc.graph_break()
    return x + 1


@pytest.mark.sample(10)
@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("operation", RESULTS)
def test_results_of_torch_are_read_as_in_eager(operation, use):
    whole = use != "a break"
    make, program = RESULTS[operation], USES[use]
    compiled = tc.compile(program, backend="eager", fullgraph=whole)
    held = tc.compile(lambda d: program(d["a"][0]), backend="eager", fullgraph=whole)
    for n in (3, 4, 5):
        given = make(torch.randn(n, 3))
        expected = program(given)
        for result in (compiled(given), held({"a": [given]})):
            assert type(result) is type(expected)
            torch.testing.assert_close(result, expected)


def test_results_of_torch_live_across_breaks_without_another():
    def program(x):
        found = x.max(1)
        tc.graph_break()
        return found.values * 2 + found[1] + found.indices

    tc.reset()
    tc.counters.clear()
    compiled = tc.compile(program, backend="eager")
    for n in (3, 4, 5):
        x = torch.randn(n, 3)
        torch.testing.assert_close(compiled(x), program(x))
    assert tc.counters["graph_break"] == {"graph_break() was called": 2}  # fixed sizes, then not


@pytest.mark.parametrize("names", [("__iter__",), ("__iter__", "__getitem__"), ("__len__",)])
def test_items_of_an_input_are_read_past_its_own_methods(names):
    replaced = {
        "__iter__": lambda self: iter((7, 8)),
        "__getitem__": lambda self, index: 9,
        "__len__": lambda self: 5,
    }
    cls = type("Replaced", (tuple,), {name: replaced[name] for name in names})

    def read(x, c):
        return x * c[0], list(c), 2 in c, c == (1, 2, 3), len(c), list(tuple.__iter__(c)), hash(c)

    found = tc.compile(read, backend="eager")(torch.ones(2), cls((1, 2, 3)))
    assert _shown(found) == _shown(read(torch.ones(2), cls((1, 2, 3))))


def test_results_of_torch_have_no_fields_of_a_namedtuple():
    def program(x):
        found, sizes = x.max(1), x.shape
        named = [hasattr(one, "_fields") for one in (found, sizes, torch.return_types.max)]
        return found.values * 2, named, found.n_fields, hasattr(found, "_replace")

    compiled, x = tc.compile(program, backend="eager", fullgraph=True), torch.ones(2, 3)
    assert _shown(compiled(x)) == _shown(program(x))
