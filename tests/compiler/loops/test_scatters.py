"""Values taken in at computed places on a CPU: interpreters and C agree with eager, bit for bit
where one thread does it all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from loop_harness import compare, copied, externs, lowered, planned, program
from scatter_samples import CASES, aten, i, r

from tc.compiler.loops.ir import LoopGraph, Scatter
from tc.compiler.runtime.load import load

T = torch.Tensor
DTYPES = (torch.float64, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def scatters(graph: LoopGraph) -> int:
    return sum(isinstance(node, Scatter) for node in graph.nodes)


@pytest.mark.sample(4)
@pytest.mark.parametrize("mode", ["fake", "symbolic"])
@pytest.mark.parametrize("name", CASES)
def test_agrees_with_eager(name: str, mode: str) -> None:
    fn, args = CASES[name]
    graph = compare(fn, args, mode, rtol=1e-5, atol=1e-4)
    assert scatters(graph) and not externs(graph), str(graph)


@pytest.mark.sample(5)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["sum", "amax", "amin"])
@pytest.mark.parametrize("include", [True, False])
def test_types(dtype: torch.dtype, kind: str, include: bool) -> None:
    def fn(x: T, n: T, y: T) -> T:
        return x.scatter_reduce(0, n, y, kind, include_self=include)

    assert scatters(compare(fn, (r(20, 3).to(dtype), i(20, 20, 3), r(20, 3).to(dtype))))


def test_bools_are_set_and_compared() -> None:
    x, n, y = r(6) > 0, torch.tensor([3, 0]), torch.tensor([True, False])
    assert scatters(compare(lambda x, n, y: x.scatter(0, n, y), (x, n, y)))
    assert scatters(compare(lambda x, n, y: x.scatter_reduce(0, n, y, "amax"), (x, n, y)))


@pytest.mark.parametrize("kind", ["amax", "amin"])
@pytest.mark.parametrize("include", [True, False])
def test_extremes_of_special_numbers(kind: str, include: bool) -> None:
    values = torch.tensor([float("nan"), float("inf"), float("-inf"), -0.0, 0.0, 1e-30, -5.0, 7.0])
    x, y = (t.reshape(-1) for t in torch.meshgrid(values, values, indexing="ij"))
    n = torch.arange(len(x)) // 2 * 2
    compare(lambda x, n, y: x.scatter_reduce(0, n, y, kind, include_self=include), (x, n, y))


def test_of_several_values_the_last_stays(one_thread: None) -> None:
    args = (r(50, 6), i(50, 400), r(400, 6))
    assert scatters(compare(lambda x, n, y: x.index_copy(0, n, y), args))
    assert scatters(compare(lambda x, n, y: aten.index_put(x, [n], y), args))
    pairs = (r(50, 6), i(50, 400, 1), i(6, 8), r(400, 8))
    graph = compare(lambda x, n, m, y: aten.index_put(x, [n, m], y), pairs)
    assert externs(graph) == ["aten.index_put_.default"]  # its order is ATen's


LARGE: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "parts of rows": (lambda x, n, y: x.index_add(0, n, y), (r(50, 300), i(50, 500), r(500, 300))),
    "rows": (lambda x, n, y: x.scatter_add(1, n, y), (r(90, 70), i(70, 90, 999), r(90, 999))),
    "one after the other": (
        lambda x, n, y: x.index_add(0, n, y.sin()),
        (r(50), i(50, 90000), r(90000)),
    ),
    "short rows": (
        lambda g, n: aten.embedding_dense_backward(g, n, 50, -1, False),
        (r(9000, 12), i(50, 9000)),
    ),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("name", LARGE)
def test_threads_share_what_is_apart(name: str, threads: int) -> None:
    fn, args = LARGE[name]
    call = load(program(lowered(fn, args), threads))
    first = call(copied(args))[0]
    torch.testing.assert_close(first, fn(*args), rtol=1e-4, atol=1e-3)
    assert all(torch.equal(first, call(copied(args))[0]) for _ in range(3))


def test_an_index_out_of_range_is_an_error() -> None:
    graph = lowered(lambda x, n, y: x.index_add(0, n, y), (r(4), i(4, 3), r(3)))
    call = load(program(graph))
    for wrong in (4, -1, 2**40):
        with pytest.raises(IndexError, match="index out of range"):
            call([r(4), torch.tensor([0, wrong, 1]), r(3)])


def test_a_value_is_computed_where_it_is_taken_in() -> None:
    fn = lambda n, y: torch.zeros(9, 4).index_add(0, n, (y * 2).sin())  # noqa: E731
    zeros, sums = planned(lowered(fn, (i(9, 20), r(20, 4)))).kernels()
    assert not zeros.loaded and len(sums.loaded) == 2


@pytest.mark.parametrize(("fn", "args"), [
    (lambda x, n, y: x.index_add(0, n, y), (r(5).bfloat16(), i(5, 9), r(9).bfloat16())),
    (lambda x, n, y: x.scatter_reduce(0, n, y, "prod"), (r(5), i(5, 9), r(9))),
    (lambda x, m, y: aten.index_put(x, [m], y), (r(5), torch.arange(5) > 1, r())),
])  # fmt: skip
def test_others_are_atens(fn: Callable[..., Any], args: Any) -> None:
    graph = compare(fn, args)
    assert not scatters(graph) and len(externs(graph)) == 1 and "_." in externs(graph)[0]


def test_values_of_rows_are_computed_in_vectors_first() -> None:
    x, n, y = r(3, 70), i(70, 3, 90), r(3, 90)
    kernels = planned(lowered(lambda x, n, y: x.scatter_add(1, n, y.exp()), (x, n, y))).kernels()
    assert [k.bases() != {} for k in kernels] == [False, False, True]
    kernels = planned(lowered(lambda x, n, y: x.scatter_add(1, n, y * 2), (x, n, y))).kernels()
    assert [k.bases() != {} for k in kernels] == [False, True]


@pytest.mark.sample(4)
@pytest.mark.parametrize("wrong", [7, -1, 2**40, -(2**63)])
@pytest.mark.parametrize("place", [0, 5, 18])
def test_an_index_out_of_range_anywhere_in_a_row_is_an_error(wrong: int, place: int) -> None:
    fn = lambda x, n, y: x.scatter_add(1, n, y)  # noqa: E731
    x, n, y = r(3, 7), i(7, 3, 19), r(3, 19)
    call = load(program(lowered(fn, (x, n, y))))
    assert torch.equal(call([x, n, y])[0], fn(x, n, y))
    n[1, place] = wrong
    with pytest.raises(IndexError, match="index out of range"):
        call([x, n, y])


@pytest.mark.sample(2)
@pytest.mark.parametrize("shape, dim", [((3, 4), 1), ((3, 4), -2), ((), 0), ((0, 3), 1)])
def test_index_fill_counts_negative_indices_from_the_end(shape: tuple[int, ...], dim: int) -> None:
    for places in ([-1, 0], -1):
        x, n, value = torch.ones(shape), torch.tensor(places), torch.tensor(2)
        compare(lambda x, n: x.index_fill(dim, n, 3), (x, n))
        compare(lambda x, n, value: x.index_fill(dim, n, value), (x, n, value))
