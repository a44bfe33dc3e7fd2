"""Resampled images are eager's: nearest neighbours bit for bit, in all sizes and layouts."""

from __future__ import annotations

import random

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

import tc
from tc import trace
from tc.compiler.aot.resampling import interpolate

LAYOUTS = {2: torch.channels_last, 3: torch.channels_last_3d}
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.uint8]
FACTORS = st.one_of(
    st.floats(0.2, 4.0),
    st.sampled_from([1 / 3, 2 / 3, 4 / 3, 0.5, 1.0, 1.3, 1.5, 2.0, 2.1, 3.0]),
)


def steps(tensor: torch.Tensor) -> list[int]:
    """Return the strides of dimensions that are walked along."""
    return [step for size, step in zip(tensor.shape, tensor.stride(), strict=True) if size > 1]


@st.composite
def cases(draw):
    """An image whose values encode where they were, and what to make of it."""
    dims = draw(st.integers(1, 3))
    sizes = [*draw(st.lists(st.integers(1, 5), min_size=dims - 1, max_size=dims - 1))]
    dtype = draw(st.sampled_from(DTYPES))
    sizes.append(draw(st.integers(1, 200)))
    x = torch.arange(sizes[-1]).expand(1, draw(st.integers(1, 5)), *sizes).to(dtype)
    if dims > 1 and draw(st.booleans()):
        x = x.contiguous(memory_format=LAYOUTS[dims])
    else:
        x = x.contiguous()
    mode = {"mode": draw(st.sampled_from(["nearest", "nearest-exact"]))}
    if draw(st.booleans()):
        size = [*draw(st.lists(st.integers(1, 90), min_size=dims - 1, max_size=dims - 1))]
        size.append(draw(st.sampled_from([sizes[-1], 2 * sizes[-1]]) | st.integers(1, 300)))
        return x, {"size": tuple(size), **mode}
    factors = tuple(max(draw(FACTORS), 1 / n) for n in sizes)
    again = draw(st.sampled_from([None, True]))
    return x, {"scale_factor": factors, "recompute_scale_factor": again, **mode}


@settings(max_examples=20, deadline=None)
@given(cases())
def test_nearest_neighbours_are_eagers(case) -> None:
    x, how = case
    if all(int(n * f) > 0 for n, f in zip(x.shape[2:], how.get("scale_factor", ()), strict=False)):
        got, theirs = interpolate(x, **how), F.interpolate(x, **how)
        assert torch.equal(got, theirs)
        assert steps(got) == steps(theirs)


test_many_nearest_neighbours_are_eagers = pytest.mark.slow(
    settings(max_examples=150, deadline=None, derandomize=True)(
        given(cases())(test_nearest_neighbours_are_eagers.hypothesis.inner_test)
    )
)
SMOOTH = [("bilinear", False), ("bilinear", True), ("bicubic", False), ("area", None)]


ALL = [(f, again, dynamic) for f in (1.3, 0.7) for again in (None, True) for dynamic in (0, 1)]


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("factor", "again", "dynamic"),
    [((1.3, 2.1), None, True), *(pytest.param(*case, marks=pytest.mark.slow) for case in ALL)],
)
@pytest.mark.parametrize(("mode", "corners"), [("nearest", None), ("nearest-exact", None), *SMOOTH])
def test_factors_of_many_bits_are_compiled(mode, corners, factor, again, dynamic) -> None:
    def function(x):
        how = {"recompute_scale_factor": again, "align_corners": corners}
        return F.interpolate(x, scale_factor=factor, mode=mode, **how) * 2

    tc.reset()
    compiled = tc.compile(function, dynamic=bool(dynamic))
    with trace.capture_events() as events:
        for sizes in ((1, 2, 7, 9), (1, 2, 11, 13)):
            x = torch.randn(sizes)
            got, theirs = compiled(x), function(x)
            torch.testing.assert_close(got, theirs, rtol=1e-5, atol=1e-5)
            assert steps(got) == steps(theirs)
            if mode.startswith("nearest"):
                assert torch.equal(got, theirs)
    assert not [e.payload for e in events.of(trace.Artifact) if e.name == "tc_graph_runs_eagerly"]


def test_gradients_and_sizes_that_follow() -> None:
    def function(x):
        y = F.interpolate(x, scale_factor=2.1)
        return F.interpolate(y.sin(), scale_factor=0.6, mode="nearest-exact").sum(1), y.shape[2] * 3

    compiled = tc.compile(function, dynamic=True)
    for n in (5, 8):
        x = torch.randn(1, 3, n, n + 2, requires_grad=True)
        got, theirs = compiled(x), function(x)
        torch.testing.assert_close(got, theirs)
        mine, eagers = (torch.autograd.grad(y.square().sum(), x) for y in (got[0], theirs[0]))
        torch.testing.assert_close(mine, eagers)


MODES = [
    ("nearest", 1), ("nearest", 2), ("nearest", 3), ("nearest-exact", 1), ("nearest-exact", 2),
    ("nearest-exact", 3), ("linear", 1), ("bilinear", 2), ("trilinear", 3), ("bicubic", 2),
]  # fmt: skip


@pytest.mark.sample(8)
@pytest.mark.parametrize(("mode", "dims"), MODES)
@pytest.mark.parametrize("turn", range(6))
def test_sizes_that_a_factor_keeps_or_doubles(mode: str, dims: int, turn: int) -> None:
    """ATen's kernels copy, or have indices of their own, there; in backward not always the same."""
    draw = random.Random(f"{mode}{dims}{turn}")
    factors = tuple(draw.choice([1.0, 1.04, 1.1, 0.95, 2.0, 2.1, 1.9, 0.5]) for _ in range(dims))
    sizes = [draw.choice([5, 6, 9] if dims > 1 else [6, 80]) for _ in range(dims)]
    if turn % 2:
        factors, sizes = (draw.choice([1.04, 1.1, 2.1]),) * dims, [draw.choice([6, 9])] * dims

    def resampled(x: torch.Tensor) -> torch.Tensor:
        return F.interpolate(x, scale_factor=factors, mode=mode)

    x = torch.randn(1, draw.choice([2, 5]), *sizes, dtype=torch.float64)
    if dims > 1 and draw.random() < 0.5:
        x = x.contiguous(memory_format=LAYOUTS[dims])
    x.requires_grad_()
    expected, found = resampled(x), tc.compile(resampled, backend="aot_eager")(x)
    torch.testing.assert_close(found, expected)
    weights = torch.randn_like(expected)
    (wanted,) = torch.autograd.grad(expected, x, weights)
    torch.testing.assert_close(torch.autograd.grad(found, x, weights)[0], wanted)


@pytest.mark.sample(2)
@pytest.mark.parametrize("how", [{"size": (5, 17)}, {"scale_factor": 1.7}, {"size": (9, 30)}])
@pytest.mark.parametrize("corners", [False, True])
def test_bytes_have_the_weights_of_eager(how, corners) -> None:
    """ATen resamples bytes in fixed point, which floats are one level off from here and there."""
    x = torch.randint(0, 256, (2, 3, 9, 11), dtype=torch.uint8)
    for dynamic in (False, True):
        tc.reset()
        compiled = tc.compile(
            lambda x: F.interpolate(x, mode="bilinear", align_corners=corners, **how),
            dynamic=dynamic,
        )
        wanted = F.interpolate(x, mode="bilinear", align_corners=corners, **how)
        assert torch.equal(compiled(x), wanted)
