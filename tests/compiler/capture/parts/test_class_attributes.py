"""Attributes of classes: read through objects made inside, stored, computed once, restored."""

from __future__ import annotations

import functools
from typing import ClassVar

import pytest
import torch

import tc
from tc import exc


class Base:
    factor = 1.0
    log: ClassVar[list[int]] = []
    made = 0

    def scaled(self, x):
        return x * self.factor


class Derived(Base):
    pass


class Scale:
    """A context manager that changes a class attribute and puts it back."""

    def __init__(self, factor):
        self.factor = factor

    def __enter__(self):
        self.before, Base.factor = Base.factor, self.factor

    def __exit__(self, *_):
        Base.factor = self.before


@pytest.fixture(autouse=True)
def as_before():
    tc.reset()
    yield
    Base.factor, Base.log, Base.made = 1.0, [], 0


def local_class(x):
    class Local(Base):
        pass

    return x * Local().factor


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * Base().factor,
        lambda x: Derived().scaled(x),
        lambda x: x * super(Derived, Derived()).factor,
        local_class,
    ],
    ids=["attribute", "method", "super", "local_class"],
)
def test_what_an_object_made_inside_reads_from_its_class_is_guarded(function):
    compiled, x = tc.compile(function, fullgraph=True), torch.ones(2)
    for factor in (1.0, 2.0, 3.0):
        Base.factor = factor
        assert compiled(x).tolist() == [factor, factor]


def counting(x):
    with Scale(3.0):
        y = x * Base.factor * Derived.factor * Derived().factor
    Base.made += 1
    Base.last = y
    Derived().log.append(Base.made)
    return y * Derived.made + Base().made + len(Derived().log)


def test_stores_to_a_class_are_seen_at_once_and_replayed():
    x = torch.ones(2)
    want = [counting(x) for _ in range(3)]
    seen = (Base.made, Base.log, Base.last)
    Base.made, Base.log = 0, []
    compiled = tc.compile(counting, fullgraph=True)
    got = [compiled(x) for _ in range(3)]
    assert [t.tolist() for t in got] == [t.tolist() for t in want]
    assert (Base.made, Base.log) == seen[:2]
    assert Base.last.tolist() == seen[2].tolist()
    assert Base.factor == 1.0
    del Base.last


def store_a_method(x):
    Base.scaled = lambda self, x: x
    return x


def store_to_a_library(x):
    torch.nn.Linear.factor = 2
    return x


@pytest.mark.parametrize("function", [store_a_method, store_to_a_library])
def test_stores_that_change_how_classes_work_break(function):
    with pytest.raises(exc.Unsupported, match="TC122"):
        tc.compile(function, fullgraph=True)(torch.ones(2))


class Lazy(torch.nn.Module):
    computed = 0

    @functools.cached_property
    def mask(self):
        Lazy.computed += 1
        return torch.ones(3, 3).tril()

    @functools.lru_cache  # noqa: B019
    def width(self, times):
        return 3 * times

    def forward(self, x):
        return x @ self.mask * self.width(2)


def test_a_cached_property_is_computed_once_and_kept():
    module, x = Lazy(), torch.randn(2, 3)
    compiled = tc.compile(module, fullgraph=True)
    for _ in range(2):
        torch.testing.assert_close(compiled(x), x @ torch.ones(3, 3).tril() * 6)
    assert Lazy.computed == 1
    assert "mask" in vars(module)
