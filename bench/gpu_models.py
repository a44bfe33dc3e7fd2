"""Models on a GPU: steps of tc against torch.compile and eager, in one process, compilers in turns.

    python bench/gpu_models.py
    python bench/gpu_models.py --models gpt_train,conv_train --rounds 20 --json models.json

A row has the least time of the rounds by the device's clock, the share of it in which kernels run
(the rest is waiting for launches), what compiling took (the first step, kernel caches as they are),
and how far the compiled results are from eager's, as a norm. ``--kernels 8`` also prints the
longest kernels of each compiler.
"""

from __future__ import annotations

import argparse
import copy
import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from gpu_speed import COMPILERS, conclude, least
from torch import nn

T = torch.Tensor


class Block(nn.Module):
    """A block of GPT: attention and an MLP, each behind a layer norm."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mixed, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: T) -> T:
        """(batch, length, width) to the same."""
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in self.mixed(self.before(x)).chunk(3, -1)
        )
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).flatten(-2))
        return x + self.down(F.gelu(self.up(self.between(x)), approximate="tanh"))


class Gated(nn.Module):
    """A block of Llama without a cache: RMS norms, rotary positions, a gated MLP."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.RMSNorm(width), nn.RMSNorm(width)
        self.mixed = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.gate, self.up = (nn.Linear(width, 3 * width, bias=False) for _ in range(2))
        self.down = nn.Linear(3 * width, width, bias=False)

    def rotated(self, x: T) -> T:
        """Rotate pairs of features by their position."""
        half = x.shape[-1] // 2
        speed = 10000.0 ** (-torch.arange(half, device=x.device) / half)
        angle = torch.arange(x.shape[-2], device=x.device)[:, None] * speed
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        one, two = x.chunk(2, -1)
        return torch.cat([one * cos - two * sin, two * cos + one * sin], -1)

    def forward(self, x: T) -> T:
        """(batch, length, width) to the same."""
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in self.mixed(self.before(x)).chunk(3, -1)
        )
        seen = F.scaled_dot_product_attention(self.rotated(q), self.rotated(k), v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).flatten(-2))
        y = self.between(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Residual(nn.Module):
    """A block of a ResNet."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList(
            nn.Conv2d(width, width, 3, padding=1, bias=False) for _ in range(2)
        )
        self.norms = nn.ModuleList(nn.BatchNorm2d(width) for _ in range(2))

    def forward(self, x: T) -> T:
        """(batch, width, height, width) to the same."""
        y = F.relu(self.norms[0](self.convolutions[0](x)))
        return F.relu(x + self.norms[1](self.convolutions[1](y)))


@dataclass(frozen=True)
class Model:
    """A model and its input.

    Attributes:
        build: makes the module.
        shape: the input's.
        train: whether a step has a backward.
        mode: of the compilers.
    """

    build: Callable[[], nn.Module]
    shape: tuple[int, ...]
    dtype: torch.dtype = torch.float32
    train: bool = False
    mode: str | None = None


def repeated(make: Callable[[], nn.Module], count: int) -> Callable[[], nn.Module]:
    """A chain of blocks."""
    return lambda: nn.Sequential(*(make() for _ in range(count)))


def models() -> dict[str, Model]:
    """The models, by name."""
    half = torch.bfloat16
    gpt, gated = repeated(lambda: Block(768, 12), 4), repeated(lambda: Gated(1024, 16), 4)
    conv = repeated(lambda: Residual(64), 4)
    return {
        "gpt_infer": Model(gpt, (8, 1024, 768), half),
        "gpt_train": Model(gpt, (8, 1024, 768), half, train=True),
        "gated_infer": Model(gated, (8, 1024, 1024), half),
        "gated_train": Model(gated, (8, 1024, 1024), half, train=True),
        "conv_infer": Model(conv, (32, 64, 56, 56)),
        "conv_train": Model(conv, (32, 64, 56, 56), train=True),
        "gpt_one_token": Model(gpt, (1, 1, 768), half),
        "gpt_one_token_graphs": Model(gpt, (1, 1, 768), half, mode="reduce-overhead"),
    }


def stepper(model: Model, module: nn.Module, call: Callable[[T], T], x: T) -> Callable[[], T]:
    """A function that runs one step, and returns the result or the first gradient."""

    def infer() -> T:
        with torch.no_grad():
            return call(x)

    def train() -> T:
        module.zero_grad(set_to_none=True)
        call(x).float().square().mean().backward()
        gradient = next(module.parameters()).grad
        assert gradient is not None
        return gradient

    return train if model.train else infer


def kernels_of(step: Callable[[], T], steps: int = 3) -> list[tuple[float, int, str]]:
    """The kernels of a step, the longest first: seconds in a step, launches in it, name."""
    kind = torch.profiler.ProfilerActivity.CUDA
    with torch.profiler.profile(activities=[kind]) as profile:
        for _ in range(steps):
            step()
        torch.cuda.synchronize()
    found = [
        (event.self_device_time_total / 1e6 / steps, event.count // steps, event.key)
        for event in profile.key_averages()
    ]
    return sorted(found, reverse=True)


def measure(name: str, model: Model, rounds: int, kernels: int = 0) -> dict[str, object]:
    """Times of a model; prints so many kernels of each compiler."""
    import tc

    tc.reset()
    torch.compiler.reset()
    torch.manual_seed(0)
    module = model.build().cuda().to(model.dtype).train(model.train)
    x = torch.randn(model.shape, device="cuda").to(model.dtype)
    compilers: dict[str, Callable[..., Any]] = {
        "eager": lambda module, **_: module,
        "tc": tc.compile,
        "torch": torch.compile,
    }
    row: dict[str, object] = {"model": name}
    steps, results = {}, {}
    for compiler, make in compilers.items():
        own = copy.deepcopy(module)
        steps[compiler] = stepper(model, own, make(own, mode=model.mode), x)
        start = time.perf_counter()
        results[compiler] = steps[compiler]().double()
        torch.cuda.synchronize()
        row[f"{compiler}_first"] = time.perf_counter() - start
    best = dict.fromkeys(COMPILERS, math.inf)
    for _ in range(2):
        for compiler in COMPILERS:
            best[compiler] = min(best[compiler], least(steps[compiler], rounds))
    for compiler in COMPILERS:
        found = kernels_of(steps[compiler])
        row[f"{compiler}_busy"] = sum(seconds for seconds, _, _ in found) / best[compiler]
        for seconds, count, kernel in found[:kernels]:
            print(f"    {compiler:6} {seconds * 1e6:9.1f} us {count:4} times  {kernel[:90]}")
    for compiler in ("tc", "torch"):
        far = (results[compiler] - results["eager"]).norm() / results["eager"].norm()
        row[f"{compiler}_far"] = float(far)
    return {**row, **best}


def main(arguments: list[str] | None = None) -> int:
    """Print a row a model; 2 where there is no GPU, or no such model."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--models", default="", help="names, separated by commas; all by default")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--kernels", type=int, default=0, help="print so many of the longest")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    known = models()
    names = [name for name in options.models.split(",") if name] or list(known)
    unknown = [name for name in names if name not in known]
    if unknown or not torch.cuda.is_available():
        why = f"no model {', '.join(unknown)}; there are {', '.join(known)}"
        print(f"gpu_models.py: {why if unknown else 'torch sees no GPU here'}", file=sys.stderr)
        return 2
    found: list[dict[str, Any]] = []
    for name in names:
        row = measure(name, known[name], options.rounds, options.kernels)
        found.append(row)
        times = "  ".join(
            f"{c} {row[c] * 1e6:7.0f} us ({row[f'{c}_busy']:4.0%})" for c in COMPILERS
        )
        print(
            f"{name:21}{times}  {row['torch'] / row['tc']:5.2f}x of torch, first step "
            f"{row['tc_first']:.1f} s against {row['torch_first']:.1f} s, "
            f"from eager {row['tc_far']:.1e} against {row['torch_far']:.1e}",
            flush=True,
        )
    conclude(found, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
