"""A kernel of each sort: their text is kept, and they become machine code in the default tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

T = torch.Tensor


def e(*shape: int, dtype: torch.dtype = torch.float32) -> T:
    return torch.empty(shape, dtype=dtype)


KERNELS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], str]] = {
    "add_relu": (lambda x, y: F.relu(x + y), (e(64, 64), e(64, 64)), "fake"),
    "add_symbolic": (lambda x, y: x + y, (e(7, 5), e(5)), "symbolic"),
    "bfloat16": (lambda x: x.sigmoid() * x, (e(3000, dtype=torch.bfloat16),), "fake"),
    "transposed": (lambda x: x.t().contiguous(), (e(40, 70),), "fake"),
    "cat": (lambda x, y: torch.cat([x, y], 1), (e(9, 4), e(9, 6)), "fake"),
    "embedding": (
        lambda t, w: F.embedding(t, w),
        (torch.zeros(8, 9, dtype=torch.int64), e(50, 16)),
        "fake",
    ),
    "softmax_held": (lambda x: F.softmax(x, -1), (e(100, 300),), "fake"),
    "layer_norm_looped": (lambda x: F.layer_norm(x, (9000,)), (e(8, 9000),), "fake"),
    "argmax_symbolic": (lambda x: x.argmax(-1), (e(7, 33),), "symbolic"),
    "cumsum_held": (lambda x: x.cumsum(1) * 2, (e(100, 300),), "fake"),
    "embedding_gradient": (
        lambda g, x, t: torch.ops.aten.embedding_dense_backward(g * x.cos(), t, 50, 3, False),
        (e(8, 9, 16), e(8, 9, 16), torch.zeros(8, 9, dtype=torch.int64)),
        "fake",
    ),
    "columns": (lambda x: x.sum(0), (e(500, 300),), "fake"),
}
