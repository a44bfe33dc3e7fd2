"""What scales and shifts channels goes into constant kernels and matrices."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from loop_harness import trace
from torch import fx, nn

import tc
from tc.compiler import library
from tc.compiler.core.gate import Gate
from tc.compiler.core.tune import Tuner
from tc.compiler.library.editor import Editor
from tc.compiler.library.fold import fold_scales

aten = torch.ops.aten
T = torch.Tensor
COMPUTED = (aten.convolution.default, aten.mm.default, aten.addmm.default)


def folded(fn: Callable[..., Any], given: list[T], frozen: int) -> tuple[fx.GraphModule, list[Any]]:
    """A graph with all inputs but the first `frozen` as constants, folded, and what it calls."""
    module = trace(fn, given)
    names = [n.name for n in module.graph.find_nodes(op="placeholder")]
    library.freeze(module, dict(zip(names[frozen:], given[frozen:], strict=True)), Gate())
    fold_scales(Editor(module.graph, Gate()))
    module.graph.lint()
    module.recompile()
    return module, [n.target for n in module.graph.nodes if n.op == "call_function"]


def check(fn: Callable[..., Any], given: list[T], left: list[Any], inputs: int = 1) -> None:
    """Compare with eager, and ask which ops are left."""
    module, called = folded(fn, given, inputs)
    assert called == left
    torch.testing.assert_close(module(*given), fn(*given), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_a_batch_norm_becomes_part_of_a_convolution(bias: bool, transposed: bool) -> None:
    make = nn.ConvTranspose2d if transposed else nn.Conv2d
    conv = make(3, 8, 3, bias=bias)
    mean, scale = torch.randn(8, 1, 1), torch.rand(8, 1, 1) + 0.5

    def fn(x: T, mean: T, scale: T, *parts: T) -> T:
        added = parts[1] if bias else None
        args = ([1, 1], [0, 0], [1, 1], transposed, [0, 0], 1)
        y = aten.convolution.default(x, parts[0], added, *args)
        return (y - mean) / scale * 3 + 0.25

    parts = [p.detach() for p in (conv.weight, conv.bias) if p is not None]
    check(fn, [torch.randn(2, 3, 9, 9), mean, scale, *parts], [aten.convolution.default])


@pytest.mark.sample(6)
@pytest.mark.parametrize("seed", range(40))
def test_chains_drawn_at_random(seed: int) -> None:
    rng = random.Random(seed)
    torch.manual_seed(seed)
    kind = rng.choice(["conv1d", "conv2d", "grouped", "mm", "addmm"])
    rank = {"conv1d": 3, "conv2d": 4, "grouped": 4}.get(kind, 2)
    at = 1  # the channels' dimension
    shapes = [(), (1,), tuple(6 if d == at else 1 for d in range(rank))]
    if at == rank - 1:
        shapes.append((6,))
    else:
        shapes.append((6, *[1] * (rank - at - 1)))
    parts = [torch.rand(rng.choice(shapes)) + 0.5 for _ in range(rng.randint(1, 4))]
    ops = [rng.choice("+-*/") for _ in parts]
    image = {2: (5, 4), 3: (2, 4, 7), 4: (2, 4, 7, 6)}[rank]
    groups = 2 if kind == "grouped" else 1
    weight = torch.randn((4, 6) if rank == 2 else (6, 4 // groups, *[3] * (rank - 2)))
    bias = torch.randn(6)

    def fn(x: T, weight: T, bias: T, *parts: T) -> T:
        if kind == "mm":
            y = torch.mm(x, weight)
        elif kind == "addmm":
            y = torch.addmm(bias, x, weight)
        else:
            ones, zeros = [1] * (rank - 2), [0] * (rank - 2)
            y = aten.convolution.default(x, weight, bias, ones, zeros, ones, False, zeros, groups)
        for op, part in zip(ops, parts, strict=True):
            y = {"+": y + part, "-": y - part, "*": part * y, "/": y / part}[op]
        return y

    module, called = folded(fn, [torch.randn(image), weight, bias, *parts], 1)
    given = [torch.randn(image), weight, bias, *parts]
    assert len(called) == 1 and called[0] in COMPUTED
    torch.testing.assert_close(module(*given), fn(*given), rtol=1e-4, atol=1e-4)


def test_what_is_not_a_map_of_channels_stays() -> None:
    x, w = torch.randn(4, 6), torch.randn(6, 6)
    rows = torch.rand(4, 1)
    check(lambda x, w, s: torch.mm(x, w) * s, [x, w, rows], [aten.mm.default, aten.mul.Tensor])
    zero = torch.zeros(6)
    check(lambda x, w, s: torch.mm(x, w) / s, [x, w, zero], [aten.mm.default, aten.div.Tensor])
    larger = torch.rand(3, 4, 6)
    check(lambda x, w, s: torch.mm(x, w) + s, [x, w, larger], [aten.mm.default, aten.add.Tensor])

    def twice(x: T, w: T, s: T) -> tuple[T, T]:
        y = torch.mm(x, w)
        return y * s, y

    check(twice, [x, w, torch.rand(6)], [aten.mm.default, aten.mul.Tensor])
    wide = torch.rand(6, dtype=torch.float64)
    check(lambda x, w, s: torch.mm(x, w) * s, [x, w, wide], [aten.mm.default, aten.mul.Tensor])


class Blocks(nn.Module):
    """Convolutions of each kind with batch norms, and layers of a product."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU())
        self.deep = nn.Sequential(nn.Conv2d(16, 16, 3, 1, 1, groups=16), nn.BatchNorm2d(16))
        self.wide = nn.Conv2d(16, 32, 1, dilation=1)
        self.last = nn.Sequential(nn.Linear(32, 64), nn.BatchNorm1d(64), nn.Linear(64, 7))

    def forward(self, x: T) -> T:
        y = self.first(x)
        y = self.wide(y + self.deep(y)).relu()
        return self.last(y.amax((2, 3)))  # type: ignore[no-any-return]


