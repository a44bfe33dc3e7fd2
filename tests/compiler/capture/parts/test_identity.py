"""Objects that are found under several sources, where the program changes one of them."""

from __future__ import annotations

import pytest
import torch

import tc


class Base:
    n = 0


class Derived(Base):
    pass


def by_type(x, owner, cls):
    type(owner).n = 5
    return x + Base.n


def by_class_attribute(x, owner, cls):
    owner.__class__.n += 2
    return x + Base.n + owner.n


def by_name(x, owner, cls):
    Base.n = 7
    return x + type(owner).n


def by_argument(x, owner, cls):
    type(owner).n = 6
    cls.n += 1
    return x + Base.n


@pytest.mark.parametrize("program", [by_type, by_class_attribute, by_name, by_argument])
def test_a_class_is_one_object_wherever_it_is_found(program):
    compiled, x = tc.compile(program, backend="eager"), torch.ones(2)
    for cls in (Base, Derived, Base):
        results = []
        for run in (program, compiled):
            Base.n = 0
            if "n" in vars(Derived):
                del Derived.n
            results.append(repr((run(x, Base(), cls), Base.n, Derived.n)))
        assert results[0] == results[1]
    Base.n = 0


def test_there_is_one_empty_tuple():
    def f(x, default=(), *rest):
        sizes = tuple(x.shape)[:0] is default, x.shape[:0] is default
        return (
            x + 1,
            tuple(rest[:0]) is default,
            rest is default,
            (x,)[1:] is rest,
            (x,) is (x,),
            sizes,
        )

    compiled = tc.compile(f, backend="eager", fullgraph=True)
    for rest in ((), ((),), ((1,),), ((), 1)):
        assert str(compiled(torch.ones(2), *rest)) == str(f(torch.ones(2), *rest))
