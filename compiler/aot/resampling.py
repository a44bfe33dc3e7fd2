"""Resampling at exactly the coordinates of ATen's CPU kernels.

Torch's own decomposition sometimes picks another neighbour than the kernels, which multiply by a
factor rounded to the tensor's type, or to float32, depending on type and layout (this follows
ATen's ``UpSampleKernel.cpp``, and tests compare the two). A wrong neighbour is an entirely
different value, so rounding matters, unlike in the smooth modes.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch._prims_common import suggest_memory_format

from tc.compiler.core.fakes import CHANNELS_LAST

aten = torch.ops.aten
NEAREST = ("nearest", "nearest-exact")
#: modes by the dimensions of their input
LINEAR = {3: "linear", 4: "bilinear", 5: "trilinear"}
#: height and width of an image that ATen resamples in its kernel for channels last, at most
SMALL_IMAGE = 128


def _fuses() -> bool:
    """Return whether ATen's kernels on this CPU round ``a * b + c`` only once (FMA)."""
    pair = torch.arange(2.0, device="cpu").view(1, 1, 2)
    found: Tensor = torch.nn.functional.interpolate(pair, size=41, mode="nearest-exact")
    places, step = torch.arange(41, device="cpu"), torch.tensor(2 / 41, device="cpu")
    once = (places + 0.5).double() * step.double() - 0.5
    return bool((found.flatten() == (once.float() + 0.5).floor().clamp(0, 1)).all())


FUSES = _fuses()


