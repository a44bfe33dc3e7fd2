"""Gradients that are infinite or no numbers go where eager lets them, and nowhere else.

A formula that multiplies by a mask in place of choosing makes NaN of what eager leaves zero.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import tc

X = torch.tensor([0.0, 0.2, -0.1, 1.0, -2.0])
CALLS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "softshrink": lambda x: F.softshrink(x),
    "hardshrink": lambda x: F.hardshrink(x),
    "relu": F.relu,
    "relu6": F.relu6,
    "hardtanh": F.hardtanh,
    "threshold": lambda x: F.threshold(x, 0.5, 0.0),
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "leaky_relu": F.leaky_relu,
    "elu": F.elu,
    "clamp": lambda x: x.clamp(-0.15, 0.5),
    "where": lambda x: torch.where(x > 0.1, x, 0.0),
    "masked_fill": lambda x: x.masked_fill(x < 0.1, 1.0),
    "maximum": lambda x: torch.maximum(x, torch.full_like(x, 0.15)),
    "max": lambda x: x.max(),
    "prelu": lambda x: F.prelu(x, torch.tensor([0.2])),
    "glu": lambda x: F.glu(torch.cat([x, x])),
    "sign": lambda x: x.sign(),
    "selu": F.selu,
    "celu": F.celu,
    "logsigmoid": F.logsigmoid,
    "tanhshrink": F.tanhshrink,
    "rrelu": lambda x: F.rrelu(x, 0.1, 0.3, False),
    "topk": lambda x: x.topk(2)[0],
    "amax": lambda x: x.amax(0),
    "nan_to_num": lambda x: x.nan_to_num(),
    "fmod": lambda x: torch.fmod(x, 2.0),
    "trunc": lambda x: x.trunc(),
    "round": lambda x: x.round(),
    "floor": lambda x: x.floor(),
    "frac": lambda x: x.frac(),
    "logit": lambda x: torch.logit(x.abs(), 0.15),
    "smooth": lambda x: F.smooth_l1_loss(x, torch.zeros(5), reduction="none"),
    "huber": lambda x: F.huber_loss(x, torch.zeros(5), reduction="none"),
    "copysign": lambda x: torch.copysign(x, torch.tensor(-1.0)),
    "hypot": lambda x: torch.hypot(x, torch.zeros(5)),
    "atan2": lambda x: torch.atan2(x, torch.zeros(5)),
    "sinc": lambda x: x.sinc(),
    "xlogy": lambda x: torch.xlogy(x, x.abs()),
    "pow0": lambda x: x**0,
    "pow": lambda x: x**2.5,
    "lerp": lambda x: torch.lerp(x, x * 2, 0.3),
    "norm": lambda x: x.norm(),
    "norm1": lambda x: x.norm(p=1),
    "dist": lambda x: torch.dist(x, x * 0),
    "prod": lambda x: x.prod(),
    "cumprod": lambda x: x.cumprod(0),
    "std": lambda x: x.std(),
    "logsumexp": lambda x: x.logsumexp(0),
    "softmax": lambda x: x.softmax(0),
    "median": lambda x: x.median(),
    "kthvalue": lambda x: x.kthvalue(2)[0],
    "mode": lambda x: x.mode()[0],
    "cummax": lambda x: x.cummax(0)[0],
    "silu": F.silu,
    "mish": F.mish,
    "gelu": F.gelu,
    "softplus": F.softplus,
    "softsign": F.softsign,
    "minimum": lambda x: torch.minimum(x, torch.full_like(x, 0.15)),
    "fmax": lambda x: torch.fmax(x, torch.full_like(x, 0.15)),
    "max_pool": lambda x: F.max_pool1d(x[None], 2)[0],
    "avg": lambda x: F.avg_pool1d(x[None], 2)[0],
    "take": lambda x: x.take(torch.tensor([0, 2])),
    "tril": lambda x: (x[:, None] * x).tril(),
    "triu": lambda x: (x[:, None] * x).triu(1),
    "pad": lambda x: F.pad(x, (1, 1)),
    "gather": lambda x: x.gather(0, torch.tensor([1, 1])),
    "clamped by tensors": lambda x: x.clamp(min=torch.full_like(x, -0.15), max=x.abs() + 0.5),
}


def gradient(call: Callable[[torch.Tensor], torch.Tensor], given: float) -> torch.Tensor:
    x = X.clone().requires_grad_()
    made = call(x)
    (found,) = torch.autograd.grad(made, x, torch.full_like(made, given))
    return found


@pytest.mark.sample(8)
@pytest.mark.parametrize("name", CALLS)
def test_gradients_beyond_numbers_are_eagers(name: str) -> None:
    compiled = tc.compile(CALLS[name])
    for given in (float("nan"), float("inf"), -float("inf"), 0.0):
        wanted = gradient(CALLS[name], given)
        torch.testing.assert_close(gradient(compiled, given), wanted, equal_nan=True)
