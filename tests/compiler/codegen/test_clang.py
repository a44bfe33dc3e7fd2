"""Kernels that clang compiles give what those of gcc give: a sample of each kind of loop."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import tc
from tc.compiler.core.c_helpers import helpers, helpers_for
from tc.compiler.runtime import build
from tc.trace import OutputCode, capture_events

pytestmark = pytest.mark.skipif(not shutil.which("clang"), reason="clang is not installed")


@pytest.fixture(autouse=True)
def _clang(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("CC", "clang")
    tc.reset()
    yield
    tc.reset()


def numbers(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    generator = torch.Generator().manual_seed(len(shape))
    return torch.randn(*shape, generator=generator).to(dtype)


X = numbers(37, 65)
PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "pointwise": (lambda x: torch.sin(x) * x.exp().log1p() - x.sigmoid(), (X,)),
    "special functions": (lambda x: x.erf() + torch.lgamma(x.abs() + 1) + x.tanh(), (X,)),
    "reductions": (lambda x: (x.sum(0), x.amax(1), x.var(), x.argmin(-1)), (X,)),
    "softmax and norm": (lambda x: F.layer_norm(x, (65,)).softmax(-1), (X,)),
    "scan": (lambda x: (x.cumsum(1) + 1).relu(), (X,)),
    "gemm": (lambda x, w: F.gelu(x @ w + 1), (X, numbers(65, 48))),
    "integers": (lambda i: (i // 3 + (i % 5) ** 2) ^ (i << 1), (torch.arange(-40, 57),)),
    "masks": (lambda x: torch.where((x > 0) & (x < 1), x, -x).clamp(max=0.5), (X,)),
    "bfloat16": (lambda x: (x * 2 + 1).relu(), (X.bfloat16(),)),
    "float64": (lambda x: x.pow(3).sqrt().nan_to_num(), (X.double(),)),
    "gather": (lambda x, i: x[i] * 2, (X, torch.tensor([3, 0, 36]))),
    "scatter": (lambda x: torch.zeros(5).index_add(0, torch.arange(37) % 5, x[:, 0]), (X,)),
    "sort": (lambda x: x.sort(-1).values + 1, (X,)),
    "attention": (F.scaled_dot_product_attention, (numbers(1, 4, 128, 64),) * 3),
    "transposed": (lambda x: x.t().contiguous() + x.t().cos(), (X,)),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_those_of_eager(name: str) -> None:
    program, inputs = PROGRAMS[name]
    with capture_events() as events:
        found = tc.compile(program, fullgraph=True)(*inputs)
    assert events.of(OutputCode)
    torch.testing.assert_close(found, program(*inputs))


def test_gradients_are_those_of_eager() -> None:
    def loss(x: Tensor, w: Tensor) -> Tensor:
        return F.silu(x @ w).square().mean()

    w = numbers(65, 20).requires_grad_()
    (expected,) = torch.autograd.grad(loss(X, w), w)
    (found,) = torch.autograd.grad(tc.compile(loss)(X, w), w)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("machine", ["-march=native", "--target=aarch64-linux-gnu"])
def test_every_helper_is_c_to_clang(machine: str, tmp_path: Path) -> None:
    """As generated code holds them: the templates among them filled in."""
    path = tmp_path / "helpers.c"
    path.write_text(helpers_for(helpers().names()), "utf-8")
    flags = ("-fsyntax-only", "-x", "c", machine, "-w")
    done = subprocess.run(["clang", *flags, path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_clang_is_what_compiled() -> None:
    assert build.find_compiler().is_clang
