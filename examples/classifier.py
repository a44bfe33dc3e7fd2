"""An image classifier that trains on the hardest images of each batch.

    TC_LOGS=graph_breaks python examples/classifier.py
    TC_LOGS=graph_breaks python examples/classifier.py --cured

Finding: the losses above the mean are picked by a mask, `losses[losses > losses.mean()]`. How many
that are is known only once the kernels have run: a graph break (TC102), in the middle of each step.
Cure: keep the shape, and let a weight of zero take the others out.
"""

from __future__ import annotations

import argparse

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import tc

SIZE = 16
KINDS = ("disc", "ring", "cross")


def draw(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw shapes at random places, with noise: images (count, 1, SIZE, SIZE) and their kinds."""
    labels = torch.randint(len(KINDS), (count,), generator=generator)
    centre = torch.randint(5, SIZE - 5, (2, count, 1, 1), generator=generator)
    y = torch.arange(SIZE).view(1, SIZE, 1) - centre[0]
    x = torch.arange(SIZE).view(1, 1, SIZE) - centre[1]
    radius = (x.square() + y.square()).sqrt()
    disc = radius < 4
    ring = disc & (radius > 2.5)
    cross = disc & ((x.abs() < 1) | (y.abs() < 1))
    shapes = torch.stack([disc, ring, cross])[labels, torch.arange(count)].float()
    return shapes[:, None] + 0.3 * torch.randn(count, 1, SIZE, SIZE, generator=generator), labels


class Classifier(nn.Sequential):
    """Two convolutions, and a linear layer over what they find."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(1, 12, 3, padding=1),
            nn.BatchNorm2d(12),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(12, 24, 3, padding=1),
            nn.BatchNorm2d(24),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(24, len(KINDS)),
        )


def hardest(losses: Tensor) -> Tensor:
    """Return the mean of the losses above the mean of all."""
    return losses[losses > losses.mean()].mean()


def hardest_cured(losses: Tensor) -> Tensor:
    """Return the same, without a shape that depends on the losses."""
    weights = (losses > losses.mean()).to(losses.dtype)
    return (losses * weights).sum() / weights.sum()


def train(cured: bool, steps: int, compiled: bool = True) -> tuple[Classifier, list[float]]:
    """Train a classifier from the same start; return it, and the loss of each step."""
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    model = Classifier()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
    choose = hardest_cured if cured else hardest

    def loss_of(images: Tensor, labels: Tensor) -> Tensor:
        return choose(F.cross_entropy(model(images), labels, reduction="none"))

    step = tc.compile(loss_of) if compiled else loss_of
    history = []
    for _ in range(steps):
        loss = step(*draw(32, generator))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.append(loss.item())
    return model, history


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cured", action="store_true", help="the step without its graph break")
    parser.add_argument("--steps", type=int, default=100, help="%(default)s")
    options = parser.parse_args(arguments)
    if options.steps < 1:
        parser.error("--steps must be 1 or more")
    torch.set_num_threads(1)

    _, expected = train(options.cured, min(options.steps, 5), compiled=False)
    model, history = train(options.cured, options.steps)
    torch.testing.assert_close(history[:5], expected[:5], rtol=1e-3, atol=1e-4)
    images, labels = draw(300, torch.Generator().manual_seed(2))
    with torch.no_grad():
        right = (model.eval()(images).argmax(-1) == labels).float().mean()
    print(f"loss      {history[0]:.1f} at first, {history[-1]:.1f} after {options.steps} steps")
    print(f"right     {right:.0%} of 300 new images")
    print("matches   eager, loss by loss over the first steps")


if __name__ == "__main__":
    main()
