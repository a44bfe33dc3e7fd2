"""Python as people write it, captured whole: compiled programs do what eager ones do.

PYTEST_DONT_REWRITE: the assert statements in the programs are Python's own.
"""

from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import itertools
import math
import operator
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from capture_harness import Programs, check, two_tensors

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


class Ctx:
    def __init__(self, log):
        self.log = log

    def __enter__(self):
        self.log.append("in")
        return self

    def __exit__(self, *exc):
        self.log.append(exc[0].__name__ if exc[0] else "out")
        return exc[0] is KeyError


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
def frozen_data_classes(x, y, spec=Frozen(4)):  # noqa: B008
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


# -- control flow ----------------------------------------------------------------------------
@whole()
def loops(x, y):
    i = 0
    while i < 3:
        x = x + i
        i += 1
        if i == 2:
            continue
        y = y * 2
    else:
        y = y + 1
    for k in range(10):
        if k == 2:
            break
        x = x - k
    return x, y, i, k


@whole()
def iterators(x, y):
    it = iter([x, y, x])
    a = next(it)
    return (
        a, list(it), list(itertools.chain([1], [2])), list(itertools.product([1, 2], [3])),
        list(map(lambda t: t + 1, [x, y])), any([False, True]), all([]),
        list(itertools.islice(itertools.count(5), 2)), list(zip([1], [x], strict=False)),
        list(filter(None, [0, 1])), list(reversed([1, 2])), next(iter([]), "none"),
        list(itertools.accumulate([1, 2, 3])), list(enumerate("ab", 1)),
        list(itertools.zip_longest([1, 2], [x])),
    )  # fmt: skip


@whole()
def generators(x, y):
    def powers(n):
        for i in range(n):
            yield x * i

    return sum(powers(3)), list(powers(2)), sum(t * 2 for t in [x, y])


@whole()
def generator_send(x, y):
    def collect():
        total = x
        while True:
            got = yield total
            if got is None:
                return
            total = total + got

    g = collect()
    first = next(g)
    return first, g.send(y), g.send(3)


@whole()
def delegation(x, y):
    def inner():
        yield x
        return y

    def outer():
        r = yield from inner()
        yield r * 2

    return list(outer())


@whole()
def exceptions(x, y):
    try:
        z = x + 1
        raise ValueError("a")
    except ValueError as e:
        z = z * 2
        message = str(e)
    finally:
        w = y + 1
    return z, w, message


@whole()
def nested_exceptions(x, y):
    log = []
    try:
        try:
            {}["missing"]
        except KeyError as e:
            log.append(e.args)
            raise RuntimeError("b") from e
        finally:
            log.append("f")
    except (RuntimeError, TypeError) as e:
        log.append(str(e))
        log.append(type(e.__cause__).__name__)
    else:
        log.append("else")
    return x + len(log), log


@whole()
def caught_in_callee(x, y):
    def get(d, k):
        try:
            return d[k]
        except KeyError:
            return y

    return get({"a": x}, "a") + get({}, "b")


@whole()
def lookups_that_fail(x, y):
    out = []
    for f in (lambda: [][1], lambda: int("z"), lambda: None.q, lambda: 1 / 0, lambda: {}[1]):
        try:
            f()
        except Exception as e:
            out.append(type(e).__name__)
    return x + 1, out


@whole()
def return_in_finally(x, y):
    def f():
        try:
            return x + 1
        finally:
            log.append(1)

    log = []
    return f(), log


@whole()
def contexts(x, y):
    log = []
    with Ctx(log) as c, Ctx(log):
        z = x + len(c.log)
    with Ctx(log):
        raise KeyError("swallowed")
    return z, log


@whole()
def exit_sees_error(x, y):
    log = []
    try:
        with Ctx(log):
            raise ValueError("v")
    except ValueError:
        log.append("caught")
    return x * 2, log


@whole()
def assertions(x, y):
    assert x.shape == y.shape, "shapes"
    try:
        assert x.shape[0] == 17, "no"
    except AssertionError as e:
        return x + 1, str(e)


