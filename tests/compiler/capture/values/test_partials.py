"""Partial functions beside Python: their keywords can be changed, and nested ones are flat."""

from __future__ import annotations

import functools
import re

import pytest
import torch

import tc


def target(x, a=0, z=0, k=0):
    return x + a + z * 10 + k * 100


outer = functools.partial(target, z=1)
wrapped = functools.update_wrapper(functools.partial(target, z=1), target)


def agree(program, *calls):
    compiled = tc.compile(program, backend="eager")
    for make in calls:
        shown = []
        for run in (program, compiled):
            args = make()
            shown.append(re.sub("0x[0-9a-f]+", "", repr((run(*args), args))))
        assert shown[0] == shown[1]


def keywords_are_stored(x):
    p = functools.partial(target)
    p.keywords["z"] = 5
    return p(x), p.keywords


def nested(x):
    p = functools.partial(target, x)
    q = functools.partial(p, 2, k=3)
    return q.args[1:], q.keywords, q.func is p.func, q()


def nested_has_keywords_of_its_own(x):
    p = functools.partial(target, z=1)
    q = functools.partial(p, z=2)
    q.keywords["z"] = 7
    return p(x), q(x), p.keywords is p.keywords, p.args is p.args


def keywords_come_from_a_dict(x):
    given = {"z": 1}
    p = functools.partial(target, **given)
    p.keywords["k"] = x.shape[0]
    return p, given


def keywords_change_across_a_break(x):
    p = functools.partial(target, z=1)
    held = p.keywords
    print(end="")
    held["z"] = 4
    return p(x)


def nested_in_a_global(x):
    q = functools.partial(outer, k=2)
    return q(x), q.args, q.keywords, q.func is target


def with_attributes(x):
    q = functools.partial(wrapped, k=2)
    found = q.func is wrapped, q.args, q.keywords, wrapped.__name__, hasattr(outer, "__name__")
    return q(x), found


def no_text(x):
    p = functools.partial(target)
    p.keywords[1] = 2
    try:
        return p(x)
    except TypeError as error:
        return x - 1, str(error)


PROGRAMS = (
    keywords_are_stored, nested, nested_has_keywords_of_its_own, keywords_come_from_a_dict,
    keywords_change_across_a_break, nested_in_a_global, with_attributes, no_text,
)  # fmt: skip


@pytest.mark.sample(3)
@pytest.mark.parametrize("program", PROGRAMS)
def test_made_by_the_program(program):
    agree(program, *(lambda n=n: (torch.ones(n),) for n in (2, 3, 5)))


def test_given_to_the_program():
    def program(x, p):
        p.keywords["k"] = x.shape[0]
        return p(x), p.keywords["z"] + 1, functools.partial(p, k=1).keywords, p(x, z=2)

    made = (lambda n=n, z=z: (torch.ones(n), functools.partial(target, z=z))
            for n, z in ((2, 1), (3, 1), (5, 2), (5, 2.5), (5, torch.ones(1))))  # fmt: skip
    agree(program, *made)


def test_returned_keywords_are_those_of_the_returned_partial():
    def program(x):
        p = functools.partial(target, x, z=1)
        return p, p.keywords

    p, keywords = tc.compile(program, backend="eager")(torch.ones(2))
    assert p.keywords is keywords
    keywords["z"] = 2
    assert p().tolist() == [21.0, 21.0]
