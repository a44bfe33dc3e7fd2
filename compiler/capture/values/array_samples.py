"""What numpy itself says of a call: the types of its results, and which arrays they are views of.

The call is made once, while the program is captured, with small arrays of the same types, shapes
and layouts. Where the tensors of the graph would differ from numpy's arrays the graph breaks.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from tc.compiler.core.symbolic import hint

#: arrays with more elements are not made: an array with shorter dimensions takes their place
LARGEST = 1 << 16
SHORTENED = 4


class NoSample(Exception):
    """A value of which no example can be made."""


@dataclass(frozen=True)
class Sampled:
    """Numpy's result for examples, and the arrays that it was called with."""

    result: Any
    arrays: Sequence[Any]

    def views(self, found: Any) -> list[int]:
        """Return which arrays an array of the result shares memory with."""
        return [
            i for i, one in enumerate(self.arrays) if np.may_share_memory(one, found)
        ]


def sample_array(example: torch.Tensor, elements: Any = None) -> Any:
    """Return an array of the type, shape and layout of a fake tensor, with elements if any."""
    sizes = [hint(size) for size in example.shape]
    strides = [hint(stride) for stride in example.stride()]
    if None in (*sizes, *strides) or example.dtype == torch.bfloat16:
        raise NoSample
    if _extent(sizes, strides) > LARGEST:
        sizes = [min(size, SHORTENED) for size in sizes]
        strides = _dense(sizes, strides)
    extent = _extent(sizes, strides)
    if extent > LARGEST:
        raise NoSample
    kind = np.dtype(str(example.dtype).removeprefix("torch."))
    memory = np.ones(max(extent, 1), kind)
    bytes_ = [step * kind.itemsize for step in strides]
    array = np.lib.stride_tricks.as_strided(memory, sizes, bytes_)
    if elements is not None:
        if array.shape != elements.shape:
            raise NoSample
        array[...] = elements
    return array


def _extent(sizes: Sequence[int], strides: Sequence[int]) -> int:
    return 1 + sum((n - 1) * step for n, step in zip(sizes, strides, strict=True))


def _dense(sizes: Sequence[int], strides: Sequence[int]) -> list[int]:
    """Return the strides of an array without gaps whose dimensions are in the same order."""
    found, step = [0] * len(sizes), 1
    for place in sorted(range(len(sizes)), key=lambda i: (strides[i], -i)):
        if strides[place]:
            found[place] = step
            step *= max(sizes[place], 1)
    return found


def sampled(
    call: Callable[..., Any], make: Callable[[], tuple[Any, ...]]
) -> Sampled | None:
    """Return numpy's result of a call, or None where it has none.

    Args:
        call: of numpy, gets the operands.
        make: makes the operands, and last a list of the arrays among them.

    Raises:
        OverflowError: numpy refuses a number.
    """
    try:
        *operands, arrays = make()
    except NoSample:
        return None
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return Sampled(call(*operands), arrays)
    except OverflowError:
        raise
    except Exception:  # it may be that of the examples' numbers
        return None
