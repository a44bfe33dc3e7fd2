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
