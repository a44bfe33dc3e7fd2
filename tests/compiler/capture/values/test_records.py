"""Storages, the memory that ``Tensor.set_`` gives a tensor, and counts of writes."""

from __future__ import annotations

import collections
import gc
import re
import weakref

import pytest
import torch

import tc


def of_a_tensor(x):
    y = torch.zeros(7)
    y.set_(x)
    return y + 1, y.shape, y


def written_afterwards(x):
    y = torch.zeros(2)
    y.set_(x)
    y.add_(1)
    return y, x * 2


def view_of_the_old_memory(x):
    y = torch.zeros(4)
    z = y[1:]
    y.set_(x)
    y.add_(1)
    z.add_(5)
    return y, z, x


def with_sizes(x):
    y = torch.zeros(7)
    y.set_(x, 1, (2,), (1,))
    return y * 2, y.storage_offset()


def of_a_storage(x):
    y = torch.zeros(7)
    y.set_(x.untyped_storage(), storage_offset=0, size=(3, 1), stride=(1, 1))
    return y * 2, y.shape


def exchanged(x):
    a, b = x + 1, x + 2
    old = a.untyped_storage()
    a.set_(b)
    b.set_(old, 0, (2,), (1,))
    a.mul_(10)
    return a, b


def emptied(x):
    y = x.clone()
    y.set_()
    return y.shape, y


def kept_attributes(x):
    y = torch.zeros(2)
    y.note = 3
    y.set_(x)
    return y, y.note


def counted(x):
    y = torch.zeros(3)
    y[0] = 1
    z = y[1:]
    z.mul_(2)
    torch._foreach_add_([y, z], 1)
    torch.add(x, x, out=y)
    before = x._version
    x.add_(1)
    return y, y._version, z._version, x.data._version, x._version - before


@pytest.mark.parametrize(
    "function",
    [
        of_a_tensor, written_afterwards, view_of_the_old_memory, with_sizes, of_a_storage,
        exchanged, emptied, kept_attributes, counted,
    ],
)  # fmt: skip
@pytest.mark.parametrize("backend", ["eager", "tc"])
def test_in_one_graph(function, backend):
    compiled = tc.compile(function, fullgraph=True, backend=backend)
    for number in (1.0, 2.0):
        x, y = torch.arange(3.0) + number, torch.arange(3.0) + number
        assert str(compiled(x)) == str(function(y))
        assert x.equal(y)


def refused_type(x):
    y = torch.zeros(2, dtype=torch.float16)
    try:
        y.set_(x)
    except RuntimeError as error:
        return str(error)


def beyond_the_storage(x):
    y = torch.zeros(2)
    y.set_(x.clone(), 0, (20,), (1,))
    return y.shape


def of_an_argument(x):
    z = x.clone()
    x.set_(z + 1)
    return x * 2


@pytest.mark.parametrize("function", [refused_type, beyond_the_storage, of_an_argument])
def test_left_to_python(function):
    x, y = torch.arange(3.0), torch.arange(3.0)
    assert str(tc.compile(function, backend="eager")(x)) == str(function(y))
    assert x.equal(y)


def test_writes_before_the_call_are_counted():
    def scaled(x):
        return x * 0 + x._version

    compiled = tc.compile(scaled, fullgraph=True, backend="eager")
    x = torch.ones(3)
    for _ in range(4):
        assert compiled(x).equal(scaled(x))
        x.add_(1)


class Held:
    def __init__(self, value):
        self.value = value


def made_here(x):
    a, b = Held(1), Held(2)
    by_key = weakref.WeakKeyDictionary({a: x})
    by_key[b] = 5
    items = weakref.WeakSet([a, b])
    total = by_key[a] + by_key.get(b) + len(items)
    return total, a in items, by_key.pop(b), b in by_key, [one.value for one in by_key]


def references(x):
    first, second = Held(1), Held(1)
    one, other = weakref.ref(first), weakref.ref(first)
    called = weakref.ref(first, lambda ref: None)
    try:
        weakref.ref(3)
    except TypeError as error:
        text = str(error)
    same = one is other, one == called, one is called, one == weakref.ref(second)
    return x + one().value, same, {one: 4}[called], text, called() is first


@pytest.mark.parametrize("function", [made_here, references])
def test_weak_references_to_what_the_function_makes(function):
    compiled = tc.compile(function, fullgraph=True, backend="eager")
    assert str(compiled(torch.ones(2))) == str(function(torch.ones(2)))


def test_weak_containers_from_outside():
    def reads(x, by_key, items, key, ref):
        found = by_key.get(key, 3), len(by_key), key in items, sum(one.value for one in items)
        same = ref is weakref.ref(key), ref == weakref.ref(key), ref() is key
        seen = sum(value for _, value in by_key.items())
        by_key[key] = found[0] + 1
        items.add(key)
        return x * by_key[key] + seen, found, same

    compiled = tc.compile(reads, fullgraph=True, backend="eager")
    worlds = []
    for function in (compiled, reads):
        held = [Held(i) for i in range(3)]
        by_key, items = weakref.WeakKeyDictionary({held[0]: 7}), weakref.WeakSet(held[:1])
        found = []
        for step in (0, 1, 2, 0, 2):
            key = held[step]
            found.append(str(function(torch.ones(2), by_key, items, key, weakref.ref(held[0]))))
        held[1] = None
        del key
        gc.collect()  # what compiled the calls held it
        found.append(str(function(torch.ones(2), by_key, items, held[2], weakref.ref(held[2]))))
        worlds.append((found, len(by_key), sorted(one.value for one in items)))
    assert worlds[0] == worlds[1]


KINDS = (
    collections.OrderedDict, collections.deque, set, frozenset, dict, list, collections.Counter,
    lambda: len, lambda: lambda: 0, lambda: re.compile("a"), lambda: torch.ones(2), lambda: Held,
    lambda: (1, 2), lambda: torch.device("cpu"), lambda: collections.defaultdict(int), lambda: 1.5,
)  # fmt: skip


@pytest.mark.parametrize("place", range(len(KINDS)))
def test_objects_that_may_be_referred_to_weakly(place):
    def program(x, make):
        one = make()
        try:
            found = weakref.ref(one)() is one
        except TypeError as error:
            found = str(error)
        return x + 1, found

    compiled = tc.compile(program, backend="eager")
    x = torch.ones(2)
    assert str(compiled(x, KINDS[place])) == str(program(x, KINDS[place]))
