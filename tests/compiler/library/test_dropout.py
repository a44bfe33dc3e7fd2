"""Dropout taken apart: the elements that eager drops, with values that are eager's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from loop_harness import externs, trace

import tc
from tc.compiler import library
from tc.compiler.core.gate import Gate
from tc.compiler.loops.lower.graph import lower

aten = torch.ops.aten


def seeded(fn: Any, *args: Any) -> Any:
    torch.manual_seed(7)
    return fn(*args)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_compiled_dropout_keeps_what_eager_keeps(dtype: torch.dtype) -> None:
    x = torch.randn(33, 20, dtype=dtype)

    def twice(x: torch.Tensor) -> torch.Tensor:
        return F.dropout(F.dropout(x, 0.3) + 1, 0.5)

    want = seeded(twice, x)
    got = seeded(tc.compile(twice), x)
    assert torch.equal(got == 0, want == 0)
    torch.testing.assert_close(got, want)


def test_mask_and_values_are_those_of_the_op() -> None:
    x = torch.randn(5, 7)
    module = trace(lambda x: aten.native_dropout(x, 0.25, True), (x,))
    library.arrange(module, Gate())
    module.recompile()
    assert not module.graph.find_nodes(op="call_function", target=aten.native_dropout.default)
    got, want = seeded(module, x), seeded(aten.native_dropout, x, 0.25, True)
    assert torch.equal(got[0], want[0]) and torch.equal(got[1], want[1])


def test_only_the_draw_is_left_to_aten() -> None:
    module = trace(lambda x: aten.native_dropout(x, 0.25, True)[0] + x, (torch.randn(4, 4),))
    library.arrange(module, Gate())
    assert externs(lower(module, Gate())) == ["aten.bernoulli.p"]


@pytest.mark.parametrize("rate, train", [(0.0, True), (1.0, True), (0.5, False)])
def test_what_draws_nothing_is_left_alone(rate: float, train: bool) -> None:
    module = trace(lambda x: aten.native_dropout(x, rate, train), (torch.randn(4, 4),))
    library.arrange(module, Gate())
    assert module.graph.find_nodes(op="call_function", target=aten.native_dropout.default)


def test_gradients_are_those_of_the_elements_kept() -> None:
    x = torch.randn(16, 8, requires_grad=True)
    y = x.detach().clone().requires_grad_()

    def fn(x: torch.Tensor) -> torch.Tensor:
        return F.dropout(x * 2, 0.4).sin().sum()

    seeded(fn, x).backward()
    seeded(tc.compile(fn), y).backward()
    torch.testing.assert_close(y.grad, x.grad)


def test_transposed_images_are_drawn_as_the_op_draws() -> None:
    x = torch.randn(2, 3, 4, 4).contiguous(memory_format=torch.channels_last)
    module = trace(lambda x: aten.native_dropout(x, 0.25, True), (x,))
    library.arrange(module, Gate())
    assert module.graph.find_nodes(op="call_function", target=aten.native_dropout.default)
