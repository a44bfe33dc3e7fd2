"""Makes arguments of differentiable calls, away from kinks, poles and ties."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

D = torch.float64
NAN = math.nan
Row = tuple[Callable[..., Any], tuple[Any, ...]]


class Maker:
    """Makes arguments, the same ones in each session."""

    def __init__(self) -> None:
        self.generator = torch.Generator().manual_seed(11)

    def n(self, *shape: int, dtype: torch.dtype = D) -> torch.Tensor:
        """Normal numbers that require grad."""
        return torch.randn(shape, dtype=dtype, generator=self.generator).requires_grad_()

    def u(self, *shape: int, low: float = 0.1, high: float = 0.9) -> torch.Tensor:
        """Numbers of a range that require grad."""
        made = torch.rand(shape, dtype=D, generator=self.generator)
        return (made * (high - low) + low).requires_grad_()

    def apart(self, *shape: int) -> torch.Tensor:
        """Numbers that require grad, no two nearer than 0.1, none near a multiple of 0.5."""
        count = math.prod(shape)
        made = torch.randperm(count, generator=self.generator).to(D)
        return ((made - count // 2) * 0.5 + 0.2).view(shape).requires_grad_()

    def c(self, *shape: int) -> torch.Tensor:
        """Complex numbers that require grad."""
        return self.n(*shape, dtype=torch.complex128)

    def spd(self, size: int) -> torch.Tensor:
        """Return a symmetric matrix with positive eigenvalues."""
        half = torch.randn(size, size, dtype=D, generator=self.generator)
        return (half @ half.t() + torch.eye(size, dtype=D)).requires_grad_()

    def regular(self, *batch: int, size: int) -> torch.Tensor:
        """Return matrices that can be inverted."""
        noise = torch.randn(*batch, size, size, dtype=D, generator=self.generator)
        return (noise * 0.3 + torch.diag(torch.arange(1.0, size + 1, dtype=D))).requires_grad_()


def on(fn: Callable[..., Any], *args: Any, **options: Any) -> Row:
    """Return a row that calls a function with options."""
    return (lambda *a: fn(*a, **options)) if options else fn, args


def index(*values: int) -> torch.Tensor:
    """Return indices."""
    return torch.tensor(values)