def interpolate(
    input: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """Stand in for `torch.nn.functional.interpolate`."""
    found = None
    sized = input.device.type == "cpu" and (size is None) != (scale_factor is None)
    if sized and mode == "bilinear" and input.dtype is torch.uint8 and not antialias:
        after, factors = _sizes(input, size, scale_factor, recompute_scale_factor)
        with torch._C._AutoDispatchBelowAutograd():  # which decomposes it, whatever its type
            resized: Tensor = aten.upsample_bilinear2d(input, after, bool(align_corners), *factors)
        return resized
    plain = not align_corners and not antialias and input.dim() in (3, 4, 5)
    if plain and sized:
        after, factors = _sizes(input, size, scale_factor, recompute_scale_factor)
        if mode in NEAREST:
            found = nearest(input, after, factors, mode == "nearest-exact")
        elif mode == LINEAR.get(input.dim()):
            found = _linear(input, after, factors)
        elif mode == "bicubic":
            found = _cubic(input, after, factors)
    if found is not None:
        return found
    return torch.nn.functional.interpolate(
        input, size, scale_factor, mode, align_corners, recompute_scale_factor, antialias
    )


def _sizes(
    input: Tensor, size: Any, scale_factor: Any, recomputed: bool | None
) -> tuple[list[Any], list[Any]]:
    """Return the spatial sizes of the result, and the scale factors that coordinates follow."""
    before = input.shape[2:]
    if size is not None:
        after = list(size) if isinstance(size, list | tuple) else [size] * len(before)
        return after, [None] * len(before)
    several = isinstance(scale_factor, list | tuple)
    given = list(scale_factor) if several else [scale_factor] * len(before)
    after = [
        n * int(s) if int(s) == s else math.floor(n * float(s))
        for n, s in zip(before, given, strict=True)
    ]
    return after, [None] * len(before) if recomputed else given


def _linear(input: Tensor, after: Sequence[Any], factors: Sequence[Any]) -> Tensor | None:
    """Return a resized image where a dimension keeps its size, whatever its factor; else None.

    ATen copies along such a dimension; torch's decompositions sample by the factor.
    """
    kept = [
        n == m and f is not None for n, m, f in zip(input.shape[2:], after, factors, strict=True)
    ]
    if not any(kept):
        return None
    used = [None if same else factor for same, factor in zip(kept, factors, strict=True)]
    resample = {
        3: aten.upsample_linear1d.default,
        4: aten.upsample_bilinear2d.default,
        5: aten.upsample_trilinear3d.default,
    }[input.dim()]
    result: Tensor = resample(input, after, False, *used)
    return result


def nearest(input: Tensor, after: Sequence[Any], factors: Sequence[Any], exact: bool) -> Tensor:
    """Return a resized image in which each pixel has the value of the nearest input pixel.

    Args:
        input: ``(batch, channels, ...)`` with one to three spatial dimensions.
        after: the spatial sizes of the result.
        factors: scale factors if the indices are computed with these; else None.
        exact: whether distances are measured from the centres of pixels, not from their corners.
    """
    layout = CHANNELS_LAST.get(input.dim())
    last = layout is not None and input.is_contiguous(memory_format=layout) and input.shape[1] > 3
    vectorised = last or (input.dim() == 4 and after[0] + after[1] <= SMALL_IMAGE)
    sizes = list(zip(input.shape[2:], after, factors, strict=True))
    index = [_indices(input, *size, exact, vectorised) for size in sizes]
    result = _indexed(input, index)
    if not exact and not vectorised and _wants_gradient(input):
        simple = [_simple(input, *size) for size in sizes]
        if any(one is not None and f not in (1, 2) for one, f in zip(simple, factors, strict=True)):
            pairs = zip(simple, index, strict=True)
            backward = [other if one is None else one for one, other in pairs]
            result = _valued(_indexed(input, backward), result.detach())
    if layout is not None:
        result = _in_form(result, suggest_memory_format(input))
    return result


def _indexed(input: Tensor, index: Sequence[Tensor]) -> Tensor:
    shaped = [one.view(-1, *[1] * (len(index) - 1 - i)) for i, one in enumerate(index)]
    result: Tensor = aten._unsafe_index(input, [None, None, *shaped])
    return result


def _simple(input: Tensor, n: Any, m: Any, factor: Any) -> Tensor | None:
    """Return the indices of the nearest of ``n`` pixels where ATen has a rule without a factor.

    Its kernels for backward know it always, those for forward only where they are vectorised.
    """
    if factor is None or not (m == n or m == 2 * n):
        return None
    place = torch.arange(m, device=input.device)
    return place if m == n else place >> 1


def _indices(input: Tensor, n: Any, m: Any, factor: Any, exact: bool, vectorised: bool) -> Tensor:
    """Return the indices of the nearest of ``n`` pixels for each of ``m`` pixels."""
    kind = torch.double if input.dtype is torch.double and not vectorised else torch.float
    place = torch.arange(m, device=input.device)
    simple = _simple(input, n, m, factor) if vectorised and not exact else None
    if simple is not None:
        return simple
    given = factor is not None and factor > 0
    step = torch.full((), 1.0 / factor if given else n / m, dtype=kind, device=input.device)
    if not exact:
        found = place.to(kind) * step
    elif vectorised:
        found = (place + 0.5).double() * step.double()
    elif kind is torch.float and FUSES:
        found = ((place + 0.5).double() * step.double() - 0.5).float().clamp(min=0) + 0.5
    else:
        found = ((place.to(kind) + 0.5) * step - 0.5).clamp(min=0) + 0.5
    return found.float().floor().long().clamp(max=n - 1)


def _cubic(input: Tensor, after: Sequence[Any], factors: Sequence[Any]) -> Tensor | None:
    """Return a resampled image of the same size with its gradient; None for another size.

    ATen samples by the factors, and passes the gradient through as if it had copied.
    """
    same = all(map(operator.eq, input.shape[2:], after))
    if not same or factors[0] is None or not _wants_gradient(input):
        return None
    return _valued(input, aten.upsample_bicubic2d.default(input.detach(), after, False, *factors))


def _wants_gradient(input: Tensor) -> bool:
    return torch.is_grad_enabled() and input.requires_grad


class _Valued(torch.autograd.Function):
    """Has the value of one tensor, and the gradient of another of the same shape."""

    @staticmethod
    def forward(ctx: Any, other: Tensor, value: Tensor) -> Tensor:
        """Return the value."""
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """Return the gradient for the other tensor."""
        return gradients[0], None


def _valued(other: Tensor, value: Tensor) -> Tensor:
    result: Tensor = _Valued.apply(other, value)  # type: ignore[no-untyped-call]
    return result


def _in_form(result: torch.Tensor, form: torch.memory_format) -> torch.Tensor:
    """Lay a result out; one of one channel or pixel is of several forms at once."""
    narrow = any(type(size) is int and size == 1 for size in result.shape[1:])
    if form is torch.contiguous_format or not narrow:
        return result.contiguous(memory_format=form)
    return result.clone(memory_format=form)