@whole()
def matching(x, y):
    found = []
    for subject in ((1, "a"), {"k": 2, "r": 1}, Pair(x), Frozen(3), [1, 2, 3], 7, "s", None):
        match subject:
            case {"k": int(v), **rest}:
                found.append((v, rest))
            case Pair(a=t, b=3):
                found.append(t * 2)
            case (1, str() as s):
                found.append(s)
            case Frozen(n, scale=k):
                found.append((n, k))
            case [first, *others]:
                found.append((first, others))
            case int() | float():
                found.append("number")
            case None:
                found.append("none")
            case _:
                found.append("other")
    return found


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
    setattr(c, "other", x)
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


# -- torch -----------------------------------------------------------------------------------
@whole()
def functional(x, y):
    return (
        F.softmax(x, -1), F.gelu(y), F.layer_norm(x, (4,)), torch.cat([x, y], dim=0), x.T @ y,
        torch.einsum("ij,kj->ik", x, y), F.dropout(x, 0.5, False), torch.stack((x, y)).sum(0),
        F.dropout(x, 0.5, True), torch.nn.functional.linear(x, y), x.new_zeros(2), torch.randn(2),
    )  # fmt: skip


@whole()
def several_results(x, y):
    v, i = x.max(dim=1)
    s = torch.sort(y)
    return v, i, s.values, x.topk(2)[0], x.split(2, dim=1), torch.unbind(y), s


@whole()
def metadata(x, y):
    return (
        x.shape, x.size(), x.size(1), x.dim(), x.dtype, x.device, x.numel(), x.is_contiguous(),
        x.stride(), len(x), x.requires_grad, x.ndim, x.is_floating_point(), x.shape[-1] * 2, x + 1,
        torch.is_tensor(x), isinstance(x, torch.Tensor), type(x), x.element_size(), x.T.stride(),
    )  # fmt: skip


@whole()
def in_place(x, y):
    z = x.clone()
    z.add_(y)
    z[0] = 1
    z += 2
    z[:, 1].mul_(3)
    return z


@whole()
def in_place_on_arguments(x, y):
    x.mul_(2)
    y[0] = x[1]
    x += y
    return x, y.sum()


@whole()
def views_out(x, y):
    return x[0], x.view(-1), x, x.t(), (x * 2)[1]


@whole(make=lambda: (lambda a: (a, a))(two_tensors()[0]))
def one_tensor_twice(x, y):
    x.add_(1)
    return y * 2, x is y


@whole()
def no_grad(x, y):
    with torch.no_grad():
        z = x * 2
        inside = torch.is_grad_enabled()
    return z, inside, torch.is_grad_enabled()


@torch.no_grad()
def undecided(a):
    return a * 2


@whole(make=lambda: (two_tensors()[0].requires_grad_(), two_tensors()[1]))
def grad_modes(x, y):
    a = undecided(x)
    with torch.no_grad():
        b = x + 1
        with torch.enable_grad():
            c = x * 3
    with torch.set_grad_enabled(False):
        d = x * 4
    return a, b, c, d, x * 5


@whole(make=lambda: tuple(t.requires_grad_() for t in two_tensors()))
def gradients(x, y):
    h = torch.tanh(x @ y.T)
    return (h * h.detach()).sum(), torch.sigmoid(x) * y


@whole(make=lambda: (two_tensors()[0].requires_grad_(), two_tensors()[1]))
def gradient_of_one(x, y):
    y.add_(1)
    return x * y, y


@whole()
def tensor_comparisons(x, y):
    return x > y, x == y, torch.where(x > 0, x, y), (x > 0).any(), x.isnan() & y.isnan(), ~(x > 0)


@whole()
def numbers_with_tensors(x, y):
    return 1 + x, 2 / x, 3 - x, x**2, 2**x, -x, x % 2, x // 0.5, abs(x), +x, 1.0 * x @ y.T


@whole()
def tensor_iteration(x, y):
    return sum(row * i for i, row in enumerate(x)), [r for r in y], list(x.unbind(1))[0]


@whole()
def constants_made(x, y):
    return x + torch.tensor([1.0, 2, 3, 4]), torch.arange(3), torch.zeros_like(y), torch.tensor(5)


@whole(make=lambda: (*two_tensors(), torch.nn.Linear(4, 2)))
def module_called(x, y, m):
    return m(x), m.weight, m.in_features, [n for n, _ in m.named_parameters()]


@pytest.mark.parametrize("case", program, ids=lambda case: case.name)
def test_program(case):
    check(case)
