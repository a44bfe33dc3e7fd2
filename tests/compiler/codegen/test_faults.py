"""Values that are an error in eager are one in kernels: bad indices, integers divided by zero."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import tc
from tc.compiler.errors import IndexOutOfRange
from tc.compiler.runtime import launch

TABLE = torch.arange(80.0).view(10, 8)


def embedding(i):
    return F.embedding(i, TABLE) * 2


def indexed(i):
    return TABLE[i] * 2


def selected(i):
    return torch.index_select(TABLE, 0, i) + 1


def gathered(i):
    return torch.gather(TABLE, 0, i[:, None].expand(-1, 8)) + 1


def summed(i):
    return TABLE[i].sum()


def summed_over_rows(i):
    return (TABLE[i] * 2).sum(0)


def rows(i):
    return TABLE[i].softmax(-1)


def pieces(i):
    return torch.cat([TABLE[i], TABLE[:2], TABLE.flip(0)[i]])


def in_an_arm(i):
    return torch.where(i < 10, TABLE[i, 0], 0.0)


def transposed(i):
    return TABLE[i].t().contiguous() + torch.ones(8, i.shape[0])


def loss(i):
    return F.cross_entropy(TABLE[: i.shape[0]], i)


READS = [
    embedding, indexed, selected, gathered, summed, summed_over_rows, rows, pieces, in_an_arm,
    transposed,
]  # fmt: skip


def outcome(function, *args):
    try:
        return function(*args)
    except (IndexError, RuntimeError) as error:
        return error


@pytest.mark.sample(3)
@pytest.mark.parametrize("function", [*READS, loss])
@pytest.mark.parametrize("last", [9, 10, -1, -11])
def test_index(function, last):
    tc.reset()
    compiled = tc.compile(function)
    drawing = tc.compile(lambda i: (function(i), torch.rand(1)))  # Python does not run it again
    for index in (torch.tensor([3, 0, last, 1]), torch.tensor([3, 0, 2, 1])):
        expected, found = outcome(function, index), outcome(compiled, index)
        if isinstance(expected, Exception):
            assert type(found) is type(expected) and str(found) == str(expected)
            found = outcome(drawing, index)
            assert isinstance(found, IndexOutOfRange) and isinstance(found, type(expected))
            assert f"test_faults.py:{function.__code__.co_firstlineno + 1}" in str(found)
        else:
            torch.testing.assert_close(found, expected)


@pytest.mark.sample(4)
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
@pytest.mark.parametrize(
    "function",
    [
        lambda a, b: a // b + 1,
        lambda a, b: a % b + 1,
        lambda a, b: torch.div(a, b, rounding_mode="trunc") + 1,
        lambda a, b: torch.fmod(a, b) + 1,
        lambda a, b: torch.where(b != 0, a // b, a),
        lambda a, b: (a // b).sum(),
        lambda a, b: torch.cat([a // b, a]),
    ],
)
def test_division(function, dtype):
    a, b = torch.arange(20).to(dtype), (torch.arange(20) + 1).to(dtype)
    compiled = tc.compile(function)
    torch.testing.assert_close(compiled(a, b), function(a, b))
    b[-1] = 0
    for called in (function, compiled):
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            called(a, b)


def test_floats_over_zero_are_no_error():
    a, b = torch.ones(4), torch.zeros(4)
    torch.testing.assert_close(tc.compile(lambda a, b: a // b + 1)(a, b), a // b + 1)


@pytest.mark.parametrize("threads", [1, 2])
def test_one_bad_index_among_many(threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        compiled = tc.compile(lambda i: (TABLE[i] * 2).exp().sin())
        for bad in (0, 70_001, 99_999):
            index = torch.zeros(100_000, dtype=torch.int64)
            compiled(index)
            index[bad] = 10
            with pytest.raises(IndexError):
                compiled(index)
    finally:
        torch.set_num_threads(before)


def test_resampling_reads_unchecked():
    def doubled(x):
        return F.interpolate(x, scale_factor=2, mode="bilinear")

    x = torch.randn(1, 2, 5, 5)
    torch.testing.assert_close(tc.compile(doubled)(x), doubled(x))


def test_without_the_launcher(monkeypatch):
    monkeypatch.setattr(launch, "launcher", lambda: None)
    compiled = tc.compile(lambda i: (indexed(i), torch.rand(1)))  # Python does not run it again
    torch.testing.assert_close(compiled(torch.tensor([1]))[0], indexed(torch.tensor([1])))
    with pytest.raises(IndexOutOfRange, match="k0_index"):
        compiled(torch.tensor([10]))


def first(x):
    return torch.zeros(x.shape[0], 1, dtype=torch.int64)


OF_NO_ROWS = {
    "gather": lambda x: x.gather(1, first(x)) * 2,
    "its sum": lambda x: x.gather(1, first(x)).sum(),
    "sums of rows": lambda x: x.gather(1, first(x) + x.shape[1]).expand(-1, 3).sum(1),
    "loss": lambda x: F.cross_entropy(x, first(x)[:, 0]),
    "sum of losses": lambda x: F.nll_loss(x, first(x)[:, 0], reduction="sum"),
    "smooth loss": lambda x: F.cross_entropy(x, first(x)[:, 0], label_smoothing=0.1),
    "joined": lambda x: torch.cat([x.gather(1, first(x)), torch.ones(2, 1)]) * 2,
    "scan": lambda x: x.gather(1, first(x)).cumsum(0),
    "quotient": lambda x: first(x) // torch.zeros(1, dtype=torch.int64),
    "remainder": lambda x: (first(x) % (first(x) * 0 + x.shape[1] * 0)).sum(),
}


@pytest.mark.sample(8)
@pytest.mark.parametrize("shape", [(0, 0), (0, 4), (3, 0), (3, 2)])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("function", OF_NO_ROWS.values(), ids=OF_NO_ROWS)
def test_nothing_is_wrong_in_no_rows(function, dynamic, shape):
    """Positions and divisors that are the same in all rows are computed before the loop."""
    x = torch.randn(shape)
    compiled = tc.compile(function, dynamic=dynamic)
    expected, found = outcome(function, x), outcome(compiled, x)
    if isinstance(expected, Exception):
        assert isinstance(found, type(expected))
    else:
        torch.testing.assert_close(found, expected, equal_nan=True)
