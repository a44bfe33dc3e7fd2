"""Nearest-neighbour resampling with exactly the indices of ATen's CPU kernels.

Torch's own decomposition sometimes picks another neighbour than the kernels, which multiply by a
factor rounded to the tensor's type, or to float32, depending on type and layout (this follows
ATen's ``UpSampleKernel.cpp``, and tests compare the two). A wrong neighbour is an entirely
different value, so rounding matters, unlike in the smooth modes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch._prims_common import suggest_memory_format

aten = torch.ops.aten
NEAREST = ("nearest", "nearest-exact")
CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}
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
    plain = mode in NEAREST and align_corners is None and not antialias and input.dim() in (3, 4, 5)
    if not plain or input.device.type != "cpu" or (size is None) == (scale_factor is None):
        return torch.nn.functional.interpolate(
            input, size, scale_factor, mode, align_corners, recompute_scale_factor, antialias
        )
    before = input.shape[2:]
    factors: list[Any] = [None] * len(before)
    if size is not None:
        after = list(size) if isinstance(size, list | tuple) else [size] * len(before)
    else:
        several = isinstance(scale_factor, list | tuple)
        given = list(scale_factor) if several else [scale_factor] * len(before)
        after = [
            n * int(s) if int(s) == s else math.floor(n * float(s))
            for n, s in zip(before, given, strict=True)
        ]
        factors = factors if recompute_scale_factor else given
    return nearest(input, after, factors, mode == "nearest-exact")


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
    index: list[Tensor | None] = [None, None]
    for i, (n, m, factor) in enumerate(zip(input.shape[2:], after, factors, strict=True)):
        found = _indices(input, n, m, factor, exact, vectorised)
        index.append(found.view(-1, *[1] * (len(after) - 1 - i)))
    result: Tensor = aten._unsafe_index(input, index)
    if layout is not None:
        result = _in_form(result, suggest_memory_format(input))
    return result


def _indices(input: Tensor, n: Any, m: Any, factor: Any, exact: bool, vectorised: bool) -> Tensor:
    """Return the indices of the nearest of ``n`` pixels for each of ``m`` pixels."""
    kind = torch.double if input.dtype is torch.double and not vectorised else torch.float
    place = torch.arange(m, device=input.device)
    if vectorised and not exact and factor is not None:
        if m == n:
            return place
        if m == 2 * n:
            return place >> 1
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


def _in_form(result: torch.Tensor, form: torch.memory_format) -> torch.Tensor:
    """Lay a result out; one of one channel or pixel is of several forms at once."""
    narrow = any(type(size) is int and size == 1 for size in result.shape[1:])
    if form is torch.contiguous_format or not narrow:
        return result.contiguous(memory_format=form)
    return result.clone(memory_format=form)
