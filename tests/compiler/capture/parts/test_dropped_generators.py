"""Generators that a program drops before their end: what they clean up, and when, as in eager."""

# ruff: noqa: B007
from __future__ import annotations

import sys

import pytest
import torch

import tc


def gen(x, log, n=3, name=""):
    log.append("start" + name)
    try:
        for i in range(n):
            yield x + i
    finally:
        log.append("end" + name)


def left_by_break(x):
    log = []
    for v in gen(x, log):
        log.append("body")
        break
    log.append("after")
    return v, log


def one_of_a_temporary(x):
    log = []
    y = next(gen(x, log))
    log.append("after")
    return y, log


def at_its_end(x):
    def counted():
        if len(x) > 5:
            known = [1, 2]
            yield sum([v in known for v in range(3)])
        yield 3

    for n in counted():
        x = x + n
    return x, []


def deleted(x):
    log = []
    it = gen(x, log)
    y = next(it)
    del it
    log.append("after")
    return y, log


def two_at_the_return(x):
    log = []
    it = gen(x, log, name="a")
    it2 = gen(x, log, name="b")
    y = next(it2) + next(it)
    log.append("after")
    return y, log


def in_a_mode(x):

    def g():
        with torch.no_grad():
            yield torch.is_grad_enabled()
            yield 3

    for v in g():
        break
    return x + 1, v, torch.is_grad_enabled()


def use(it, log):
    y = next(it)
    log.append("use")
    return y


def given_to_a_function(x):
    log = []
    y = use(gen(x, log), log)
    log.append("after")
    return y, log


def use2(it, log):
    y = next(it)
    del it
    log.append("use")
    return y


def left_by_an_error(x):
    log = []
    try:
        for v in gen(x, log):
            raise ValueError(3)
    except ValueError as e:
        log.append(str(e))
    return v, log


def out_of_a_list(x):
    log = []
    it = gen(x, log)
    held = [it]
    y = next(it)
    del it
    log.append("x")
    held.pop()
    log.append("y")
    return y, log


def replaced(x):
    log = []
    it = gen(x, log)
    y = next(it)
    it = 5
    log.append("x")
    return y, log, it


def outer(x, log):
    for v in gen(x, log, name="inner"):
        yield v * 2


def inside_of_one_without_cleanup(x):
    log = []
    for v in outer(x, log):
        break
    log.append("after")
    return v, log


def outer2(x, log):
    try:
        for v in gen(x, log, name="inner"):
            yield v * 2
    finally:
        log.append("outer")


def inside_of_one_with_cleanup(x):
    log = []
    for v in outer2(x, log):
        break
    log.append("after")
    return v, log


def outer3(x, log):
    try:
        yield from gen(x, log, name="inner")
    finally:
        log.append("outer")


def delegated_to(x):
    log = []
    for v in outer3(x, log):
        break
    log.append("after")
    return v, log


def left_by_any(x):
    log = []
    r = any(bool(v.shape[0]) for v in gen(x, log))
    log.append("after")
    return x, log, r


def held_by_its_method(x):
    log = []
    nxt = gen(x, log).__next__
    y = nxt() + nxt()
    log.append("z")
    return y, log


def zipped(x):
    log = []
    for a, b in zip(gen(x, log, 2, "a"), gen(x, log, 5, "b"), strict=False):
        log.append("body")
    log.append("after")
    return a + b, log


def returned(x):
    log = []

    def mk():
        it = gen(x, log)
        next(it)
        return it

    it = mk()
    y = next(it)
    it = None
    log.append("after")
    return y, log


def held_by_a_traceback(x):
    log = []

    def inner():
        it = gen(x, log)
        next(it)
        raise KeyError(1)

    try:
        inner()
    except KeyError:
        log.append("caught")
    log.append("after")
    return x, log


def left_by_next(x):
    log = []
    r = next(v for v in gen(x, log) if v.shape[0] > 1)
    log.append("a")
    return r, log


def dropped_below_map(x):
    log = []
    held = [gen(x, log, name="1"), gen(x, log, name="2")]
    y = list(map(lambda it: use2(it, log), held))  # noqa: C417
    return y, log


def in_a_cell(x):
    log = []
    it = gen(x, log)

    def f():
        return it

    y = next(it)
    log.append("c")
    return y, log


def in_the_cell_of_a_callee(x):
    log = []

    def sub():
        it = gen(x, log)

        def f():
            return it

        y = next(f())
        log.append("c")
        return y

    y = sub()
    log.append("d")
    return y, log


def given_back(x):
    log = []
    it = gen(x, log)
    next(it)
    return it


class CM:
    def __enter__(s):
        return s

    def __exit__(s, *a):
        s.log.append("exit")


def in_with_blocks(x):
    log = []
    c = CM()
    c.log = log

    def g():
        with c:
            yield 1
            yield 2

    with torch.no_grad():
        for v in g():
            for w in g():
                log.append("in")
                break
            break
    return x + v, log


def in_a_loop(x):
    log = []
    for i in range(3):
        for v in gen(x, log, name=str(i)):
            if i == 1:
                continue
            break
    return v, log


def closed(x):
    log = []
    it = iter(gen(x, log))
    first = next(it, None)
    rest = next(it, None)
    it.close()
    return first + rest, log


ONE_GRAPH = [
    left_by_break, one_of_a_temporary, at_its_end, deleted, two_at_the_return, in_a_mode,
    given_to_a_function,
    left_by_an_error, out_of_a_list, replaced, inside_of_one_without_cleanup,
    inside_of_one_with_cleanup, delegated_to, left_by_any, held_by_its_method, zipped, returned,
    left_by_next, in_with_blocks, in_a_loop, closed,
]  # fmt: skip
LEFT = [held_by_a_traceback, dropped_below_map, in_a_cell, in_the_cell_of_a_callee, given_back]


@pytest.mark.parametrize("function", ONE_GRAPH)
def test_in_one_graph(function):
    compiled = tc.compile(function, fullgraph=True, backend="eager")
    for number in (1.0, 2.0):
        assert str(compiled(torch.ones(2) * number)) == str(function(torch.ones(2) * number))


def _found(function, x):
    found = function(x)
    return [*found] if hasattr(found, "__next__") else found


@pytest.mark.parametrize("function", LEFT)
def test_left_to_python(function):
    compiled = tc.compile(function, backend="eager")
    for number in (1.0, 2.0):
        x = torch.ones(2) * number
        assert str(_found(compiled, x)) == str(_found(function, x))


def test_an_error_while_it_is_closed_is_reported(monkeypatch):
    def bad():
        try:
            yield 1
        finally:
            raise ValueError("in finally")

    def dropped(x):
        for v in bad():
            break
        return x + v

    hook: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda found: hook.append(str(found.exc_value)))
    assert tc.compile(dropped, backend="eager")(torch.ones(2)).tolist() == [2.0, 2.0]
    assert hook == ["in finally"]
