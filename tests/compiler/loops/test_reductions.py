"""Reductions: norms of any order, short inner dimensions after long outer ones, costly operands."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from loop_harness import compare, externs, printed
from support import crossed

import tc

ORDERS = (0, 1, 2, 3, 0.5, 2.5, -1, -2, math.inf, -math.inf)
#: what reads its operand in more than one pass
TWICE: dict[str, Callable[[torch.Tensor], object]] = {
    "var": lambda x: x.var(-1),
    "std_mean": lambda x: torch.std_mean(x, (0, 2)),
    "max": lambda x: x.max(-1),
    "softmax": lambda x: x.softmax(-1),
    "log_softmax": lambda x: x.log_softmax(1),
    "logsumexp": lambda x: x.logsumexp(-1),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "group_norm": lambda x: F.group_norm(x, 2),
    "aminmax": lambda x: torch.aminmax(x, dim=-1),
    "normalize": lambda x: F.normalize(x, dim=-1),
}
OUTER: dict[str, Callable[[torch.Tensor], object]] = {
    "sum": lambda x: x.sum((0, 2)),
    "prod of signs": lambda x: x.sign().prod(0).prod(-1),
    "amax": lambda x: x.amax((0, 2), keepdim=True),
    "any": lambda x: (x > 2).any(0).any(-1),
    "var": lambda x: x.var((0, 2)),
    "std_mean": lambda x: torch.std_mean(x.exp(), (0, 2), correction=0),
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
}


@pytest.mark.sample(3)
@crossed(order=ORDERS, dtype=[torch.float32, torch.float64, torch.bfloat16])
def test_norms_of_any_order(order: float, dtype: torch.dtype) -> None:
    x = torch.randn(6, 7, 5).to(dtype)
    x[0, 0, 0], x[1, 2, 3] = 0, math.inf

    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        norm = torch.linalg.vector_norm
        return norm(x, order), norm(x, order, (1,)), norm(x[:, :1], order, 1, keepdim=True)

    wide = {} if dtype.itemsize > 2 else {"rtol": 2e-2, "atol": 2e-2}
    graph = compare(program, [x], **wide)
    assert not externs(graph)


@pytest.mark.sample(3)
@crossed(name=OUTER, sizes=[(40, 7, 2), (300, 20, 3), (17, 33, 15), (20, 1, 4)])
def test_outer_dimensions_are_reduced_before_short_inner_ones(
    name: str, sizes: tuple[int, ...]
) -> None:
    torch.manual_seed(0)
    x, function = torch.randn(sizes) + 3, OUTER[name]
    tc.reset()
    torch.testing.assert_close(tc.compile(function)(x), function(x))
    symbolic = tc.compile(function, dynamic=True)
    for other in (x, torch.cat((x, x[:5])), x / 9):
        torch.testing.assert_close(symbolic(other), function(other), rtol=1e-4, atol=1e-3)


def test_a_variance_far_from_zero_is_exact() -> None:
    """The sums that are joined lose no digits to their means, close together or not."""
    for apart in (0, 10):
        x = torch.randn(400, 9, 3) + 1e5 + apart * torch.arange(3)
        tc.reset()
        found = tc.compile(lambda x: x.var((0, 2)))(x)
        torch.testing.assert_close(found, x.double().var((0, 2)).float(), rtol=1e-5, atol=0)


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", TWICE)
def test_a_costly_operand_is_computed_once(name: str) -> None:
    function, x = TWICE[name], torch.rand(64, 32, 64)
    code = printed(lambda x: function(torch.lgamma(x)), x).split("void k0_", 1)[1]
    assert code.count("tc_lgamma_f32(") == 1


@pytest.mark.sample(1)
@crossed(dtype=[torch.float32, torch.float16], sizes=[(6, 4, 30, 35), (3, 8, 5, 7)])
def test_slices_that_are_laid_flat(dtype: torch.dtype, sizes: tuple[int, ...]) -> None:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        flat = x[..., 1:-2].flatten(1)
        wide = flat.flip(0).softmax(-1), F.layer_norm(flat, flat.shape[1:])
        return (
            *wide,
            flat.var(-1),
            F.group_norm(x[..., 1:-2], 2),
            (x * 2)[..., ::2].flatten(2).sum(-1),
        )

    x = torch.randn(sizes).to(dtype)
    rough = {} if dtype.itemsize > 2 else {"rtol": 2e-2, "atol": 2e-2}
    for dynamic in (False, True):
        tc.reset()
        torch.testing.assert_close(tc.compile(program, dynamic=dynamic)(x), program(x), **rough)


@pytest.mark.sample(2)
@pytest.mark.parametrize("dim", [0, 1, (0, 1), None], ids=repr)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_means_of_infinite_elements_beside_variances(dtype: torch.dtype, dim: Any) -> None:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return *torch.var_mean(x, dim), *torch.std_mean(x, dim, correction=0)

    x = torch.tensor([[math.inf, 1, 2], [1, -math.inf, 3], [math.inf] * 3, [0, 1, 2]], dtype=dtype)
    for given in (x, x[3:], x[:, :1], x[:1]):
        torch.testing.assert_close(
            tc.compile(program)(given), program(given), rtol=1e-6, atol=0, equal_nan=True
        )
