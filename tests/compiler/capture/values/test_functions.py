"""Functions, their cells, and partial functions, beside Python."""

from __future__ import annotations

import types
from typing import Any, ClassVar

import pytest
import torch

import tc


def family():
    """Return functions that read, bind and unbind one variable, which is unbound at first."""
    if 0:
        held = 0

    def read(x):
        try:
            return x + held
        except NameError:
            return x - 1

    def bind(value):
        nonlocal held
        held = value

    def unbind():
        nonlocal held
        del held

    return read, bind, unbind


def of_own_cell():
    read, bind, unbind = family()
    return read, bind, unbind


def of_a_callees_cell():
    read, bind, unbind = family()
    return lambda x: read(x) * 2, bind, unbind


def of_the_cell_itself():
    read, bind, unbind = family()
    cell = read.__closure__[0]

    def contents(x):
        try:
            return x + cell.cell_contents
        except ValueError as error:
            return x - len(str(error))

    return contents, bind, unbind


@pytest.mark.parametrize("make", [of_own_cell, of_a_callees_cell, of_the_cell_itself])
def test_a_cell_that_is_filled_or_emptied_later_is_read_again(make):
    function, bind, unbind = make()
    compiled = tc.compile(function, backend="eager")
    x = torch.ones(2)
    for value in (None, 5, None, torch.ones(2), None, None):
        if value is not None:
            bind(value)
        torch.testing.assert_close(compiled(x), function(x))
        if value is not None:
            unbind()


def test_many_empty_cells_are_guarded():
    def make():
        if 0:
            a = b = c = d = e = f = g = h = i = 0

        def read(x):
            for look in (
                lambda: a, lambda: b, lambda: c, lambda: d, lambda: e, lambda: f, lambda: g,
                lambda: h, lambda: i,
            ):  # fmt: skip
                try:
                    x = x + look()
                except NameError:
                    x = x - 1
            return x

        def bind():
            nonlocal i
            i = 7

        return read, bind

    read, bind = make()
    compiled = tc.compile(read, backend="eager")
    x = torch.ones(2)
    for _ in range(2):
        torch.testing.assert_close(compiled(x), read(x))
        torch.testing.assert_close(compiled(x), read(x))
        bind()


def test_a_cell_that_is_the_frames_own_and_empty_is_guarded_at_its_other_source():
    def make():
        if 0:
            held = 0

        def read(x):
            try:
                return x + held
            except NameError:
                return x - 1

        def both(x, other):
            return read(x), other(x)

        def bind(value):
            nonlocal held
            held = value

        return read, both, bind

    read, both, bind = make()
    others = read, make()[0], make()
    others[2][2](5)
    compiled, x = tc.compile(both, backend="eager"), torch.ones(2)
    for _ in range(2):
        for other in (*others[:2], others[2][0], read):
            torch.testing.assert_close(compiled(x, other), both(x, other))
        bind(7)


def defaults_are_replaced(x):
    def g(y, k=1, *, q=2):
        return y + k * q

    g.__defaults__ = (5,)
    g.__kwdefaults__ = {"q": 3}
    return g(x), g.__defaults__, g.__kwdefaults__


def keyword_defaults_are_changed(x):
    def g(y, *, k=1, q=2):
        return y + k * q

    shared = g.__kwdefaults__
    shared["k"] = 4
    first = g(x)
    g.__kwdefaults__.update(k=x, q=9)
    second = g(x)
    del shared["q"]
    try:
        g(x)
    except TypeError as error:
        return first, second, str(error), shared is g.__kwdefaults__


def defaults_are_taken_away(x):
    def g(y, k=1, *, q=2):
        return y + k * q

    g.__defaults__ = g.__kwdefaults__ = None
    try:
        g(x)
    except TypeError as error:
        return g(x, 1, q=2), str(error), g.__defaults__, g.__kwdefaults__


def code_is_replaced(x):
    g, h = (lambda y: y + 1), (lambda y: y + 2)
    g.__code__ = h.__code__
    return g(x)


def annotations_are_changed(x):
    def g(y):
        return y

    g.__annotations__["y"] = int
    return g(x), g.__annotations__


def attributes_are_deleted(x):
    def g(y):
        return y

    g.first, g.second = 1, 2
    del g.first
    return g(x) * g.second, hasattr(g, "first"), vars(g)


def of_another_module(x):
    g = another_module.make(3)
    return g(x), g.__kwdefaults__, g.__name__


class another_module(types.ModuleType):
    """A stand-in for another module, whose functions have globals of their own."""

    space: ClassVar[dict[str, Any]] = {}
    exec("def make(k):\n def g(y, a=2, *, q=1): return y + k + a + q\n return g", space)
    make = space["make"]


CHANGES = [
    defaults_are_replaced,
    keyword_defaults_are_changed,
    defaults_are_taken_away,
    code_is_replaced,
    annotations_are_changed,
    attributes_are_deleted,
    of_another_module,
]


@pytest.mark.parametrize("program", CHANGES)
def test_calls_see_what_was_stored_in_a_new_function(program):
    x = torch.arange(3.0)
    assert_equal(tc.compile(program, backend="eager", fullgraph=True)(x), program(x))


def assert_equal(found, expected):
    """Compare results of programs: tensors by value, all else by equality."""
    if isinstance(expected, torch.Tensor):
        torch.testing.assert_close(found, expected)
    elif isinstance(expected, tuple):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_equal(one, other)
    else:
        assert found == expected


def test_a_function_that_is_returned_has_what_was_stored_in_it():
    def f(x):
        def g(y, *, k=1):
            return y + k

        g.__kwdefaults__["k"] = x
        g.__defaults__ = (4,)
        g.tag = "t"
        return g, another_module.make(x)

    g, other = tc.compile(f, backend="eager")(torch.ones(2))
    assert (g().tolist(), g.tag) == ([5, 5], "t")
    assert (other(1).tolist(), other.__globals__) == ([5, 5], another_module.space)


def make_counted():
    def counted(x):
        counted.__dict__["last"] = len(counted.seen)
        counted.calls += counted.last
        counted.seen.append(counted.last)
        counted.__kwdefaults__["step"] += 1
        return x * counted.calls + step_of()

    def step_of(*, step=1):
        return step

    counted.calls, counted.seen = 0, []
    counted.__kwdefaults__ = step_of.__kwdefaults__
    return counted


def test_attributes_of_real_functions_are_stored_without_a_break():
    functions = make_counted(), make_counted()
    compiled = tc.compile(functions[1], backend="eager", fullgraph=True)
    for i in range(4):
        assert torch.equal(compiled(torch.ones(2)), functions[0](torch.ones(2)))
        if i == 2:
            for one in functions:
                one.calls = 10
                one.__kwdefaults__["step"] = 7
        states = [(f.__dict__, f.__kwdefaults__) for f in functions]
        assert states[0] == states[1]
