"""Loops over ranges of positions, and unrolled loops where values are chosen periodically."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

import tc
from tc.compiler.loops import index as ix
from tc.compiler.loops.expr import Expr, constant, index_value, load, walk
from tc.compiler.schedule.interpret import run_kernel
from tc.compiler.schedule.plan import Kernel, Let, Store
from tc.compiler.schedule.plan import Section as Sec
from tc.compiler.schedule.split import MAX_PERIOD, split


def kernel_of(extent, period, offset=0):
    """Return a kernel that is 1 at each ``period``-th position and elsewhere what it reads."""
    i = ix.var("i0", extent)
    rest = index_value(ix.mod(i + offset, ix.const(period)))
    test = Expr("eq", (rest, constant(0, torch.int64)), torch.bool)
    read = load("x", i, torch.float32)
    value = Expr("select", (test, constant(1.0, torch.float32), read), torch.float32)
    kept = Expr("local", (), torch.float32, ("v",))
    return Kernel("k", (i,), (), (Sec("row", (Let("v", value), Store("y", i, kept))),))


def selects(kernel):
    return sum(node.op == "select" for value in kernel.values() for node in walk(value))


def test_periodic_values_are_unrolled():
    made = split(kernel_of(ix.const(12), 3, offset=1))
    assert selects(made) == 0
    assert [str(ix.as_index(section.over[2])) for section in made.sections] == ["4"]
    stores = [s for s in made.statements() if isinstance(s, Store)]
    assert [str(s.index) for s in stores] == ["3*i0", "3*i0 + 1", "3*i0 + 2"]
    values = [s.value for s in made.statements() if isinstance(s, Let)]
    assert [value.op for value in values] == ["load", "load", "const"]


def test_what_is_left_keeps_its_selects():
    made = split(kernel_of(ix.const(11), 4))
    assert [tuple(map(str, s.over[1:])) for s in made.sections] == [("0", "2"), ("8", "11")]
    symbolic = split(kernel_of(ix.size("s0"), 2))
    assert len(symbolic.sections) == 2


@pytest.mark.parametrize("period", [1, MAX_PERIOD + 1])
def test_long_periods_are_left(period):
    kernel = kernel_of(ix.const(64), period)
    assert split(kernel) is kernel


def part(rng, n):
    start, step = rng.randint(0, 3), rng.randint(2, 5)
    stop = rng.choice((n, n - 1, n - 2))
    return f"{start}:{stop}:{step}"


WRITES = (
    "y = t * 2; y[..., {one}] = t[..., {one}].exp(); r = y + 1",
    "y = torch.zeros_like(t); y[..., {one}] += t[..., {one}]; r = y",
    "y = t.clone(); y[{rows}] = 3; r = y * t",
    "r = t[..., {one}].sin()",
    "r = torch.cat((t[..., {one}], t[..., {two}]), -1) * 2",
    "y = t + 0; y[..., {one}] = 0; y[..., {two}] *= 2; r = y",
)


def agree(text, dynamic, sizes):
    """Compare a program of one tensor with eager, with its gradients, at each size."""
    space = {"torch": torch, "F": F}
    exec(text, space)
    program, compiled = space["program"], tc.compile(space["program"], dynamic=dynamic)
    for size in sizes:
        x = torch.randn(size, dtype=torch.float64, requires_grad=True)
        want, got = program(x), compiled(x)
        torch.testing.assert_close(got, want, msg=text)
        weight = torch.randn_like(want)
        grads = [torch.autograd.grad(out, x, weight)[0] for out in (got, want)]
        torch.testing.assert_close(*grads, msg=text)


@pytest.mark.sample(3)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("write", WRITES)
def test_programs_and_their_gradients(write, dynamic):
    rng = random.Random()
    rows, columns = rng.randint(5, 9), rng.randint(9, 40)
    filled = write.format(one=part(rng, columns), two=part(rng, columns), rows=part(rng, rows))
    text = f"def program(t):\n    {filled}\n    return r\n"
    agree(text, dynamic, ((rows, columns), (rows + 1, columns + 2)))


def reading(index, extent):
    """Return a kernel that reads at an index of its last loop."""
    i = ix.var("i0", extent)
    kept = Expr("local", (), torch.float32, ("v",))
    value = Let("v", load("x", index(i), torch.float32))
    return Kernel("k", (i,), (), (Sec("row", (value, Store("y", i, kept))),))


def reads(kernel):
    return [str(use.data[1]) for value in kernel.values() for use in value.loads()]


def test_a_repeated_row_is_read_range_by_range():
    made = split(reading(lambda i: ix.mod(i, ix.const(20)), ix.const(60)))
    assert [tuple(map(str, s.over[1:])) for s in made.sections] == [
        ("0", "20"),
        ("20", "40"),
        ("40", "60"),
    ]
    assert reads(made) == ["i0", "i0 - 20", "i0 - 40"]
    size = ix.size("s0")
    assert reads(split(reading(lambda i: ix.mod(i, size), size * 2))) == ["i0", "i0 - s0"]
    often = reading(lambda i: ix.mod(i, ix.const(20)), ix.const(2000))
    assert split(often) is often


def test_interleaved_reads_are_unrolled():
    def shuffled(i):
        return ix.mod(i, ix.const(3)) * 100 + ix.floordiv(i, ix.const(3))

    made = split(reading(shuffled, ix.const(11)))
    assert reads(made)[:3] == ["i0", "i0 + 100", "i0 + 200"]
    assert [str(s.over[2]) for s in made.sections] == ["3", "11"]
    inner = Expr("local", (), torch.float32, ("v",))
    i, j = ix.var("i0", ix.const(11)), ix.var("i1", ix.const(4))
    value = Let("v", load("x", shuffled(i) * 4 + j, torch.float32))
    rows = Kernel("k", (i, j), (), (Sec("row", (value, Store("y", i * 4 + j, inner))),))
    assert split(rows) is rows  # a division in each row costs little


MOVES = (
    "x.repeat({a}, {b})",
    "x.repeat({a}, 1, {b})",
    "torch.tile(x.exp(), ({b},)) * 2",
    "x.repeat(1, {a})[:, {a}:] + 1",
    "x.roll({a}, -1).repeat(1, {b})",
    "x.repeat_interleave({a}, -1) + x.repeat(1, {a})",
    "F.pixel_shuffle(x.expand(2 * {b} * {b}, *x.shape).sin(), {b})",
    "F.pixel_unshuffle(F.pixel_shuffle(x.expand(2, {b} * {b}, *x.shape), {b}), {b}) * x",
    "F.channel_shuffle(x.repeat({a}, 1)[None], {a})",
    "x.view(-1, 1).expand(-1, {a}).reshape(-1).repeat({b})",
    "torch.kron(x, x[:{a}, :{b}])",
    "torch.stack([x, x * 2, x.cos()][:{b}], -1).flatten(1)",
)


@pytest.mark.sample(4)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("move", MOVES)
def test_moved_elements_and_their_gradients(move, dynamic):
    rng = random.Random()
    moved = move.format(a=rng.randint(2, 10), b=rng.randint(2, 3))
    rows, columns = rng.randint(2, 12), rng.randint(2, 40)
    text = f"def program(x):\n    return {moved}\n"
    agree(text, dynamic, ((rows, columns), (rows + 1, columns + 3)))


#: masks that cross the rows of ``x`` at different places
MASKS = (
    "x.tril({d})",
    "x.triu({d}) * 2",
    "x.sin().tril({e}).triu({d} - 3)",
    "x.T.tril({d})",
    "torch.where(row {op} column + {d}, x, x.exp())",
    "torch.where(column - {d} {op} row, x * 2, -1)",
    "torch.where((column <= row) & (column + {e} > row), x, 0.5)",
    "torch.where((row - column {op} {d}) & (x > 0), x, x * x)",
    "F.pad(x, (2, 3)).tril({d})",
    "torch.stack([x, x + 1]).triu({d}).transpose(0, 1)",
    "torch.cat([x.tril({d}), x.triu({e})], -1)",
    "x.clone().tril_({d}) + torch.ones_like(x).triu_({e})",
    "x.masked_fill(~torch.ones(x.shape, dtype=torch.bool).tril({d}), 3)",
)


@pytest.mark.sample(5)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("mask", MASKS)
def test_masks_that_cross_rows_and_their_gradients(mask, dynamic):
    rng = random.Random()
    rows, columns = rng.choice(((3, 200), (90, 90), (150, 70), (200, 66), (70, 64)))
    op, d, e = rng.choice(("<", "<=", ">", ">=")), rng.randint(-80, 80), rng.randint(0, 9)
    row = "row, column = torch.arange(x.shape[0])[:, None], torch.arange(x.shape[1])"
    text = f"def program(x):\n    {row}\n    return {mask.format(op=op, d=d, e=e)}\n"
    agree(text, dynamic, ((rows, columns), (rows + 5, columns + 1)))


def test_a_triangle_is_two_ranges_of_each_row():
    i, j = ix.var("i0", ix.const(90)), ix.var("i1", ix.const(70))
    test = Expr("le", (index_value(j), index_value(i + 2)), torch.bool)
    read = load("x", i * 70 + j, torch.float32)
    value = Expr("where", (test, read, constant(0.0, torch.float32)), torch.float32)
    kept = Expr("local", (), torch.float32, ("v",))
    kernel = Kernel("k", (i, j), (), (Sec("row", (Let("v", value), Store("y", i * 70 + j, kept))),))
    made = split(kernel)
    assert [tuple(map(str, s.over[1:])) for s in made.sections] == [
        ("0", "min(70, i0 + 3)"),
        ("min(70, i0 + 3)", "70"),
    ]
    assert [s.value.op for s in made.statements() if isinstance(s, Let)] == ["load", "const"]
    x, y = torch.randn(90, 70), torch.empty(90, 70)
    run_kernel(made, {"x": x, "y": y})
    assert torch.equal(y, x.tril(2))
    narrow = replace(kernel, outer=(ix.var("i0", ix.const(90)), ix.var("i1", ix.const(20))))
    assert split(narrow) is narrow
