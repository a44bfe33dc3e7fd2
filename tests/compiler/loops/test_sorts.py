"""Sorts: which use tc's kernels; graphs around them, gradients too, give what eager gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from loop_harness import compare, externs, trace

import tc
from tc.compiler.core.gate import Gate
from tc.compiler.loops.lower.graph import lower

T = torch.Tensor
BUILT_IN = ["sorting.sort"]


def r(*shape: int) -> T:
    torch.manual_seed(3)
    return torch.randn(shape)


@pytest.mark.sample(3)
@pytest.mark.parametrize("mode", ["fake", "symbolic"])
@pytest.mark.parametrize("fn", [
    torch.sort,
    lambda x: torch.sort(x, dim=0, descending=True),
    lambda x: torch.sort(x.t(), dim=0, stable=True),
    lambda x: torch.sort((x * 2).round(), dim=1, stable=True),
    lambda x: torch.argsort(x.relu(), dim=1, stable=True, descending=True),
    lambda x: x.gather(1, x.argsort(1)) * 2,
    lambda x: torch.msort(x) + 1,
    lambda x: torch.sort(x[:, 3:]),
    lambda x: torch.sort(x[None, :, None], 1),
])  # fmt: skip
def test_built_in_sorts(fn: Callable[..., Any], mode: str) -> None:
    assert externs(compare(fn, (r(40, 90),), mode, rtol=0, atol=0)) == BUILT_IN


def test_equal_elements_are_in_eagers_order() -> None:
    x = r(90, 90).mul(9).round()
    assert externs(compare(lambda x: torch.sort(x), (x,))) == BUILT_IN


def test_a_symbolic_row_may_turn_out_long() -> None:
    graph = compare(torch.sort, (r(40, 90),), "symbolic", (r(3, 5000),), rtol=0, atol=0)
    assert externs(graph) == BUILT_IN
    compare(torch.sort, (r(40, 90),), "symbolic", (r(0, 90),))


REFUSED: dict[str, tuple[Callable[..., Any], T]] = {
    "a sort of torch.float64": (torch.sort, r(40, 90).double()),
    "a sort of torch.int64": (torch.sort, r(40, 90).long()),
    "a sort of a number": (torch.sort, torch.tensor(3.0)),
    "one row of integers, which ATen sorts with several threads": (
        lambda x: torch.sort(x, stable=True),
        r(5000).int(),
    ),
    "short rows, or few elements, to sort": (torch.sort, r(900, 7)),
    "most rows hold equal elements, whose order is that of std::sort": (torch.sort, r(2, 4097)),
    "one element, repeated, which ATen leaves as it is": (torch.sort, r(40, 1).expand(40, 90)),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_others_are_atens(reason: str) -> None:
    fn, x = REFUSED[reason]
    graph = compare(fn, (x,), rtol=0, atol=0)
    assert "sorting.sort" not in externs(graph)
    assert reason in [d.reason for d in graph.decisions]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.int32])
def test_narrow_types_are_built_in_if_stable(dtype: torch.dtype) -> None:
    x = r(40, 90).mul(9).to(dtype)
    assert externs(compare(lambda x: torch.sort(x, stable=True), (x,))) == BUILT_IN
    assert externs(compare(torch.sort, (x,))) == ["aten.sort.default"]


def test_few_and_small() -> None:
    assert externs(compare(torch.sort, (r(4, 90),))) == ["aten.sort.default"]
    assert externs(compare(torch.sort, (r(30, 90),))) == BUILT_IN


def test_a_gpu_sorts_itself() -> None:
    graph = trace(torch.sort, (r(40, 90),))
    found = lower(graph, Gate(), torch.device("cuda"))
    assert "sorting.sort" not in externs(found)


def test_gradients() -> None:
    def loss(x: T) -> T:
        values, places = x.sort(1, descending=True)
        low = x.sort(dim=0, stable=True)[0]
        return (values * torch.arange(90.0)).sum() + (low.sin() * places).sum()

    x, y = (
        r(40, 90).round(decimals=1).requires_grad_(),
        r(40, 90).round(decimals=1).requires_grad_(),
    )
    tc.compile(loss)(x).backward()
    loss(y).backward()
    torch.testing.assert_close(x.grad, y.grad, rtol=1e-5, atol=1e-4)


def test_results_keep_eagers_layout() -> None:
    x = r(90, 40).t()
    for dim in (0, 1):
        found, wanted = tc.compile(lambda x: torch.sort(x, dim))(x), torch.sort(x, dim)  # noqa: B023
        for mine, theirs in zip(found, wanted, strict=True):
            assert torch.equal(mine, theirs) and mine.stride() == theirs.stride()
