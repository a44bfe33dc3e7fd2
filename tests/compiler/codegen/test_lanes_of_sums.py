"""Reductions over dimensions apart: elements of a short loop have their own sums."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from loop_harness import printed
from support import crossed

import tc

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int32, torch.bool)
SHAPES = ((30, 50, 40), (5, 3, 16), (7, 20, 250), (3, 2, 260), (5000, 2, 17))
REDUCED: dict[str, Callable[[torch.Tensor], object]] = {
    "sum": lambda x: x.sum((0, 2)),
    "best": lambda x: (x.amax((0, 2)), x.amin((0, 2), keepdim=True)),
    "counts": lambda x: ((x > 0).any(2).any(0), (x > 0).sum((0, 2))),
    "of much": lambda x: (x.double().exp().sum((0, 2)), x.double().sigmoid().mean((0, 2))),
    "spread": lambda x: x.double().var((0, 2)),
    "less its mean": lambda x: x.double() - x.double().mean((0, 2), keepdim=True),
}


@pytest.mark.sample(2)
@crossed(name=REDUCED, dtype=DTYPES)
def test_sums_in_lanes_agree_with_eager(name: str, dtype: torch.dtype) -> None:
    """All shapes in one graph."""

    def all_of(*inputs: torch.Tensor) -> list[object]:
        return [REDUCED[name](x) for x in inputs]

    torch.manual_seed(0)
    inputs = [torch.randn(shape).mul(2).to(dtype) for shape in SHAPES]
    bounds = {}
    if dtype.itemsize == 2:
        bounds = {"rtol": 2e-2, "atol": 0.5}
    tc.reset()
    found = tc.compile(all_of)(*inputs)
    torch.testing.assert_close(found, all_of(*inputs), **bounds)
    symbolic = tc.compile(REDUCED[name], dynamic=True)
    for x in inputs[:2]:
        torch.testing.assert_close(symbolic(x), REDUCED[name](x), **bounds)


PARTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "one of each": lambda x: x[..., 1],
    "two of each": lambda x: x[..., 1:3],
    "every other": lambda x: x.flatten(2)[..., ::2],
    "turned": lambda x: x.transpose(1, 3)[:, 2],
}


@pytest.mark.sample(6)
@crossed(name=REDUCED, part=PARTS)
def test_sums_of_elements_apart_agree_with_eager(name: str, part: str) -> None:
    def program(x: torch.Tensor) -> tuple[object, ...]:
        y = PARTS[part](x)
        rows = y.reshape(y.shape[0], y.shape[1], -1)
        return REDUCED[name](rows), rows.sum(1), y.argmax(1), y.softmax(1), y.cumsum(1)

    for dynamic in (False, True):
        tc.reset()
        compiled = tc.compile(program, dynamic=dynamic)
        for shape in ((3, 20, 9, 4), (9, 4, 70, 5)):
            x = torch.randn(shape, dtype=torch.float64)
            torch.testing.assert_close(compiled(x), program(x))


def test_special_values_in_lanes() -> None:
    special = torch.tensor([0.0, -0.0, float("inf"), -float("inf"), float("nan"), 3e38, 1.0])
    x = special[torch.randint(0, 7, (4, 30, 40))]
    for name in ("sum", "best", "counts"):
        tc.reset()
        found, wanted = tc.compile(REDUCED[name])(x), REDUCED[name](x)
        torch.testing.assert_close(found, wanted, equal_nan=True)


def test_a_gradient_summed_over_batch_and_positions() -> None:
    def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.batch_norm(x, None, None, w, w, True).relu()

    results = []
    for function in (program, tc.compile(program)):
        torch.manual_seed(0)
        x, w = torch.randn(6, 8, 7, 7, requires_grad=True), torch.ones(8, requires_grad=True)
        results.append(torch.autograd.grad(function(x, w).square().sum(), (x, w)))
    torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("shape", "in_lanes"), [((30, 50, 40), True), ((30, 50, 300), False)])
def test_only_short_loops_have_lanes(shape: tuple[int, ...], in_lanes: bool) -> None:
    code = printed(REDUCED["sum"], torch.randn(shape))
    assert bool(re.search(r"l_v0\[r1\] \+=", code)) is in_lanes


def test_positions_of_a_scatter_are_found_once_a_row() -> None:
    x, at = torch.randn(30, 12), torch.randint(-30, 30, (50,))
    code = printed(lambda x, at: x.index_fill(0, at, 0.5), x, at)
    kernel = code[code.rindex("_index_put(") :]
    assert kernel.index("tc_clip(") < kernel.index("for (long long p1")
    program = lambda x, at: x.index_fill(0, at, 0.5)  # noqa: E731
    assert torch.equal(tc.compile(program)(x, at), program(x, at))
    with pytest.raises(IndexError):
        tc.compile(program)(x, at + 100)
