"""A diffusion model that learns a spiral of points and draws new ones out of noise.

    TC_LOGS=graph_breaks python examples/diffusion.py
    TC_LOGS=graph_breaks python examples/diffusion.py --cured

Finding: the scheduler takes its coefficients out of tensors, `self.kept[time].item()`, to do their
arithmetic in Python. Each step of the loop is interrupted by a graph break for it (TC101).
Cure: leave them tensors. Arithmetic on tensors of one number is fused into the kernels.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import tc

STEPS = 30  # of noise, from data to a normal distribution


def spiral(count: int, generator: torch.Generator) -> Tensor:
    """Draw points of a spiral of one and a half turns: (count, 2), about of size one."""
    turn = 3 * math.pi * torch.rand(count, generator=generator).sqrt()
    points = torch.stack([turn.cos(), turn.sin()], dim=-1) * turn[:, None] / 5
    return points + 0.02 * torch.randn(count, 2, generator=generator)


class Scheduler:
    """How much noise a step has, and the way back by one step (DDPM, Ho et al. 2020)."""

    def __init__(self) -> None:
        self.betas = torch.linspace(1e-3, 0.35, STEPS)
        self.kept = (1 - self.betas).cumprod(0)

    def add_noise(self, points: Tensor, noise: Tensor, time: Tensor) -> Tensor:
        """Return the points as they are at a time: (n, 2), times (n,)."""
        kept = self.kept[time][:, None]
        return kept.sqrt() * points + (1 - kept).sqrt() * noise

    def step(self, points: Tensor, predicted: Tensor, time: Tensor, dice: Tensor) -> Tensor:
        """Take one step's predicted noise out, and add that of the step before it.

        Args:
            points, predicted, dice: (n, 2).
            time: the number of the step, (1,).
        """
        beta, kept = self.betas[time].item(), self.kept[time].item()
        mean = (points - beta / math.sqrt(1 - kept) * predicted) / math.sqrt(1 - beta)
        return mean + math.sqrt(beta) * dice * (time > 0)


class CuredScheduler(Scheduler):
    """The same with its coefficients left in tensors."""

    def step(self, points: Tensor, predicted: Tensor, time: Tensor, dice: Tensor) -> Tensor:
        beta, kept = self.betas[time], self.kept[time]
        mean = (points - beta / (1 - kept).sqrt() * predicted) / (1 - beta).sqrt()
        return mean + beta.sqrt() * dice * (time > 0)


class Denoiser(nn.Module):
    """Predicts the noise in points (n, 2) at times (n,) or (1,)."""

    def __init__(self, width: int = 96) -> None:
        super().__init__()
        self.time = nn.Embedding(STEPS, width)
        self.first = nn.Linear(2, width)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(3))
        self.last = nn.Linear(width, 2)

    def forward(self, points: Tensor, time: Tensor) -> Tensor:
        x = self.first(points) + self.time(time)
        for layer in self.layers:
            x = x + layer(F.silu(x))
        return self.last(F.silu(x))


def train(scheduler: Scheduler, steps: int) -> Denoiser:
    """Return a model that has learned to separate noise from the spiral."""
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    model = Denoiser()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(steps):
        points = spiral(256, generator)
        noise = torch.randn(256, 2, generator=generator)
        time = torch.randint(STEPS, (256,), generator=generator)
        loss = F.mse_loss(model(scheduler.add_noise(points, noise, time), time), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


def denoising(model: Denoiser, scheduler: Scheduler) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Return the function that a sampler calls in its loop."""

    def denoise(points: Tensor, time: Tensor, dice: Tensor) -> Tensor:
        return scheduler.step(points, model(points, time), time, dice)

    return denoise


@torch.no_grad()
def sample(denoise: Callable[[Tensor, Tensor, Tensor], Tensor], count: int) -> Tensor:
    """Draw points (count, 2) out of noise, the same at each call."""
    generator = torch.Generator().manual_seed(3)
    points = torch.randn(count, 2, generator=generator)
    for time in reversed(range(STEPS)):
        dice = torch.randn(count, 2, generator=generator)
        points = denoise(points, torch.tensor([time]), dice)
    return points


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cured", action="store_true", help="the step without its graph break")
    parser.add_argument("--steps", type=int, default=600, help="training steps (%(default)s)")
    options = parser.parse_args(arguments)
    if options.steps < 1:
        parser.error("--steps must be 1 or more")
    torch.set_num_threads(1)

    scheduler = CuredScheduler() if options.cured else Scheduler()
    denoise = denoising(train(scheduler, options.steps).eval(), scheduler)
    points = sample(tc.compile(denoise), 400)
    torch.testing.assert_close(points, sample(denoise, 400), rtol=1e-3, atol=1e-3)
    spiral_points = spiral(4000, torch.Generator().manual_seed(2))
    away, noise = (
        torch.cdist(found, spiral_points).min(-1).values.median()
        for found in (points, torch.randn(400, 2))
    )
    print(f"drew      400 points, {away:.3f} from the spiral (noise: {noise:.3f})")
    print("matches   eager, point by point")


if __name__ == "__main__":
    main()
