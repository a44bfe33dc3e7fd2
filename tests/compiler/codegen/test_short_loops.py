"""Loops too short for vectors: the one around them is vectorised, and results stay eager's."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from support import crossed

import tc
from tc.trace import capture_events

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
ROWS: dict[str, Callable[[torch.Tensor], object]] = {
    "sum": lambda x: x.sum(-1),
    "two sums": lambda x: (x.exp().sum(-1), (x * x).amax(-1)),
    "softmax": lambda x: x.softmax(-1),
    "both": lambda x: (x.sigmoid(), x.sigmoid().sum(-1)),
    "norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "mean": lambda x: x - x.tanh().mean(-1, keepdim=True),
    "lower": lambda x: torch.logsumexp(x, -1) + x[..., 0],
    "positions": lambda x: x + torch.arange(x.shape[-1]).sum(),
    "best": lambda x: x.argmax(-1),
    "pointwise": lambda x: torch.log1p(x.abs()) * torch.sigmoid(x),
    "plain": lambda x: x + 1,
    "in place": lambda x: x.mul_(2).exp().sum(-1),
}


@pytest.mark.sample(1)
@crossed(name=ROWS, dtype=FLOATS)
def test_short_rows_agree_with_eager(name: str, dtype: torch.dtype) -> None:
    """All shapes in one graph: rows of different lengths share no kernel."""
    sizes = ((1, 3), (15, 2), (67, 3), (70, 4), (129, 5), (64, 8), (200, 17), (65, 31))

    def all_of(*inputs: torch.Tensor) -> list[object]:
        return [ROWS[name](x) for x in inputs]

    tc.reset()
    torch.manual_seed(0)
    wide = [torch.randn(rows, length + 3).to(dtype)[:, 1:-2] for rows, length in sizes]
    wanted = all_of(*(x.clone() for x in wide))
    found = tc.compile(all_of)(*(x.clone() for x in wide))
    bounds = {} if dtype.itemsize > 2 else {"rtol": 2e-2, "atol": 2e-2}
    torch.testing.assert_close(found, wanted, equal_nan=True, **bounds)


@pytest.mark.sample(2)
@pytest.mark.parametrize("length", [2, 5, 16, 24])
def test_special_values_in_short_rows(length: int) -> None:
    x = torch.tensor([0.0, -0.0, float("inf"), -float("inf"), float("nan"), 1e-40, 3e38, 1.0])
    x = x.repeat(length * 40).view(-1, length)[torch.randperm(length * 320 // length)]
    for function in (ROWS["softmax"], ROWS["two sums"], ROWS["pointwise"]):
        tc.reset()
        torch.testing.assert_close(tc.compile(function)(x), function(x), equal_nan=True)


def test_short_rows_under_loops_and_broadcasts() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        z = torch.erf(x * y)
        return z, z.sum((-1, -2)), torch.logsumexp(z, -1), z.amax(1)

    x, y = torch.randn(3, 70, 2, 5).transpose(0, 1), torch.randn(2, 1)
    torch.testing.assert_close(tc.compile(program)(x, y), program(x, y))


def test_short_rows_in_parallel() -> None:
    x = torch.randn(40001, 5)
    with tc.config.patch(threads=2):
        for name in ("softmax", "two sums", "pointwise"):
            tc.reset()
            torch.testing.assert_close(tc.compile(ROWS[name])(x), ROWS[name](x))


def code_of(function: Callable[..., object], *arguments: torch.Tensor) -> str:
    tc.reset()
    with capture_events() as events, tc.config.patch(fx_graph_cache=False):
        tc.compile(function)(*arguments)
    made = [getattr(item, "event", item) for item in events]
    return "".join(e.code for e in made if type(e).__name__ == "OutputCode")


def test_the_loop_over_rows_is_the_vectorised_one() -> None:
    code = code_of(lambda x: x.sum(-1), torch.randn(500, 4))
    assert re.search(r"#pragma omp simd\n +for \(long long p\d", code)
    for length in (4, 5, 8):
        code = code_of(lambda x: torch.logsumexp(x, -1), torch.randn(500, length))
        assert re.search(r"#pragma omp simd\n +for \(long long of", code)
    code = code_of(lambda x: torch.erf(x), torch.randn(600, 8)[:, 1:-2])
    assert re.search(r"#pragma omp simd\n +for \(long long flat", code)


@pytest.mark.sample(2)
@crossed(dtype=FLOATS, length=[3, 6, 31], dynamic=[False, True])
def test_rows_that_are_stored_and_read_again(
    dtype: torch.dtype, length: int, dynamic: bool
) -> None:
    """What a kernel returns as well, and reads in a later loop over the row."""

    def program(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        z = x + y * 2
        normal = torch.nn.functional.layer_norm(z, (length,))
        return z, normal, (z * z).sum(-1), torch.softmax(z, -1)

    tc.reset()
    run = tc.compile(program, dynamic=dynamic)
    for rows in (70, 5, 0):
        x, y = torch.randn(rows, length, dtype=dtype), torch.randn(rows, length, dtype=dtype)
        wanted = program(*(a.double() for a in (x, y)))
        bound = 8 * torch.finfo(dtype).eps * max(length, 8)
        for got, want in zip(run(x, y), wanted, strict=True):
            torch.testing.assert_close(got.double(), want, rtol=bound, atol=bound)


def test_rows_without_elements() -> None:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.sum(-1), torch.erf(x).sum((0, 1)), torch.softmax(x, -1)

    x = torch.randn(70, 40, 0)
    tc.reset()
    for got, want in zip(tc.compile(program)(x), program(x), strict=True):
        assert got.equal(want)
