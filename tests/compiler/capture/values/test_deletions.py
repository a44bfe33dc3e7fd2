"""Attributes that are deleted: by properties, descriptors, classes and modules."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

import tc


class P:
    def __init__(s):
        s.d = 1
        s.w = 5

    k = 3

    @property
    def y(s):
        return s.d

    @y.deleter
    def y(s):
        s.d = -1

    @property
    def ro(s):
        return 1


class D:
    def __delattr__(s, n):
        object.__setattr__(s, "gone", n)
        super().__delattr__(n)


class Desc:
    def __get__(s, o, c):
        return o.__dict__.get("zz", 0)

    def __set__(s, o, v):
        o.__dict__["zz"] = v

    def __delete__(s, o):
        o.__dict__["zz"] = -7


class Q:
    a = Desc()


@dataclasses.dataclass(slots=True)
class S:
    v: int = 3


class M(torch.nn.Module):
    def __init__(s):
        super().__init__()
        s.lin = torch.nn.Linear(2, 2)
        s.register_buffer("b", torch.ones(2))
        s.z = 3
        s.pp = 4

    @property
    def pr(s):
        return s.pp

    @pr.deleter
    def pr(s):
        s.pp = -4


def tryit(g):
    try:
        return g()
    except AttributeError as e:
        return str(e)


def of_an_object(x, p):
    del p.y
    return (
        x * p.d,
        tryit(lambda: delattr(p, "k")),
        tryit(lambda: delattr(p, "nope")),
        tryit(lambda: delattr(p, "ro")),
        tryit(lambda: setattr(p, "ro", 3)),
        hasattr(p, "w"),
    )


def of_a_new_object(x, p):
    q = P()
    q.new = 3
    del q.new
    del q.w
    del q.y
    return x + q.d, hasattr(q, "new"), hasattr(q, "w")


def of_a_new_object_set_again(x, p):
    q = P()
    q.new = 3
    del q.new, q.w
    q.new, q.w = x + 1, 2
    return x + 1, list(vars(q)), q


def own_delattr(x, d):
    d.a = 1
    d.b = 2
    del d.a
    return x, d.gone, d.b, hasattr(d, "a")


def own_descriptor(x, q):
    q.a = 3
    r = q.a
    del q.a
    return x, r, q.a


def slots(x, s):
    try:
        s.zz = 1
    except AttributeError as e:
        m = str(e)
    t = S(4)
    m2 = tryit(lambda: setattr(t, "zz", 1))
    del t.v
    m3 = tryit(lambda: t.v)
    s.v = 9
    return x + 1, m, m2, m3, s.v, tryit(lambda: delattr(t, "v"))


def of_a_module(x, m):
    y = m.lin(x) + m.b
    del m.z
    del m.b
    del m.pr
    return (
        y,
        m.pp,
        hasattr(m, "z"),
        hasattr(m, "b"),
        tryit(lambda: m.b),
        tryit(lambda: delattr(m, "nope")),
    )


def submodule(x, m):
    del m.lin
    return x + m.b, "lin" in m._modules


def held(obj: Any) -> Any:
    own = getattr(obj, "__dict__", {})
    return sorted(own), {name: one for name, one in own.items() if isinstance(one, int)}


@pytest.mark.parametrize(
    ("f", "make"),
    [
        (of_an_object, P), (of_a_new_object, P), (of_a_new_object_set_again, P), (own_delattr, D),
        (own_descriptor, Q), (slots, S), (of_a_module, M), (submodule, M),
    ],
)  # fmt: skip
def test_as_eager(f: Any, make: Any) -> None:
    results = []
    for run in (f, tc.compile(f, backend="eager")):
        torch.manual_seed(0)
        obj = make()
        found = run(torch.ones(2), obj)
        results.append((str([held(one) or one for one in found]), held(obj)))
    assert results[0] == results[1]
    tc.reset()
