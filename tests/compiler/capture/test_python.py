"""Python as people write it, captured whole: compiled programs do what eager ones do.

PYTEST_DONT_REWRITE: the assert statements in the programs are Python's own.
"""

# ruff: noqa: C416, E501, PLW0603, RUF015, SIM905, UP031, UP032
# (the programs are written as people write them)
from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import math
import operator
from typing import Any, NamedTuple

import pytest
import torch
from capture_harness import Programs, check, two_tensors

import tc

program = Programs()
counter = 3
table: dict[str, Any] = {"n": 1}


class Pair(NamedTuple):
    a: torch.Tensor
    b: int = 3


@dataclasses.dataclass
class Scale:
    tensor: torch.Tensor
    factor: float = 2.0
    notes: list[str] = dataclasses.field(default_factory=list)

    def scaled(self):
        return self.tensor * self.factor


@dataclasses.dataclass(frozen=True)
class Frozen:
    n: int
    scale: float = 2.0


class Color(enum.Enum):
    RED = 1
    BLUE = 2

    @property
    def pale(self):
        return self.value * 10


class Base:
    shared = 5

    def __init__(self, v):
        self.v = v

    def go(self, t):
        return t + self.v

    @property
    def double(self):
        return self.v * 2

    @double.setter
    def double(self, value):
        self.v = value / 2

    @staticmethod
    def less(t):
        return t - 1

    @classmethod
    def make(cls, v):
        return cls(v)


class Child(Base):
    def go(self, t):
        return super().go(t) * 2

    def __call__(self, t):
        return self.go(t)

    def __getitem__(self, i):
        return self.v + i

    def __add__(self, other):
        return Child(self.v + other.v)

    def __radd__(self, other):
        return Child(self.v + other)

    def __len__(self):
        return 7

    def __eq__(self, other):
        return isinstance(other, Child) and self.v == other.v

    def __contains__(self, item):
        return item == self.v

    def __iter__(self):
        yield self.v
        yield self.v + 1


class Fallback:
    def __getattr__(self, name):
        if name.startswith("has_"):
            return len(name)
        raise AttributeError(name)


class Slotted:
    __slots__ = ("p", "q")

    def __init__(self, p):
        self.p = p


class Typed:
    """A descriptor that converts."""

    def __set_name__(self, owner, name):
        self.key = "_" + name

    def __get__(self, obj, cls=None):
        return self if obj is None else getattr(obj, self.key, 0) + 1

    def __set__(self, obj, value):
        setattr(obj, self.key, value * 2)


class WithDescriptor:
    size = Typed()


instance = Child(3)


def whole(**options):
    return program(graphs=1, breaks=0, **options)


# -- functions -------------------------------------------------------------------------------
@whole()
def closures(x, y):
    def add(a, b=2):
        return a + b * y

    fs = [lambda z, i=i: z * i for i in range(3)]
    return add(x), [f(x) for f in fs]


@whole()
def arguments(x, y):
    def f(a, /, *args, k=1, **kw):
        return a * k + kw["z"] + len(args)

    return f(x, y, k=3, z=y), f(*[x, 1, 2], **{"z": y})


@whole()
def keyword_only_defaults(x, y):
    def f(a, *, scale=2.0, bias=None):
        return a * scale if bias is None else a * scale + bias

    return f(x), f(x, bias=y), f(x, scale=3)


class Bare:
    pass


OUTSIDE = Bare()


@whole()
def attributes_made_and_deleted(x, y):
    box = OUTSIDE
    box.made = x
    del box.made
    box.popped = y
    vars(box).pop("popped")
    return hasattr(box, "made"), hasattr(box, "popped"), x + 1


@whole()
def attributes_of_what_was_replaced(x, y):
    box = Bare()
    box.inner = OUTSIDE
    old, HOLDER.inner = HOLDER.inner, box
    old.late = 5
    HOLDER.inner = old
    return old.late, x + 1


HOLDER = Bare()
HOLDER.inner = Bare()


@whole()
def tensors_against_strings(x, y):
    return x == "a", x != "a", x + 1


@whole()
def nonlocal_counter(x, y):
    n = 0

    def bump(t):
        nonlocal n
        n += 1
        return t * n

    return bump(x), bump(y), n


@whole()
def recursion(x, y):
    def power(t, n):
        return t if n == 0 else power(t, n - 1) * t

    return power(x, 4)


def _decorate(fn):
    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        return fn(*args, **kwargs) + 1

    return wrapper


@_decorate
def decorated(a):
    return a * 2


@whole()
def decorators(x, y):
    return decorated(x), decorated.__name__


