"""What traced code changes under one name is seen under all its names, in the same frame.

An attribute is also an item of a ``__dict__``, which may be the dict of a second object; a class is
also seen through its mapping proxy; a parameter is in a table of its module. Each program runs in a
world of its own, eagerly and compiled, three calls each.
"""

from __future__ import annotations

import itertools

import pytest
from fact_runner import call
from fact_snapshot import differs
from fact_world import World

import tc


def assert_same(text):
    tc.reset()
    with World(text) as eager, World(text) as compiled:
        fn = tc.compile(compiled.program, backend="eager")
        for number in range(3):
            want, got = call(eager, eager.program), call(compiled, fn)
            difference = differs(got.data, want.data)
            assert not difference, f"call {number + 1}: {difference} {got.error!r}\n{text}"


SHARED = """
class A: pass
class B: pass
args = (t(1),)
"""


@pytest.mark.parametrize("setup", [
    "a, b = A(), A(); b.__dict__ = a.__dict__",
    "a, b = A(), B(); b.__dict__ = a.__dict__",
    "a = A(); b = types.SimpleNamespace(); a.__dict__ = b.__dict__",
])  # fmt: skip
@pytest.mark.parametrize("store", ["b.k = 5", "a.k = a.k + 1", "del b.k", "setattr(b, 'z', 3)"])
def test_two_objects_with_one_dict(setup, store):
    read = "[getattr(o, n, -1) for o in (a, b) for n in ('k', 'z')]"
    body = f"def f(x):\n    a.k = 1\n    {store}\n    return {read}, x * len(vars(a))"
    assert_same(f"{SHARED}{setup}\n{body}")


def test_an_object_that_comes_to_share_the_dict_of_another():
    assert_same(
        SHARED + "a, b, calls = A(), A(), itertools.count()\na.k = b.k = 1\n"
        "def args():\n    if next(calls) == 1: b.__dict__ = a.__dict__\n    return t(1), a, b\n"
        "def f(x, a, b):\n    b.k = a.k + 1\n    return x * a.k"
    )


def test_objects_that_share_one_state():
    assert_same(
        "class Borg:\n    state = {}\n    def __init__(self): self.__dict__ = Borg.state\n"
        "a, b, args = Borg(), Borg(), (t(1),)\n"
        "def f(x):\n    a.n = getattr(b, 'n', 0) + 1\n    return x * b.n, Borg().n"
    )


@pytest.mark.parametrize("read", [
    "dd['k']", "vars(A)['k']", "A.__dict__.get('k')", "dict(dd)['k']", "B.k", "getattr(A(), 'k')",
])  # fmt: skip
@pytest.mark.parametrize("first", ["0", "dd['k']"])
def test_a_class_and_its_dict(read, first):
    assert_same(
        "class A:\n    k = 1\nclass B(A): pass\ndd = A.__dict__\nargs = (t(1),)\n"
        f"def f(x):\n    before = {first}\n    A.k = A.k + 1\n    return x * {read}, before"
    )


@pytest.mark.parametrize("kind", ["dict", "collections.OrderedDict"])
@pytest.mark.parametrize("read", ["p['k']", "len(p)", "list(p)", "'z' in p", "list(p.items())"])
def test_a_dict_and_its_proxy(kind, read):
    assert_same(
        f"d = {kind}(k=3)\np = types.MappingProxyType(d)\nargs = (t(1),)\n"
        f"def f(x):\n    d['k'] += 1\n    d['z'] = 3\n    return x, {read}, p"
    )


