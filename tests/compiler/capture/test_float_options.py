"""Floats that change from call to call, as options of operations, in training."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import tc
from tc.compiler import api

W = torch.linspace(-1, 2, 36).reshape(6, 6)
Option = Callable[[torch.Tensor, float], torch.Tensor]
#: operations whose option may be a symbol: the second graph is for all values
FOLLOWED: dict[str, Option] = {
    "leaky_relu": lambda x, a: F.leaky_relu(x, a),
    "elu": lambda x, a: F.elu(x, a),
    "softplus": lambda x, a: F.softplus(x, a),
    "hardtanh": lambda x, a: F.hardtanh(x, -a, a),
    "threshold": lambda x, a: F.threshold(x, a, a * 2),
    "clamp": lambda x, a: x.clamp(-a, a),
    "full": lambda x, a: x + torch.full((6,), a),
    "add": lambda x, a: torch.add(x, W, alpha=a),
    "addmm": lambda x, a: torch.addmm(x, x, W, beta=a, alpha=2 - a),
    "addcmul": lambda x, a: torch.addcmul(x, x, W, value=a),
    "softmax": lambda x, a: F.softmax(x / a, -1),
    "where": lambda x, a: torch.where(x > a, x, a / 3),
    "masked_fill": lambda x, a: x.masked_fill(x > a, a),
    "gumbel": lambda x, a: F.gumbel_softmax(x, tau=a),
    "full_like": lambda x, a: torch.full_like(x, a) * x,
    "int(n)": lambda x, a: x[: int(a * 10)],
}
#: operations that take no symbols: the float is a constant, guarded
CONSTANT: dict[str, Option] = {
    "rrelu": lambda x, a: F.rrelu(x, a / 2, a, training=False),
    "dropout": lambda x, a: F.dropout(x, a),
    "layer_norm": lambda x, a: F.layer_norm(x, (6,), eps=a),
    "group_norm": lambda x, a: F.group_norm(x, 2, eps=a * 2),
    "batch_norm": lambda x, a: F.batch_norm(x, None, None, training=True, eps=a),
    "celu": lambda x, a: F.celu(x, a),
    "lerp": lambda x, a: torch.lerp(x, W, a),
    "pow": lambda x, a: x.abs() ** a,
    "rpow": lambda x, a: a**x,
    "huber": lambda x, a: F.huber_loss(x, W, delta=a),
    "smooth_l1": lambda x, a: F.smooth_l1_loss(x, W, beta=a),
    "cross_entropy": lambda x, a: F.cross_entropy(x, torch.arange(6), label_smoothing=a),
    "sdpa": lambda x, a: F.scaled_dot_product_attention(x[None], x[None], x[None], scale=a),
    "norm": lambda x, a: x.norm(a + 1),
    "cdist": lambda x, a: torch.cdist(x, W, p=a + 1),
    "normal_": lambda x, a: x + torch.zeros(6).normal_(0, a),
    "uniform_": lambda x, a: x + torch.zeros(6).uniform_(-a, a),
    "bernoulli_": lambda x, a: x * torch.zeros(6).bernoulli_(a),
    "quantile": lambda x, a: torch.quantile(x, a),
    "triplet": lambda x, a: F.triplet_margin_loss(x, W, x.flip(0), margin=a),
    "std": lambda x, a: x.std(correction=a),
    "nan_to_num": lambda x, a: torch.nan_to_num(x, nan=a),
    "renorm": lambda x, a: x.renorm(2, 0, a),
    "interpolate": lambda x, a: F.interpolate(x[None], scale_factor=1 + a),
    "logit": lambda x, a: torch.logit(x.sigmoid(), eps=a / 3),
    "round": lambda x, a: x * round(a, 1),
    "branch": lambda x, a: x * 2 if a > 0.35 else x * 3,
}


@pytest.mark.sample(8)
@pytest.mark.parametrize("derived", [False, True])
@pytest.mark.parametrize("name", [*FOLLOWED, *CONSTANT])
def test_an_option_that_changes(name: str, derived: bool) -> None:
    option = (FOLLOWED | CONSTANT)[name]

    def program(x: torch.Tensor, a: float) -> torch.Tensor:
        return option(x.sin(), 1 - (1 - a) if derived else a)

    tc.reset()
    compiled = tc.compile(program, fullgraph=True, backend="aot_eager")
    draw = random.Random(f"{name}{derived}")
    values = [0.5, *(draw.uniform(0.1, 0.9) for _ in range(4)), 0.95]
    for turn, a in enumerate(values):
        x = torch.linspace(-2, 2, 36).reshape(6, 6).requires_grad_()
        results = []
        for run in (program, compiled):
            torch.manual_seed(turn)
            y = run(x, a)
            results.append((y.detach(), *torch.autograd.grad(y.abs().sum(), x)))
        torch.testing.assert_close(*results)
    if name in FOLLOWED and name != "int(n)":
        assert api.graph_stats()["graphs"] == 2
