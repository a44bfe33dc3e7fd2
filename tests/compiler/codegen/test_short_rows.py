"""Short rows of which some are chosen: gcc's lanes are those of the row."""

from __future__ import annotations

import random

import pytest
import torch
import torch.nn.functional as F

import tc

READS = {
    "backwards": lambda x: x.flip(1),
    "forwards": lambda x: x.clone(),
    "every other": lambda x: x.repeat_interleave(2, 1)[:, 1::2],
}


@pytest.mark.sample(4)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.bool, torch.int16, torch.float32])
@pytest.mark.parametrize("width", [2, 3, 4, 8, 16])
@pytest.mark.parametrize("read", READS)
def test_rows_of_which_some_are_cleared(read, width, dtype):
    def clear(x):
        y = READS[read](x)
        y[y.size(0) // 2 :].zero_()
        return y

    compiled = tc.compile(clear, dynamic=True)
    for rows in (4, random.randrange(2, 99)):
        x = torch.randint(0, 5, (rows, width)).to(dtype)
        tc.mark_static(x, 1)
        assert torch.equal(compiled(x), clear(x))


def cleared(y):
    y[y.size(0) // 2 :, 1:].zero_()


def negated(y):
    y.chunk(2, 0)[-1].neg_()


def every_other(y):
    y[1::2] = y[1::2] * 2


def from_others(y):
    y[1:] = y[:-1].clone()


WRITES = (cleared, negated, every_other, from_others)
MADE = {
    "itself": lambda y: y,
    "side by side": lambda y: torch.cat([y.flip(1), y, y * 2], 1),
    "columns": lambda y: torch.stack([y[:, 0], y[:, -1] + 1, y[:, 1]], 1),
    "padded": lambda y: F.pad(y, (1, 0, 2, 1)) + 1,
    "rolled": lambda y: y.roll(1, 0) + y.roll(1, 1),
    "from the last row": lambda y: y.flip(0) * 2,
}


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    "dtype", [torch.int8, torch.uint8, torch.int16, torch.float32, torch.float64]
)
@pytest.mark.parametrize("width", [2, 3, 5, 7, 8])
@pytest.mark.parametrize("made", MADE)
@pytest.mark.parametrize("write", WRITES, ids=lambda write: write.__name__)
def test_rows_of_which_some_are_written(write, made, width, dtype):
    def program(x):
        y = x.cummax(1)[0]  # a call, so that what is written reads memory
        write(y)
        return y, MADE[made](y)

    compiled = tc.compile(program, dynamic=True)
    for rows in (4, random.randrange(2, 99), 64):
        x = torch.randint(0, 5, (rows, width + 1))[:, 1:].to(dtype)
        tc.mark_static(x, 1)
        assert [*map(torch.equal, compiled(x), program(x))] == [True, True]


def costly(x):
    return (x.exp().sin() + 1).log1p() * x.tanh()


ROUND = {
    "rolled": lambda x, by: x.roll(by, 0),
    "both ways": lambda x, by: x.roll((by, -by), (0, 1)),
    "padded round": lambda x, by: F.pad(x[None], (1, 1, by, 0), mode="circular")[0],
    "reflected": lambda x, by: F.pad(x[None], (0, 0, by, 0), mode="reflect")[0],
}
REDUCED = {
    "kept": lambda x: x,
    "by the row": lambda x: x.softmax(1),
    "by the column": lambda x: x.mean(0),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("by", [1, 2, 3])
@pytest.mark.parametrize("width", [2, 3, 5, 16])
@pytest.mark.parametrize("reduced", REDUCED)
@pytest.mark.parametrize("read", ROUND)
def test_rows_read_from_before_the_first(read, reduced, width, by, dtype):
    """Positions of the first rows are negative before the remainder, which has to be Python's."""

    def program(x):
        return REDUCED[reduced](costly(ROUND[read](x, by)) + 1)

    compiled = tc.compile(program)
    for rows in (7, 4, random.randrange(5, 600)):
        x = torch.randn(rows, width).to(dtype)
        torch.testing.assert_close(compiled(x), program(x))


REDUCTIONS = {
    "place of the largest": lambda x: x.max(-1)[1],
    "place of the smallest": lambda x: x.argmin(-1),
    "any": lambda x: (x > 1).any(-1),
    "sum": lambda x: x.sum(-1),
    "product": lambda x: x.prod(-1) + x[..., 0],
    "largest and sum": lambda x: (x.amax(-1), x.sum(-1), x * 2),
    "over two": lambda x: x.argmax(-1) + x.sum((-2, -1)).long()[..., None],
    "running": lambda x: x.cumsum(-1).argmax(-1),
    "normalised": lambda x: (x - x.double().mean(-1, keepdim=True)).argmax(-1),
    "of a column": lambda x: x.argmax(-2),
}
REPLACED = (
    lambda x: x[3:].zero_(), lambda x: x[:, 1:].neg_(), lambda x: x[..., -1].fill_(2),
    lambda x: x[::2].mul_(3), lambda x: x[:1, :, :1].add_(1),
)  # fmt: skip


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("length", [2, 3, 4, 7])
def test_reductions_of_rows_of_which_some_are_replaced(name, length):
    rng = random.Random()
    replaced = rng.choice(REPLACED)

    def program(x):
        replaced(x)
        return REDUCTIONS[name](x)

    dtype = rng.choice((torch.float32, torch.float64, torch.int64, torch.bfloat16))
    shape = (rng.randint(4, 9), rng.randint(2, 9), length)
    for number in range(3):
        x = torch.randint(-4, 5, shape).to(dtype)
        mine = x.clone()
        tc.reset()
        got = tc.compile(program, dynamic=number > 0)(mine)
        torch.testing.assert_close((got, mine), (program(x), x))
