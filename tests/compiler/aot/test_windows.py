"""Windows of images, and their sums, against eager for drawn sizes."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

import tc
from tc.compiler.aot.windows import col2im, im2col


def _drawn(seed: int) -> tuple[torch.Tensor, torch.Tensor, tuple[Any, ...]]:
    """Return images, eager's windows of them, and the numbers of a call."""
    draw = random.Random(seed)
    while True:
        kernel = [draw.choice([1, 2, 3, 4]) for _ in range(2)]
        dilation = [draw.choice([1, 1, 2, 3]) for _ in range(2)]
        padding = [draw.choice([0, 0, 1, 2]) for _ in range(2)]
        stride = [draw.choice([1, 1, 2, 3, 4]) for _ in range(2)]
        batch = draw.choice([(), (1,), (3,)])
        x = torch.randn(*batch, 2, draw.randint(1, 12), draw.randint(1, 12), dtype=torch.float64)
        try:
            numbers = (kernel, dilation, padding, stride)
            return x, F.unfold(x, *numbers), numbers
        except RuntimeError:  # no window fits
            continue


@pytest.mark.sample(1)
@pytest.mark.parametrize("seed", range(6))
def test_windows_and_their_sums(seed: int) -> None:
    x, windows, numbers = _drawn(seed)
    size = x.shape[-2:]

    def both(x: torch.Tensor, y: torch.Tensor) -> Any:
        return F.unfold(x, *numbers), F.fold(y, size, *numbers)

    compiled = tc.compile(both, fullgraph=True, dynamic=bool(seed % 2))
    results = []
    for function in (both, compiled):
        given = [t.clone().requires_grad_() for t in (x, windows)]
        made = function(*given)
        (made[0].sin().sum() + made[1].cos().sum()).backward()
        results.append((*made, *(t.grad for t in given)))
        strides = [one.stride() for one in made]
        assert strides == [one.stride() for one in both(x, windows)]
    torch.testing.assert_close(results[1], results[0])


def test_nothing_is_gathered_through_an_index() -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        windows = im2col(x, (3, 3), (1, 2), (1, 1), (2, 1))
        return col2im(windows, x.shape[2:], (3, 3), (1, 2), (1, 1), (2, 1))

    graph = make_fx(run)(torch.randn(1, 2, 8, 8)).graph
    names = {str(node.target) for node in graph.nodes}
    assert not [name for name in names if "index" in name or "scatter" in name]
