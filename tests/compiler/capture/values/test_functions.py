"""Functions, their cells, and partial functions, beside Python."""

from __future__ import annotations

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
