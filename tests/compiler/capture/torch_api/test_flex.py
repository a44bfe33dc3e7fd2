"""Flex attention in compiled functions: no break, eager's results, whatever its functions read."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn.attention import flex_attention as flex

import tc

HEADS, LENGTH = 4, 32
bias = torch.randn(2 * LENGTH)
table = torch.randn(HEADS, LENGTH)
slopes = torch.rand(HEADS)
documents = torch.arange(LENGTH) // 8


@pytest.fixture(autouse=True)
def quiet() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # eager flex attention says that it is slow
        yield


def operands(dtype: torch.dtype = torch.float32, heads: int = HEADS) -> list[torch.Tensor]:
    shapes = [(2, HEADS, LENGTH, 8)] + 2 * [(2, heads, LENGTH, 8)]
    return [torch.randn(shape).to(dtype) for shape in shapes]


def same(fn: Callable[..., Any], args: list[torch.Tensor], **options: Any) -> None:
    compiled = tc.compile(fn, fullgraph=True, **options)
    torch.testing.assert_close(compiled(*args), fn(*args))


SCORES = {
    "causal": lambda s, b, h, q, k: torch.where(q >= k, s, -math.inf),
    "relative": lambda s, b, h, q, k: s + bias[q - k + LENGTH],
    "two indices": lambda s, b, h, q, k: s + table[h, q],
    "alibi": lambda s, b, h, q, k: s + slopes[h] * (q - k),
    "softcap": lambda s, b, h, q, k: 20 * torch.tanh(s / 20),
    "not elementwise": lambda s, b, h, q, k: torch.stack([s, q * 0.1]).amax(),
}


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", SCORES)
def test_scores_are_changed_as_in_eager(name: str) -> None:
    same(lambda q, k, v: flex.flex_attention(q, k, v, score_mod=SCORES[name]), operands())


def test_blocks_that_are_masked() -> None:
    def seen(b: Any, h: Any, q: Any, k: Any) -> Any:
        return (documents[q] == documents[k]) & (q >= k)

    mask = flex.create_block_mask(seen, 2, None, LENGTH, LENGTH, device="cpu", BLOCK_SIZE=16)
    same(lambda q, k, v: flex.flex_attention(q, k, v, block_mask=mask), operands())


def test_rows_that_see_nothing_are_zero() -> None:
    mask = flex.create_block_mask(
        lambda b, h, q, k: q < k, None, None, LENGTH, LENGTH, device="cpu", BLOCK_SIZE=16
    )
    same(lambda q, k, v: flex.flex_attention(q, k, v, block_mask=mask, return_lse=True), operands())


def test_statistics() -> None:
    wanted = flex.AuxRequest(lse=True)

    def fn(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, ...]:
        result, also = flex.flex_attention(q, k, v, scale=0.3, return_aux=wanted)
        assert also.lse is not None
        return result, also.lse

    same(fn, operands())


@pytest.mark.sample(1)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_dtypes(dtype: torch.dtype) -> None:
    same(flex.flex_attention, operands(dtype))


def test_fewer_heads_of_keys() -> None:
    same(lambda q, k, v: flex.flex_attention(q, k, v, enable_gqa=True), operands(heads=2))


def test_dynamic_sizes() -> None:
    args = operands()
    same(flex.flex_attention, args, dynamic=True)


def test_a_mask_is_made_in_compiled_code() -> None:
    def fn(length: int) -> torch.Tensor:
        made = flex.create_block_mask(
            lambda b, h, q, k: q >= k, 1, 1, length, length, device="cpu", BLOCK_SIZE=16
        )
        return made.to_dense()

    assert torch.equal(tc.compile(fn, fullgraph=True)(LENGTH), fn(LENGTH))