MODULE = """
m = nn.Module()
m.register_buffer("b", t(0))
m.w, m.c, m.n = nn.Parameter(t(1)), nn.ReLU(), 3
other, tables = nn.Parameter(t(7)), (m._parameters, m._buffers, m._modules)
watch, args = m, (t(1),)
"""
STORES = (
    "m.b = x", "m.b = None", "m.b = m.b + x", "m.w = other", "m.w = None", "m.n = other",
    "m.n = m.c", "m.n = 4", "m.c = None", "m.c = nn.Tanh()", "del m.w", "del m.b", "del m.n",
    "m.b = other", "m.w = m.c", "m.z = nn.Buffer(x)", "m.b = nn.Buffer(x, persistent=False)",
    "m.n = m.c; m.n = x", "m.register_parameter('z', other)", "vars(m)['w'] = 7",
    "object.__setattr__(m, 'w', 8)", "m.w = 3", "m.c = x",
)  # fmt: skip
READS = (
    "[(n, p * x) for n, p in m.named_parameters()]", "[(n, b * x) for n, b in m.named_buffers()]",
    "[n for n, _ in m.named_modules()]", "list(m.state_dict().items())",
    "[getattr(m, n, None) for n in 'wbcnz']", "[list(table) for table in tables]",
    "[table.get(n) for table in tables for n in 'wbz']", "sorted(vars(m))[-3:]",
)  # fmt: skip


@pytest.mark.sample(13)
@pytest.mark.parametrize(("store", "read"), list(itertools.product(STORES, READS)))
def test_a_module_and_its_tables(store, read):
    body = f"def f(x):\n    try: {store}\n    except (TypeError, AttributeError): x = x + 1\n"
    assert_same(f"{MODULE}{body}    return x, {read}")


HOOKS = """
from torch.nn.modules import module as hooks
log, m, act, w = [], nn.Module(), nn.Tanh(), nn.Parameter(t(1))
watch, calls = log, itertools.count()
def args():
    if next(calls) == 1:
        defer(hooks.register_module_{}_registration_hook(lambda m, n, v: log.append(n)).remove)
    return (t(1),)
"""


@pytest.mark.parametrize("kind", ["parameter", "buffer", "module"])
def test_hooks_of_all_modules_on_registration(kind):
    assert_same(
        HOOKS.format(kind) + "def f(x):\n    m.w, m.a = w, act\n    m.register_buffer('b', x)\n"
        "    m.b = x + 1\n    return x * m.w, len(log)"
    )


@pytest.mark.parametrize("store", [
    "a.__class__ = B", "a.__dict__ = {'k': 7}", "a.__dict__ = d", "del a.__dict__",
    "object.__setattr__(a, '__class__', B)", "setattr(a, '__dict__', d)",
])  # fmt: skip
@pytest.mark.parametrize("made", ["", "a = A(); a.k = 1; "])
def test_stores_that_change_the_object_as_a_whole(store, made):
    assert_same(
        "class A:\n    k = 2\n    def m(self): return 1\n"
        "class B:\n    k = 3\n    def m(self): return 5\n"
        "d = {'k': 4}\na = A()\na.k = 1\nargs = (t(1), a)\nwatch = a\n"
        f"def f(x, a):\n    {made}{store}\n    a.z = 5\n"
        "    return x * a.k, a.m(), type(a).__name__, isinstance(a, A), sorted(vars(a)), d"
    )


@pytest.mark.parametrize("change", [
    "P.b = property(lambda self: 55)", "P.b = 7", "P.z = P.a", "P.a, P.b = P.b, P.a", "del P.b",
])  # fmt: skip
@pytest.mark.parametrize("cls", ["P", "Q"])
def test_fields_of_named_tuples_are_what_the_class_says(change, cls):
    assert_same(
        "P = collections.namedtuple('P', 'a b')\nclass Q(P): pass\ncalls = itertools.count()\n"
        f"def args():\n    if next(calls) == 1:\n        {change}\n    return t(1), {cls}(1, 2)\n"
        "def f(x, p):\n    return x * p.a, getattr(p, 'b', 9), getattr(p, 'z', 8), p[1]"
    )


@pytest.mark.parametrize("getter", [
    "", "def __getattribute__(self, n): return object.__getattribute__(self, n)",
    "def __getattribute__(self, n):\n"
    "        found = super().__getattribute__(n)\n        return found + 1 if n == 'k' else found",
])  # fmt: skip
def test_attributes_of_a_class_that_the_object_hid(getter):
    assert_same(
        f"class A:\n    k = 1\n    {getter or 'pass'}\na = A()\n"
        "def args():\n    a.k = 5\n    return (t(1),)\n"
        "def f(x):\n    y = x * a.k\n    del a.k\n    return y, x * a.k"
    )
