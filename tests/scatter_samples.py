"""Programs that write at computed places, on loops that are made for a CPU and for a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

T = torch.Tensor
aten = torch.ops.aten
torch.manual_seed(0)


def r(*shape: int, dtype: torch.dtype = torch.float32) -> T:
    return (torch.randn(shape) * 9).to(dtype)


def i(most: int, *shape: int, dtype: torch.dtype = torch.int64) -> T:
    return torch.randint(0, most, shape).to(dtype)


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "scatter_add": (lambda x, n, y: x.scatter_add(0, n, y), (r(5, 7), i(5, 20, 7), r(20, 7))),
    "scatter_add of less": (
        lambda x, n, y: x.scatter_add(1, n, y),
        (r(5, 7), i(7, 3, 4), r(6, 9)),
    ),
    "scatter": (lambda x, n, y: x.scatter(1, n, y), (r(3, 9), i(9, 3, 1), r(3, 4))),
    "scatter a number": (lambda x, n: x.scatter(-1, n, 2.5), (r(3, 9), i(9, 3, 4))),
    "amax": (
        lambda x, n, y: x.scatter_reduce(0, n, y, "amax"),
        (r(5, 7), i(5, 20, 7), r(20, 7)),
    ),
    "amin": (
        lambda x, n, y: x.scatter_reduce(0, n, y, "amin"),
        (r(5, 7), i(5, 20, 7), r(20, 7)),
    ),
    "amax without self": (
        lambda x, n, y: x.scatter_reduce(0, n, y, "amax", include_self=False),
        (r(5, 7), i(4, 20, 7), r(20, 7) - 50),
    ),
    "sum without self": (
        lambda x, n, y: x.scatter_reduce(0, n, y, "sum", include_self=False),
        (r(5, 7), i(4, 20, 7), r(20, 7)),
    ),
    "index_add": (
        lambda x, n, y: x.index_add(1, n, y, alpha=2),
        (r(5, 7), i(7, 20), r(5, 20)),
    ),
    "index_copy": (
        lambda x, n, y: x.index_copy(0, n, y),
        (r(5, 7), torch.tensor([3, 1], dtype=torch.int32).long(), r(2, 7)),
    ),
    "index_put": (
        lambda x, n, y: aten.index_put(x, [n, None], y),
        (r(5, 7), torch.tensor([3, -5]), r(2, 7)),
    ),
    "index_put of one for all": (
        lambda x, n, y: aten.index_put(x, [n], y, True),
        (r(5, 7), torch.tensor([[3, -1], [0, 3]]), r()),
    ),
    "index_put at pairs": (
        lambda x, n, m, y: aten.index_put(x, [n, m], y, True),
        (r(5, 7), i(5, 30, 1), i(7, 30, 2) - 7, r(2)),
    ),
    "index_put in the middle": (
        lambda x, n, y: aten.index_put(x, [None, n, None], y, True),
        (r(3, 5, 4), i(5, 2, 6), r(3, 2, 6, 4)),
    ),
    "index_put apart": (
        lambda x, n, y: aten.index_put(x, [n, None, n], y, True),
        (r(5, 3, 5), i(5, 6), r(6, 3)),
    ),
    "index_put unsafely": (
        lambda x, n, y: aten._unsafe_index_put(x, [n], y, True),
        (r(5, 7), i(5, 9), r(9, 7)),
    ),
    "embedding": (
        lambda g, n: aten.embedding_dense_backward(g, n, 11, -1, False),
        (r(4, 6, 8), i(11, 4, 6)),
    ),
    "embedding with padding": (
        lambda g, n: aten.embedding_dense_backward(g, n, 11, 3, False),
        (r(4, 6, 8), i(11, 4, 6, dtype=torch.int32)),
    ),
    "fused with producers": (
        lambda x, n, y, w: (x * 2).scatter_add(0, (n + 1) % 5, (y * w).exp() / 9) + 1,
        (r(5, 7), i(5, 20, 7), r(20, 7) / 9, r(7) / 9),
    ),
    "of a softmax": (
        lambda n, y: torch.zeros(5, 7).index_add(0, n, y.softmax(1)),
        (i(5, 20), r(20, 7)),
    ),
    "of each row": (
        lambda n, y: torch.zeros(5).index_add(0, n, y.sum(1)),
        (i(5, 20), r(20, 7)),
    ),
    "onto another": (
        lambda x, n, y: x.index_add(0, n, y).index_add(0, n + 1, y * 2),
        (r(5, 7), i(4, 20), r(20, 7)),
    ),
    "a histogram": (
        lambda n: torch.zeros(9, dtype=torch.int64).scatter_add(0, n, torch.ones_like(n)),
        (i(9, 2000),),
    ),
    "positions of what was made": (
        lambda x, y: torch.zeros(5, 9).scatter_add(1, y.argmax(1, keepdim=True), x),
        (r(5, 1), r(5, 9)),
    ),
    "in another layout": (
        lambda x, n, y: x.index_add(0, n, y) * 2,
        (r(7, 5).t(), i(5, 20), r(7, 20).t()),
    ),
}