def net() -> nn.Module:
    torch.manual_seed(3)
    module = Blocks()
    with torch.no_grad():
        for _ in range(3):
            module(torch.randn(8, 3, 16, 16))
    return module.eval()


@pytest.fixture
def packed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Take packed constants wherever they are offered, so that nothing is timed; the offers."""
    offered: list[str] = []

    def fastest(self: Tuner, question: str, ways: Any) -> str:
        if "packed" not in question:
            return "aten"
        offered.append(question)
        return "packed"

    monkeypatch.setattr(Tuner, "fastest", fastest)
    return offered


@pytest.mark.sample(1)
@pytest.mark.parametrize("size", [(4, 3, 32, 32), (33, 3, 24, 20)])
def test_packed_networks_compute_as_eager(size: tuple[int, ...], packed: list[str]) -> None:
    module, x = net(), torch.randn(size)
    with torch.no_grad():
        compiled = tc.compile(module, options={"freezing": True})
        for scale in (1, 3):
            torch.testing.assert_close(compiled(x * scale), module(x * scale), rtol=1e-4, atol=1e-5)
        tc.config.check = "stages"
        try:
            tc.reset()
            torch.testing.assert_close(compiled(x), module(x), rtol=1e-4, atol=1e-5)
        finally:
            tc.config.check = ""
    assert sum("convolution" in question for question in packed) >= 3


def test_nan_stays_nan_behind_a_packed_convolution(packed: list[str]) -> None:
    module = nn.Sequential(nn.Conv2d(16, 16, 1), nn.ReLU(), nn.Conv2d(16, 16, 1), nn.ReLU6()).eval()
    x = torch.randn(1, 16, 32, 32)
    x[0, 3, 2, 2], x[0, 3, 4, 4] = float("nan"), float("inf")
    with torch.no_grad():
        got, want = tc.compile(module, options={"freezing": True})(x), module(x)
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4, equal_nan=True)
    assert len(packed) == 2
