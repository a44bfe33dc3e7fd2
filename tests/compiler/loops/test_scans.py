"""Scans: fused with what stands around them, along and across memory, equal to eager's."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from loop_harness import compare, externs, lowered, planned

import tc
from tc.compiler.loops.ir import Scan
from tc.compiler.loops.lower import scan
from tc.compiler.loops.scans import SCANS

T = torch.Tensor
KINDS: dict[str, Callable[[T, int], tuple[T, ...]]] = {
    "sum": lambda x, d: (x.cumsum(d),),
    "prod": lambda x, d: (x.cumprod(d),),
    "logsumexp": lambda x, d: (x.logcumsumexp(d),),
    "max": lambda x, d: tuple(x.cummax(d)),
    "min": lambda x, d: tuple(x.cummin(d)),
}


@pytest.fixture
def always(monkeypatch):
    """All scans are made of loops, also where ATen is faster."""
    monkeypatch.setattr(scan, "_better_here", lambda *_: None)


def r(*shape: int) -> T:
    torch.manual_seed(3)
    return torch.randn(shape)


@pytest.mark.sample(2)
@pytest.mark.parametrize("mode", ["fake", "symbolic"])
@pytest.mark.parametrize("kind", KINDS)
def test_rows_longer_than_a_strip(kind: str, mode: str, always: None) -> None:
    x = r(3, 611)
    x[1, 300:310] = float("nan")
    x[2, 5], x[2, 7] = float("inf"), float("-inf")
    graph = compare(lambda x: KINDS[kind](x, 1), (x,), mode)
    assert not externs(graph)
    assert sum(isinstance(node, Scan) for node in graph.nodes) == (2 if kind[0] == "m" else 1)


@pytest.mark.sample(2)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16, torch.int32])
def test_other_types_along_memory(dtype: torch.dtype, always: None) -> None:
    x = (r(2, 300) * 2).to(dtype)
    compare(lambda x: (x.cumsum(1), *x.cummax(1), *x.cummin(1)), (x,))
    compare(lambda x: x.cumprod(1), (x[:, :8].contiguous(),))


def test_products_neither_overflow_nor_vanish_early(always: None) -> None:
    x = torch.tensor([[1e-38] * 4 + [1e38] * 5, [0.0] + [3e38] * 8, [3e38] * 5 + [1e-38] * 4])
    compare(lambda x: x.cumprod(1), (x,))


def test_the_newest_of_equals_is_the_place() -> None:
    x = torch.tensor([3, 3, 1, 3, 0, 0]).repeat(9, 1).t().contiguous()
    compare(lambda x: (*x.cummax(0), *x.cummin(0)), (x,))


@pytest.mark.parametrize("dim, kernels", [(1, 1), (0, 1)])
def test_neighbours_share_the_kernel(dim: int, kernels: int) -> None:
    def fn(x: T, y: T) -> tuple[T, ...]:
        total = (x.exp() * y).cumsum(dim)
        return (total * 2 + y).relu(), total.amax(dim), total.sum(dim), x.exp().cumprod(dim)

    graph = compare(fn, (r(300, 300) * 0.1, r(300, 300)), rtol=1e-4, atol=1e-4)
    assert len(planned(graph).kernels()) == kernels


def test_a_scan_of_a_scan_and_of_what_a_reduction_gave() -> None:
    def fn(x: T) -> tuple[T, ...]:
        y = x.softmax(1).cumsum(1)
        return y, y.cumsum(1) * 2, y / y.amax(1, keepdim=True)

    compare(fn, (r(4, 400),))
    compare(lambda x: x.softmax(0).cumsum(0).cumsum(0) + x, (r(40, 30),))


def test_sums_of_long_rows_that_are_scanned_are_taken_in_blocks() -> None:
    def fn(x: T) -> tuple[T, ...]:
        y = x.exp().cumsum(1)
        return y, y.sum(1), y.amax(1), x.sum(1)

    compare(fn, (r(2, 9000) * 0.1,), rtol=1e-4, atol=1e-3)


def test_what_reads_elsewhere_waits() -> None:
    def fn(x: T) -> tuple[T, ...]:
        y = x.cumsum(1)
        return y.flip(1) + 1, y - y[:, :1], (x.flip(1).cumsum(1)).flip(1)

    compare(fn, (r(4, 300),), rtol=1e-4, atol=1e-5)


@pytest.mark.sample(2)
@pytest.mark.parametrize("shape", [(0, 9), (9, 0), (1, 300), (300,)])
def test_odd_sizes(shape: tuple[int, ...]) -> None:
    compare(lambda x: (x.cumsum(0), x.cumsum(-1) + 1), (r(*shape),))


def test_where_aten_is_faster_it_is_called() -> None:
    assert externs(lowered(lambda x: x.cumsum(1), (r(3, 20),)))
    assert externs(lowered(lambda x: x.long().cumsum(1), (r(3, 700),)))
    assert externs(lowered(lambda x: x.logcumsumexp(1), (r(3, 700),)))
    assert not externs(lowered(lambda x: x.logcumsumexp(0), (r(3, 700),)))


def test_every_kind_has_a_meaning() -> None:
    x = torch.tensor([[2.0, 1.0, 2.0]])
    shown = {name: row.python(x, 1).tolist()[0] for name, row in SCANS.rows()}
    assert shown["sum"] == [2, 3, 5]
    assert shown["prod"] == [2, 2, 4]
    assert shown["argmax"] == [0, 0, 2]
    assert shown["argmin"] == [0, 1, 1]
    assert shown["max"] == [2, 2, 2]
    assert shown["min"] == [2, 1, 1]


ONES = {
    name: lambda x, d, name=name: getattr(x, name)(d)
    for name in ("sum", "nansum", "mean", "prod", "logsumexp", "cumsum", "cumprod", "logcumsumexp")
}


@pytest.mark.sample(6)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("shape", [(4, 1), (1, 4), ()])
@pytest.mark.parametrize("kind", ONES)
def test_sums_of_one_value_have_the_sign_of_zero_that_eager_gives(
    kind: str, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    x = torch.full(shape, -0.0, dtype=dtype)
    for dim in range(-len(shape), 0) or (0,):
        want, got = (f(lambda x, d=dim: ONES[kind](x, d))(x) for f in (lambda f: f, tc.compile))
        assert torch.equal(got, want) and torch.equal(got.signbit(), want.signbit())


@pytest.mark.sample(2)
@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("kind", KINDS)
def test_a_size_that_is_known_to_be_one_later_is_spelled_as_the_results(kind, dim):
    def f(x):
        return KINDS[kind](x[(x.size(0) + 1) // 2 :], dim)

    for rows in (2, 5, 6):
        x = torch.randn(rows, 1)
        torch.testing.assert_close(tc.compile(f, dynamic=True)(x), f(x))
