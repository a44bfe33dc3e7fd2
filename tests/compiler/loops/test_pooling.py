"""Pools in loops: every window, border and special value as in eager."""

from __future__ import annotations

import math
import random

import pytest
import torch
import torch.nn.functional as F
from loop_harness import compare, externs, lowered

aten = torch.ops.aten
NAN = torch.randn(1, 2, 8, 8)
NAN[0, 0, 3, 3] = math.nan
INPUTS = {
    "plain": torch.randn(2, 3, 9, 11),
    "unbatched": torch.randn(3, 8, 8),
    "channels last": torch.randn(1, 4, 12, 12).to(memory_format=torch.channels_last),
    "lowest": torch.full((1, 1, 6, 6), -math.inf),
    "nan": NAN,
    "bfloat16": torch.randn(2, 3, 9, 11).bfloat16(),
}
WINDOWS = [(2, None, 0), (3, 2, 1), ((2, 3), 1, 1), (3, None, 0), ((3, 2), 2, 1)]
DILATED = [(window, dilation) for window in WINDOWS for dilation in (1, 2)]
# All of them where slow, else a few that each run draws; a failure shows which.
DRAWN = random.SystemRandom().sample(DILATED, 3)
FEW_OR_ALL = pytest.mark.parametrize(
    "windows", [DRAWN, pytest.param(DILATED, marks=pytest.mark.slow)], ids=["few", "all"]
)


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", INPUTS)
@pytest.mark.parametrize("ceil_mode", [False, True])
@FEW_OR_ALL
def test_max_pool(name, ceil_mode, windows):
    calls = [
        (lambda x, w=w, d=d: F.max_pool2d(x, *w, d, ceil_mode, return_indices=True))
        for w, d in windows
    ]
    compare(lambda x: tuple(t for call in calls for t in call(x)), (INPUTS[name],))


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", INPUTS)
@pytest.mark.parametrize("divisor", [None, 3])
def test_avg_pool(name, divisor):
    def function(x):
        return tuple(
            F.avg_pool2d(x, *w, False, padded, divisor) for w in WINDOWS for padded in (True, False)
        )

    compare(function, (INPUTS[name],), rtol=1e-2 if name == "bfloat16" else 1e-5, atol=1e-6)


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", ["plain", "unbatched", "channels last", "nan", "bfloat16"])
@pytest.mark.parametrize("ceil_mode", [False, True])
@FEW_OR_ALL
def test_gradient_of_max_pool(name, ceil_mode, windows):
    def gradients(x):
        for (kernel, stride, padding), dilation in windows:
            step = kernel if stride is None else stride
            window = [[n, n] if isinstance(n, int) else list(n) for n in (kernel, step)]
            where = [[padding, padding], [dilation, dilation], ceil_mode]
            values, places = aten.max_pool2d_with_indices(x, *window, *where)
            yield aten.max_pool2d_with_indices_backward(values, x, *window, *where, places)

    wide = 1e-2 if name == "bfloat16" else 1e-5
    compare(lambda x: tuple(gradients(x)), (INPUTS[name],), rtol=wide, atol=wide)


def test_gradient_of_max_pool_fuses_where_windows_lie_apart_or_channels_together():
    def gradient(x, kernel, stride):
        window = [kernel, stride, [0, 0], [1, 1], False]
        values, places = aten.max_pool2d_with_indices(x, *window)
        return aten.max_pool2d_with_indices_backward(values.sin(), x, *window, places).relu()

    plain = torch.randn(1, 4, 12, 12)
    last = plain.to(memory_format=torch.channels_last)
    assert not externs(lowered(lambda x: gradient(x, [2, 2], [2, 2]), (plain,)))
    assert not externs(lowered(lambda x: gradient(x, [3, 3], [2, 2]), (last,)))
    assert externs(lowered(lambda x: gradient(x, [3, 3], [2, 2]), (plain,)))


@pytest.mark.parametrize("mode", ["fake", "symbolic"])
def test_pools_fuse(mode):
    def function(x):
        return F.max_pool2d(F.relu(x), 2) + F.avg_pool2d(x, 3, 2, 1)

    x = torch.randn(1, 4, 10, 12)
    compare(function, (x,), mode)
    assert not externs(lowered(function, (x,)))


def test_what_is_left_to_aten():
    x = torch.randn(1, 2, 12, 12)
    assert externs(lowered(lambda x: F.avg_pool2d(x, 5), (x,)))
    assert externs(lowered(lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True), (x,)))
