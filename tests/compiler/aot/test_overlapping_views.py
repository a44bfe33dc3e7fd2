"""Writes through views of which two elements, or more, are one place in memory."""

from __future__ import annotations

import random

import pytest
import torch

import tc


def row_of_windows(x):
    y = x.clone()
    y.as_strided((2, 2), (1, 1))[0].mul_(2)
    return y, y * 3


def row_of_repeated(x):
    y = x.clone()
    rows = y.as_strided((3, 2), (0, 2))
    rows.select(0, 1).add_(1)
    return rows.t(), y


def window_of_unfolded(x):
    y = x.clone()
    y.unfold(0, 2, 1)[1].mul_(2)
    return y


def row_of_expanded(x):
    y = x.clone()
    rows = y.expand(2, x.shape[0])
    rows[0].mul_(2)
    return y, rows + 0


def row_of_input(x):
    x.as_strided((3, 2), (1, 1))[2].zero_()
    return x + 1


PROGRAMS = (row_of_windows, row_of_repeated, window_of_unfolded, row_of_expanded, row_of_input)


@pytest.mark.sample(5)
@pytest.mark.parametrize("backend", ["inductor", "aot_eager"])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_a_write_through_a_part_without_repetitions_is_eagers(program, dynamic, backend):
    tc.reset()
    compiled = tc.compile(program, backend=backend, dynamic=dynamic)
    for size in (5, 6):
        x = torch.randn(size)
        mine = x.clone()
        wanted = program(x)
        torch.testing.assert_close((compiled(mine), mine), (wanted, x))


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_views_of_new_memory_with_gaps_are_laid_out_as_in_eager(backend):
    def gaps(x):
        return x.new_empty_strided((4,), (2,)).copy_(x)

    programs = (
        lambda x: gaps(x)[1:],
        lambda x: gaps(x).unsqueeze(0).expand(3, -1),
        lambda x: gaps(x).unsqueeze(0).expand(3, -1)[:, 1:],
        lambda x: (lambda y: (y[1:], y.unsqueeze(0).expand(3, -1), y * 2))(gaps(x)),
    )
    for program in programs:
        x = torch.randn(4)
        found, wanted = (f(x) for f in (tc.compile(program, backend=backend), program))
        torch.testing.assert_close(found, wanted, check_stride=True)


LAYOUTS = {
    "steps": lambda x: x[::2, ::2],
    "columns": lambda x: x[:, 1:3],
    "rows": lambda x: x[2:],
    "transposed": lambda x: x.t()[::3],
    "all": lambda x: x,
}
PARTS = (
    lambda v: v,
    lambda v: v[1:],
    lambda v: v[:, -1],
    lambda v: v.t()[0],
    lambda v: v.chunk(2)[-1],
)


@pytest.mark.sample(3)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_as_strided_shows_memory_that_its_tensor_has_not(layout, dynamic):
    rng = random.Random()
    for _ in range(6):
        written, viewed = rng.choice(PARTS), rng.choice(PARTS)
        early, of_new = rng.random() < 0.5, rng.random() < 0.3

        def program(x, written=written, viewed=viewed, early=early, of_new=of_new):
            x = LAYOUTS[layout](x * 1) if of_new else x
            view = viewed(x).as_strided((3, 2), (2, 1)) if early else None
            written(x).neg_()
            view = viewed(x).as_strided((3, 2), (2, 1)) if view is None else view
            return view + 1, x * 2

        tc.reset()
        compiled = tc.compile(program, dynamic=dynamic)
        for rows in (6, 8):
            x = torch.arange(rows * 7.0).reshape(rows, 7)
            mine = x.clone()
            given = (x, mine) if of_new else (LAYOUTS[layout](x), LAYOUTS[layout](mine))
            wanted = program(given[0])
            torch.testing.assert_close((compiled(given[1]), mine), (wanted, x), rtol=0, atol=0)