@whole()
def partials(x, y):
    f = functools.partial(torch.add, y, alpha=2)
    return f(x), functools.reduce(lambda a, b: a + b, [x, y, x])


@whole()
def returned_closure(x, y):
    total = x + y

    def later(t):
        return t + total

    return later, total


@whole()
def returned_partial(x, y):
    return functools.partial(decorated, x * 2)


@whole()
def conditional_expression(x, y, flag=True, missing=None):
    return (x if flag else y) + 1, x if missing is None else y, missing or y, flag and x


@whole()
def walrus(x, y):
    if (n := x.shape[0]) > 2:
        return x * n
    return y


# -- containers ------------------------------------------------------------------------------
@whole()
def comprehensions(x, y):
    named = {f"k{i}": t * 2 for i, t in enumerate([x, y])}
    return named, [a + b for a, b in zip([x, y], [y, x], strict=True)], {i % 2 for i in range(4)}


@whole()
def lists(x, y):
    items = [x]
    items.append(y)
    items[0] = items[0] + 1
    d = {}
    d["a"] = items
    d.setdefault("b", []).append(x)
    del items[1]
    items += [y, x]
    items.insert(1, 5)
    items.extend(range(2))
    items.reverse()
    return d, items, items.index(items[1]), items[::-1], len(items)


@whole()
def more_lists(x, y):
    a = [3, 1, 2]
    a.sort(key=lambda v: -v)
    b = sorted(a, reverse=True)
    b.pop()
    b.remove(3)
    return a, b, a + b, [0] * 3, a.count(1), 2 in a, x * a[0], [1, 2] < [1, 3], a == [3, 2, 1]


@whole()
def dicts(x, y):
    d = {"a": x, 2: y, (1, 2): 3}
    e = {**d, "z": y * 2}
    e.pop(2)
    e.update(b=1)
    f = dict(zip("ab", (1, 2), strict=True))
    return d, e, f, list(d), list(e.items())[0], "a" in d, d.get("q", 7), f | {"c": 3}, len(e)


@whole()
def dict_order(x, y):
    d = {"a": 1, "b": x + y}
    a = d.pop("a")
    d["a"] = a
    return d, [k for k in d], dict.fromkeys("xy", 0)


@whole()
def defaultdicts(x, y):
    d = collections.defaultdict(list)
    d["q"].append(x * 2)
    od = collections.OrderedDict(a=x)
    od["z"] = y
    od.move_to_end("a")
    return d, od, dict(d), len(od), list(od.items()), list(od)


@whole()
def sets(x, y):
    s = {1, 2}
    s.add(3)
    s.discard(1)
    return s, s | {9}, s & {2}, s - {2}, s ^ {2, 4}, 2 in s, x + len(s), s <= {2, 3, 4}


@whole()
def deques(x, y):
    d = collections.deque([x, y])
    d.appendleft(x + y)
    last = d.pop()
    return d, last, len(d), d[0]


@whole()
def named_tuples(x, y):
    p = Pair(x, b=4)
    q = p._replace(a=y)
    a, b = q
    return p, q.a + p.b, isinstance(p, Pair), p._fields, a * b, q[1], p._asdict()


@whole()
def data_classes(x, y):
    d = Scale(x)
    d.factor = 3.0
    d.notes.append("n")
    return d.scaled(), d.factor, d, dataclasses.is_dataclass(d)


@whole()
def frozen_data_classes(x, y, spec=Frozen(4)):
    return x * spec.n * spec.scale, spec


@whole()
def enums(x, y, c=Color.RED):
    chosen = x + 1 if c is Color.RED else y
    return chosen * c.value, Color.BLUE, c.name, c == Color.BLUE, c.pale, Color(2), Color["RED"]


@whole()
def unpacking(x, y):
    a, *b = (x, y, x + y)
    (c, d), e = (a, b), 5
    *_, last = [1, 2, 3]
    return a, b, c, d, e, last


@whole()
def slices(x, y):
    s = slice(0, 2)
    return x[1:, ::2], x[..., None], x[[0, 2]], x[:, -1], y[s], x[None, 0], [1, 2, 3][s], x[-1][0]


@whole()
def aliased_containers(x, y):
    inner = [x + 1]
    return [inner, inner], {"a": inner}


# -- text and numbers ------------------------------------------------------------------------
@whole()
def text(x, y):
    return (
        f"{x.shape} {x.dtype} {3.14159:.2f} {'q'!r:>5}", "a,b".split(","), "%d %s" % (3, "q"),
        "-".join(["a", "b"]), "abc"[1:], "x".upper() + "y", "{} {k}".format(1, k=2), "b" in "abc",
        x.sin(),
    )  # fmt: skip


