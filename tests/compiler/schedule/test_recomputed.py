"""Values that a later pass over a row computes again, and what those are computed from."""

from __future__ import annotations

import random

import pytest
import torch
import torch.nn.functional as F

import tc

#: each keeps the value that it is made of apart, as one of several that it chooses among
STEPS = (
    "t = F.pad(t, ({a}, {b}), value=1)",
    "t = t * 1; t[..., {from_} :].add_(1)",
    "t = t * 1; t[..., : {from_}].mul_(2)",
    "t = t.double() if t.dtype is torch.float32 else t.float()",
    "t = t.roll(1, -1) + 0",
    "t = torch.where(t > 0, t, t * 0.5)",
    "t = t[..., : -1] + t[..., 1 :]",
    "t = torch.cat((t, t[..., : 1]), -1)",
)
PASSES = (
    "t.logsumexp(-1)", "t.softmax(-1)", "(t - t.amax(-1, True)).exp().sum(-1)", "t.var(-1)",
    "((t - t.mean(-1, True)) ** 2).mean(-1) + t.amin(-1)", "F.layer_norm(t, t.shape[-1:])",
    "t / t.norm(dim=-1, keepdim=True)", "t.cumsum(-1) / (1 + t.abs().amax(-1, True))",
)  # fmt: skip


@pytest.mark.sample(3)
@pytest.mark.parametrize("shape", [(3,), (4, 3), (5, 17), (2, 40)])
@pytest.mark.parametrize("end", PASSES)
def test_programs_of_several_passes(end, shape):
    rng = random.Random()
    lines = [
        rng.choice(STEPS).format(
            a=rng.choice((-1, 0, 1)), b=rng.randint(1, 3), from_=rng.randint(1, 9)
        )
        for _ in range(rng.randint(1, 5))
    ]
    text = "\n    ".join(["def program(t):", *lines, f"return {end}, t.sum(-1)"])
    space = {"torch": torch, "F": F}
    exec(text, space)
    x = torch.randn(shape)
    try:
        want = space["program"](x)
    except IndexError:  # nothing is left of a row, and so no maximum
        with pytest.raises(IndexError):
            tc.compile(space["program"])(x)
        return
    torch.testing.assert_close(tc.compile(space["program"])(x), want, equal_nan=True, msg=text)
