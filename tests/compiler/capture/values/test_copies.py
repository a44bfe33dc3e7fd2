"""``id()``: two are equal where they are ids of one object, whatever kind of object it is."""

from __future__ import annotations

import collections
import copy
import enum
import itertools

import pytest
import torch

import tc


class Colour(enum.Enum):
    """An enumeration."""

    RED = 1
    BLUE = 2


class Plain:
    """A class."""


def _function():
    return 1


LARGE, TEXT, FLOAT, LIST, TUPLE, ONE = 10**20, "text " * 300, 1.5, [1], (1, 2), Plain()
OBJECTS = (
    None, True, False, 5, -5, 256, 257, LARGE, FLOAT, TEXT, "a", b"a", ..., NotImplemented,
    Colour.RED, Colour.BLUE, Plain, torch.nn.Linear, _function, len, torch, torch.float32, LIST,
    TUPLE, ONE, torch.ones(2),
)  # fmt: skip


def compared(x, a, b):
    return (
        x + 1,
        id(a) == id(b),
        id(a) != id(b),
        len({id(a), id(b)}),
        {id(a): 1}.get(id(b)),
        id(a) in (id(b),),
    )


def constants(x):
    return (
        x + 1,
        [id(None), id(True), id(3), id(Colour.RED), id(Plain), id(_function), id(len), id(ONE)],
        id("text") == id("text"),
        id(1.5) == id(1.5),
    )


def named(x, a):
    held, table = [a], {id(a): 1}
    return x + 1, table[id(held[0])], id(held) == id(held), id(held) == id(a), id(a)


@pytest.mark.parametrize("one", OBJECTS, ids=lambda one: str(one)[:12])
def test_ids_of_one_object_are_equal(one):
    compiled = tc.compile(compared, backend="eager")
    for other in (one, None, ONE, one):
        assert compiled(torch.ones(2), one, other)[1:] == compared(torch.ones(2), one, other)[1:]


def test_kinds_follow_each_other(monkeypatch):
    monkeypatch.setattr(tc.config, "recompile_limit", 200)
    x, pairs = torch.ones(2), [(one, one) for one in OBJECTS]
    mixed = list(itertools.pairwise(OBJECTS))
    for calls in (pairs, pairs[::-1], [*mixed, *pairs]):
        tc.reset()
        compiled = tc.compile(compared, backend="eager")
        for one, other in calls:
            assert compiled(x, one, other)[1:] == compared(x, one, other)[1:], (one, other)


def test_ids_of_constants_are_those_of_the_process():
    compiled = tc.compile(constants, backend="eager")
    for _ in range(2):
        assert compiled(torch.ones(2))[1:] == constants(torch.ones(2))[1:]


def test_an_id_finds_its_object_under_any_name(monkeypatch):
    monkeypatch.setattr(tc.config, "recompile_limit", 200)
    compiled = tc.compile(named, backend="eager")
    for one in OBJECTS:
        assert compiled(torch.ones(2), one)[1:] == named(torch.ones(2), one)[1:]


def ordered(x, given):
    made = collections.OrderedDict(a=1)
    made.note = [x]
    found = []
    for one in (made, given):
        copies = copy.copy(one), copy.deepcopy(one), one.copy(), collections.OrderedDict(one)
        found += [getattr(c, "note", None) for c in copies]
        found.append(vars(copies[0]) == vars(one))
    return x + 1, found, copies[1].note is given.note


def test_copies_of_ordered_dicts_have_their_attributes():
    x, given = torch.ones(2), collections.OrderedDict(b=2)
    given.note = [5]
    compiled = tc.compile(ordered, backend="eager", fullgraph=True)
    assert str(compiled(x, given)) == str(ordered(x, given))
