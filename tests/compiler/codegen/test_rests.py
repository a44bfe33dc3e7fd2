"""Rows that are no whole number of vectors: the rest is one masked vector."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from loop_harness import printed
from support import crossed

import tc

FLOATS = (torch.float32, torch.float64, torch.bfloat16)
SPECIAL = (0.0, -0.0, float("inf"), -float("inf"), float("nan"), 1e-40, 3e38, 1.0)
ROWS: dict[str, Callable[[torch.Tensor, torch.Tensor], object]] = {
    "softmax": lambda x, y: (x + y).softmax(-1),
    "log_softmax": lambda x, y: F.log_softmax(x * y, -1),
    "best": lambda x, y: ((x * y).exp().amax(-1), (x - y).amin(-1)),
    "sums": lambda x, y: (x.sigmoid().sum(-1), (x * y).tanh().sum((-1, -2))),
    "column": lambda x, y: torch.where(x > x[..., :1], x.exp() * y, y.neg()),
    "mask": lambda x, y: torch.where(x > 0, x.expm1(), y) > 0.5,
    "counts": lambda x, y: (x > y).sum(-1),
    "whole": lambda x, y: torch.sigmoid(x).mul(100).to(torch.int64) + torch.arange(x.shape[-1]),
    "in place": lambda x, y: x.mul_(y).sigmoid_().add_(1),
    "long": lambda x, y: ((x.sin() * y).exp().log1p() + y).tanh(),
    "long sums": lambda x, y: ((x.sin() * y).exp().log1p() + y).tanh().sum(-1),
}


@pytest.mark.sample(3)
@crossed(name=ROWS, dtype=FLOATS)
def test_rows_with_a_rest_agree_with_eager(name: str, dtype: torch.dtype) -> None:
    """All lengths in one graph; symbolic ones in another."""

    def all_of(*inputs: tuple[torch.Tensor, torch.Tensor]) -> list[object]:
        return [ROWS[name](x, y) for x, y in inputs]

    torch.manual_seed(0)
    inputs = []
    for length in (19, 31, 33, 40, 63, 100, 250):
        x = torch.randn(3, 5, length + 3).to(dtype)[..., 1:-2]
        inputs.append((x, torch.randn(length).to(dtype)))
    bounds = {} if dtype.itemsize > 2 else {"rtol": 2e-2, "atol": 2e-2}
    wanted = all_of(*((x.clone(), y) for x, y in inputs))
    tc.reset()
    found = tc.compile(all_of)(*((x.clone(), y) for x, y in inputs))
    torch.testing.assert_close(found, wanted, equal_nan=True, **bounds)
    symbolic = tc.compile(ROWS[name], dynamic=True)
    for x, y in inputs[::2]:
        x = x.clone()
        torch.testing.assert_close(symbolic(x.clone(), y), ROWS[name](x, y), **bounds)


def test_special_values_in_a_rest() -> None:
    x = torch.tensor(SPECIAL).repeat(21).roll(3)[:45].expand(20, 45).contiguous()
    y = torch.ones(45)
    for name in ("softmax", "best", "column", "mask", "sums"):
        function = ROWS[name]
        tc.reset()
        torch.testing.assert_close(tc.compile(function)(x, y), function(x, y), equal_nan=True)


def test_nothing_beyond_a_rest_is_read_or_written() -> None:
    """Memory around the operands and results keeps its values, and none of it is in these."""

    def program(x: torch.Tensor, out: torch.Tensor) -> None:
        out.copy_((x * 2).exp())
        x.add_(out.softmax(-1))

    for length in (17, 41, 250):
        wide, results = torch.full((4, length + 40), torch.nan), torch.full((4, length + 40), 7.0)
        wide[:, 20 : 20 + length] = torch.randn(4, length)
        kept = wide.clone()
        tc.reset()
        tc.compile(program)(wide[:, 20 : 20 + length], results[:, 20 : 20 + length])
        program(kept[:, 20 : 20 + length], results[:, 20 : 20 + length].clone())
        torch.testing.assert_close(wide, kept, equal_nan=True)
        assert (results[:, :20] == 7).all() and (results[:, 20 + length :] == 7).all()


def test_parts_of_unknown_lengths_end_where_they_end() -> None:
    """The parts of a joined row start at sums of sizes, and none is longer than it is."""

    def program(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
        out.copy_(torch.cat((a, b, a), -1).exp())

    for one, other in ((3, 260), (16, 100), (33, 31)):
        a, b = torch.randn(3, one), torch.randn(3, other)
        results = torch.full((3 + 2, 2 * one + other), 7.0)
        tc.reset()
        tc.compile(program, dynamic=True)(a, b, results[:3])
        torch.testing.assert_close(results[:3], torch.cat((a, b, a), -1).exp())
        assert (results[3:] == 7).all()


@pytest.mark.parametrize(("dtype", "whole"), [(torch.float32, 240), (torch.float64, 248)])
def test_the_rest_of_a_row_is_one_vector(dtype: torch.dtype, whole: int) -> None:
    x, y = torch.randn(30, 253, dtype=dtype), torch.randn(253, dtype=dtype)
    code = printed(ROWS["softmax"], x, y)
    assert f"{whole} + d_r0" in code
    assert f"r0 < {whole}; r0++" in code


def test_a_vector_is_as_short_as_the_rest() -> None:
    code = printed(ROWS["softmax"], torch.randn(30, 243), torch.randn(243))
    assert "d_r0 < 4" in code
    code = printed(ROWS["softmax"], torch.randn(30, 244), torch.randn(244))
    assert "d_r0" not in code and "r0 = 240; r0 < 244" in code


def test_a_cheap_sum_and_whole_vectors_are_left_to_gcc() -> None:
    assert "d_r0" not in printed(lambda x: x.sum(-1), torch.randn(30, 250))
    assert "d_r0" not in printed(lambda x: x.softmax(-1), torch.randn(30, 256))


@pytest.mark.parametrize(("dtype", "narrow"), [(torch.float32, "short"), (torch.float64, "int")])
def test_long_elements_are_computed_two_vectors_at_a_time(dtype: torch.dtype, narrow: str) -> None:
    x, y = torch.randn(30, 252, dtype=dtype), torch.randn(252, dtype=dtype)
    code = printed(ROWS["long"], x, y)
    assert f"{narrow} w1 = 0;" in code and "reduction(|:w1)" in code
    assert "reduction(|:" not in printed(lambda x: x.exp(), x)
    assert "reduction(|:" not in printed(ROWS["long"], x[:, :20], y[:20])