@whole()
def numbers(x, y):
    return (
        x * math.pi, math.sqrt(4.0), 7 // 2, 7 % 4, -3 // 2, 2**8, divmod(7, 3), abs(-3), round(2.567, 1),
        max(1, 2), min([3, 1]), sum([1, 2]), int("3"), float("1.5"), 1 < 2 < 3, bin(5), 5 & 3, 5 ^ 1,
        ~5, 1 << 4, pow(2, 3, 5), math.prod([2, 3]), math.floor(2.5), complex(1, 2), bool([]),
    )  # fmt: skip


@whole()
def operators(x, y):
    return (
        operator.add(x, y),
        operator.itemgetter(1)([x, y]) + 1,
        operator.neg(x),
        operator.eq(1, 1),
    )


# -- classes ---------------------------------------------------------------------------------
@whole()
def objects(x, y):
    c = Child.make(5)
    c.w = x
    return (
        c(x), instance.go(y), instance.double, Child.less(x), c[2], (c + instance).v, len(c),
        c == instance, c.w, hasattr(c, "nope"), getattr(c, "zz", 4), 5 in c, list(c), (1 + c).v,
        isinstance(c, Base), type(c) is Child, issubclass(Child, Base), c.shared, Child.shared, c,
    )  # fmt: skip


@whole()
def properties_set(x, y):
    c = Child(1)
    c.double = 10
    c.other = x
    del c.other
    return c.v, c.double, hasattr(c, "other"), x + c.v


@whole()
def getattr_fallback(x, y, o=Fallback()):  # noqa: B008
    return x + o.has_it, hasattr(o, "q"), getattr(o, "z", 1)


@whole()
def slots(x, y):
    s = Slotted(x)
    s.q = y
    return s.p + s.q, hasattr(s, "r")


@whole()
def descriptors(x, y):
    w = WithDescriptor()
    w.size = 4
    return x * w.size, w.__dict__ if False else w._size


@whole()
def bound_methods(x, y):
    f = instance.go
    return f(x), f.__self__ is instance, [f][0](y), f.__name__


@whole()
def super_in_class_method(x, y):
    class_of = type(instance)
    return class_of.make(2).go(x), super(Child, instance).go(y)


@whole(make=lambda: (*two_tensors(), Base(3), [1], {"k": 1}, {1}))
def mutate_arguments(x, y, obj, items, named, plain):
    obj.v += 1
    obj.new = x * 2
    items.append(y + 1)
    items[0] = obj.v
    named["z"] = items
    named.pop("k")
    plain.add(5)
    return x + obj.v


@whole(make=lambda: (*two_tensors(), [[1, 2], [3]]))
def mutate_nested(x, y, rows):
    rows[0].append(x + 1)
    rows[1], rows[0] = rows[0], rows[1]
    return rows[0], rows


@whole(make=lambda: (lambda a, b, c: (a, b, c, c))(*two_tensors(), [1]))
def one_list_twice(x, y, p, q):
    p.append(x + 1)
    return q, len(q), p is q


@whole(make=lambda: (*two_tensors(), Child(2)))
def object_in_and_out(x, y, obj):
    return obj, obj.go(x), [obj]


@whole(watched=("counter", "table"))
def globals_changed(x, y):
    global counter
    counter = counter + 1
    table["n"] += 1
    table[f"t{counter}"] = x + 1
    return x * counter


@whole()
def captured_state(x, y):
    state = {"calls": 0}

    def f(t):
        state["calls"] += 1
        return t + state["calls"]

    f(x)
    return f(y), state, f


@pytest.mark.sample(12)
@pytest.mark.parametrize("case", program, ids=lambda case: case.name)
def test_program(case):
    check(case)


def test_an_object_keeps_its_changes_when_its_name_gets_another():
    def replaced(x, holder):
        old = holder.inner
        holder.inner = Bare()
        old.late = 5
        return x + 1

    def rebound(x, holder):
        holder.late = 6
        holder = Bare()
        print(end="")
        return [holder for _ in range(2)], (lambda: holder)(), x + 1

    tc.reset()
    holder, inner = Bare(), Bare()
    holder.inner = inner
    tc.compile(replaced, backend="eager")(torch.ones(1), holder)
    assert vars(inner) == {"late": 5} and vars(holder.inner) == {}
    tc.compile(rebound, backend="eager")(torch.ones(1), inner)
    assert vars(inner) == {"late": 6}
