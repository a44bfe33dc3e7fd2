"""Comparisons and special methods of symbolic sizes, and of what holds them, beside Python."""

from __future__ import annotations

import collections
import types

import numpy as np
import pytest
import torch

import tc
from tc.compiler import api


def agree(program, *calls):
    compiled = tc.compile(program, backend="eager")
    for args in calls:
        assert repr(compiled(*args)) == repr(program(*args))


def slices(x):
    n = x.shape[0]
    one, other = slice(1, n), slice(1, n)
    equal = (
        one == other,
        one != other,
        one in [other],
        (one, 2) == (other, 2),
        [1, one].index(one),
    )
    differs = (one == slice(2, n), one != slice(1, n, 1), one == (1, n, None), one == 3)
    return x + 1, equal, differs, one < slice(1, n + 1), one == slice(1, float(n))


def slices_as_keys(x):
    try:
        return x + 1, {slice(x.shape[0]): 1}
    except TypeError as error:
        return x + 1, str(error)


def unhashable(x):
    held, messages = {x.shape[0]: 1}, []
    for value in (
        np.ones(3), collections.deque(), collections.OrderedDict(), [], {1}, held, held.keys(),
        held.items(), types.MappingProxyType(held), (1, [2]), types.SimpleNamespace(),
    ):  # fmt: skip
        try:
            {value: 1}  # noqa: B018
        except TypeError as error:
            messages.append(str(error))
    return x + 1, messages, len({held.values(): 1})


def proxies(x):
    held = {x.shape[0]: 1}
    one, other = types.MappingProxyType(held), types.MappingProxyType(dict(held))
    return x + 1, one == other, one != other, one == held, held == one, one == {}


@pytest.mark.parametrize("program", [slices, slices_as_keys, unhashable, proxies])
def test_what_holds_sizes_is_compared_by_what_it_holds(program):
    agree(program, *((torch.ones(n),) for n in (2, 3, 5)))


METHODS = (
    "__add__", "__rsub__", "__mul__", "__eq__", "__ne__", "__lt__", "__truediv__", "__floordiv__",
    "__mod__", "__and__", "__rlshift__", "__divmod__", "__pow__",
)  # fmt: skip


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", METHODS)
def test_special_methods_take_symbolic_sizes(name):
    of_int = getattr(int, name)

    def program(x):
        n, m = x.shape
        both = getattr(n, name)(m), getattr(3, name)(n), getattr(n, name)(3), of_int(n, m)
        return x + 1, both, getattr(n, name)(2.5), getattr(n > m, name)(n > 1)

    agree(program, (torch.ones(2, 3),), (torch.ones(3, 5),), (torch.ones(4, 4),))


def test_arithmetic_by_special_methods_stays_symbolic():
    def program(x):
        n, m = x.shape
        return x.reshape(n.__mul__(m)) + n.__add__(m)

    tc.reset()
    agree(program, *((torch.ones(n, m),) for n, m in ((2, 3), (3, 5), (5, 8), (7, 4))))
    assert api.graph_stats()["graphs"] == 2


class Vector:
    """Has operators that know numbers, and a few that know nothing."""

    def __init__(self, v):
        self.v = v

    def __mul__(self, other):
        return Vector(self.v * other) if isinstance(other, int | float) else NotImplemented

    __rmul__ = __mul__

    def __add__(self, other):
        return NotImplemented

    __lt__ = __iadd__ = __matmul__ = __pow__ = __divmod__ = __eq__ = __add__


OTHERS = ["'s'", "None", "[1]", "(1,)", "{}", "{1}", "v", "3", "x.shape[0]", "b'a'", "1.5"]
REFUSED = [
    *(f"v {sign} {o}" for sign in ("*", "+", "<", "@", "**", "-", "<<", ">=", "%") for o in OTHERS),
    *(f"{o} {sign} v" for sign in ("*", "+", "<", "@", "**", "-", "<<", ">=") for o in OTHERS),
    *(f"{call}(v)" for call in ("len", "iter", "next", "abs", "round", "int", "float", "hash")),
    *("~v", "+v", "-v", "v[0]", "v()", "divmod(v, 2)", "divmod(2, v)", "pow(v, 2)", "'a' in v"),
    *("v == 's'", "v != 3", "v in [1]", "sum([v])", "max(v, 3)", "sorted([v, v])"),
    *(f"v {sign}= {o}" for sign in ("*", "+", "-", "@") for o in OTHERS),
    *(f"w {sign}= v" for sign in ("*", "+", "-")),
]


@pytest.mark.sample(2)
@pytest.mark.parametrize("part", range(4))
def test_what_no_class_knows_raises_as_in_python(part, drawn):
    for text in drawn(REFUSED[part::4], 25):
        statement = text if "= " in text else f"r = {text}"
        space = {"Vector": Vector}
        exec(
            "def f(x):\n"
            "    v, w, r = Vector(2), 's', None\n"
            "    try:\n"
            f"        {statement}\n"
            "    except TypeError as error:\n"
            "        r = str(error)\n"
            "    return x + 1, r if isinstance(r, str | bool) else type(r)\n",
            space,
        )
        f = space["f"]
        tc.reset()
        x = torch.ones(3)
        assert tc.compile(f, backend="eager", dynamic=True)(x)[1] == f(x)[1], text


@pytest.mark.sample(14)
@pytest.mark.parametrize("other", ["None", "'a'", "[1]", "(1,)", "{}", "{1}", "b'a'"])
@pytest.mark.parametrize("sign", ["+", "-", "<", ">=", "//", "**", "|", "<<"])
def test_what_a_size_is_refused_for_does_not_decide_it(sign, other):
    space = {}
    exec(
        "def f(x):\n"
        "    try:\n"
        f"        return x.shape[0] {sign} {other}\n"
        "    except TypeError as error:\n"
        "        return x + 1, str(error)\n",
        space,
    )
    f = space["f"]
    tc.reset()
    compiled = tc.compile(f, fullgraph=True, backend="eager")
    for n in (4, 5, 6, 7):
        x = torch.ones(n)
        assert compiled(x)[1] == f(x)[1]
    assert api.graph_stats()["graphs"] == 2


def test_an_operator_that_nothing_knows_breaks_no_graph():
    def f(x, v):
        try:
            x = x * (v * "s")
        except TypeError:
            x = x + 1
        try:
            x = x * (x.shape[0] < v)
        except TypeError:
            x = x + 2
        return x

    x = torch.ones(3)
    assert tc.compile(f, fullgraph=True, backend="eager")(x, Vector(2)).equal(f(x, Vector(2)))


def test_what_has_no_divmod_is_refused_in_its_name():
    class Number(complex):
        pass

    def program(x, pairs):
        y, found = x + 1, []
        for left, right in pairs:
            try:
                found.append(divmod(left, right))
            except (TypeError, ZeroDivisionError) as error:
                found.append(f"{type(error).__name__}: {error}")
        return y, found

    kinds = [Number(1), 1j, 3, 2.5, True, "a", None, [1], {1}, types, len, int]
    agree(program, (torch.ones(1), [(a, b) for a in kinds for b in kinds]))
    agree(program, (torch.ones(1), [(3, 0), (2.5, 0.0), (7, 2), (-7.5, 2)]))
