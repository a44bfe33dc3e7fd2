"""Programs that all code generators are tested with: a function, and its arguments for a size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

T = torch.Tensor


def attention(q: T, k: T, v: T) -> T:
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
    length = q.shape[-2]
    mask = torch.ones(length, length, dtype=torch.bool).tril()
    return F.softmax(scores.masked_fill(~mask, float("-inf")), -1) @ v


def block(x: T, w: T, b: T, up: T, down: T) -> T:
    h = F.layer_norm(x, (x.shape[-1],), w, b)
    return x + F.gelu(h @ up) @ down


def rotary(x: T) -> T:
    half = x.shape[-1] // 2
    position = torch.arange(x.shape[-2]).float()[:, None]
    angle = position * torch.arange(half).float() / half
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], -1)


def r(*shape: int) -> T:
    return torch.randn(shape)


PROGRAMS: dict[str, tuple[Callable[..., Any], Callable[[int], tuple[Any, ...]]]] = {
    "attention": (attention, lambda n: (r(2, n, 8), r(2, n, 8), r(2, n, 8))),
    "sdpa": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True) * 2,
        lambda n: (r(2, 3, n, 8), r(2, 3, n, 8), r(2, 3, n, 8)),
    ),
    "block": (block, lambda n: (r(2, n, 8), r(8), r(8), r(8, 16), r(16, 8))),
    "rotary": (rotary, lambda n: (r(2, n, 8),)),
    "embedding": (
        lambda t, w, p: F.embedding(t, w) + p[: t.shape[1]],
        lambda n: (torch.randint(0, 50, (2, n)), r(50, 8), r(1000, 8)),
    ),
    "constants": (
        lambda x: (
            torch.full_like(x, 0.25).sum(-1),
            torch.ones_like(x).prod(),
            torch.zeros_like(x).amax(0),
            torch.full_like(x, 2).argmax(-1),
            torch.ones_like(x).cumsum(-1),
            torch.full_like(x, 3).softmax(-1),
        ),
        lambda n: (r(n, 8),),
    ),
    "last_token": (lambda x, w: (x[:, -1] @ w).argmax(-1), lambda n: (r(2, n, 8), r(8, 30))),
    "softmax_dims": (
        lambda x: (F.softmax(x, 0), F.log_softmax(x, 1), F.softmax(x, 2)),
        lambda n: (r(n, 5, 6),),
    ),
    "reductions": (
        lambda x: (x.sum(), x.mean(1), x.amax((0, 2)), x.var(-1), x.argmin(0), (x > 0).all(1)),
        lambda n: (r(3, n, 9),),
    ),
    "views": (
        lambda x: (x.transpose(0, 1).reshape(-1, 3) * 2, x.flatten()[::2] + 1, x[1:, None] - x[0]),
        lambda n: (r(n, 6),),
    ),
    "broadcast": (lambda x, y: (x[:, None] - y[None]).pow(2).sum(-1), lambda n: (r(n, 4), r(5, 4))),
    "cumulated": (lambda x: torch.cumsum(F.relu(x), 0) + x, lambda n: (r(n, 4),)),
    "size_as_value": (lambda x: x / x.shape[0] + x.shape[0] ** -0.5, lambda n: (r(n, 4),)),
    "two_users": (
        lambda x: (lambda e: (e / e.sum(-1, keepdim=True), e.sum()))(x.exp()),
        lambda n: (r(n, 4),),
    ),
    "norm_chain": (
        lambda x, w: F.layer_norm(F.layer_norm(x, (6,), w), (6,)).sum(-1),
        lambda n: (r(n, 6), r(6)),
    ),
    "group_norm": (lambda x: F.group_norm(x, 2), lambda n: (r(n, 4, 5),)),
    "conv": (
        lambda x, w: F.relu(F.conv2d(x, w, padding=1)) + 1,
        lambda n: (r(n, 3, 8, 8), r(4, 3, 3, 3)),
    ),
    "loss": (lambda x, y: F.mse_loss(torch.sigmoid(x), y), lambda n: (r(n, 3), r(n, 3))),
    "integers": (
        lambda x: (x // 3, x % -7, (x * x) >> 2, -x // 5, x.sum(), x.bool()),
        lambda n: (torch.randint(-99, 99, (n, 5)),),
    ),
    "column_vector": (lambda x: x.sum(0) / x.abs().amax(0), lambda n: (r(n, 300),)),
    "padded": (lambda x: F.pad(x, (1, 2, 0, 3)).tanh(), lambda n: (r(n, 5),)),
    "gathered": (
        lambda x, i: torch.gather(x.exp(), 1, i) + x[i[:, 0]],
        lambda n: (r(n, 6), torch.randint(0, min(n, 6), (n, 6))),
    ),
}
