"""Sorting on the CPU: takes a tensor and returns what `torch.sort` does, faster.

The work is done by ``sorting.c``, which keeps the order of equal elements. So does torch if asked
to (``stable``); else it leaves them in the order `std::sort` happens to leave them in, and since
results are to be eager's, rows that hold equal elements are then sorted by torch.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from tc.compiler.routines.row import Routine, routine
from tc.compiler.runtime.launch import Kernel

#: elements of a row, and of all, below which ATen was measured to be as fast
SHORT, FEW = 8, 2048
#: elements up to which `std::sort` inserts one after the other, which keeps the order of equal ones
INSERTED = 16
#: elements from which most rows of floats hold equal ones
CROWDED = 4096
#: of so many rows or more, an eighth is tried first
MANY = 64

Sorted = tuple[torch.Tensor, torch.Tensor]


def sort(source: torch.Tensor, dim: int, descending: bool, stable: bool) -> Sorted:
    """Return the values along a dimension in order, and the places they were at.

    Both are row-major, the elements of a row along ``dim``.
    """
    last = dim == source.dim() - 1
    rows = (source if last else source.movedim(dim, -1)).contiguous()
    kernel = ROUTINE.kernel(rows.dtype)
    stable = stable or rows.shape[-1] <= INSERTED
    if kernel is None or rows.numel() == 0 or not (stable or rows.shape[-1] <= CROWDED):
        found = _by_torch(rows, descending, stable)
    else:
        found = _by_kernel(kernel, rows, descending, stable)
    return found if last else (found[0].movedim(-1, dim), found[1].movedim(-1, dim))


def _by_torch(rows: torch.Tensor, descending: bool, stable: bool) -> Sorted:
    values, places = torch.sort(rows, dim=-1, descending=descending, stable=stable)
    return values, places


def _by_kernel(kernel: Kernel, rows: torch.Tensor, descending: bool, stable: bool) -> Sorted:
    values, places = rows.new_empty(rows.shape), rows.new_empty(rows.shape, dtype=torch.int64)
    length, threads = rows.shape[-1], torch.get_num_threads()
    count = rows.numel() // length
    if stable:
        kernel(rows, values, places, places, 0, count, length, descending, True, threads)
        return values, places
    tied = rows.new_empty(count, dtype=torch.bool)
    tried = count // 8 if count >= MANY else 0
    if tried:
        kernel(rows, values, places, tied, 0, tried, length, descending, False, threads)
        if 4 * int(tied[:tried].sum()) > 3 * tried:
            return _by_torch(rows, descending, stable)
    kernel(rows, values, places, tied, tried, count, length, descending, False, threads)
    again = tied.nonzero().squeeze(1)
    if len(again):
        found = _by_torch(rows.view(count, length)[again], descending, stable)
        values.view(count, length)[again], places.view(count, length)[again] = found
    return values, places


def refusal(
    device: torch.device, dtype: torch.dtype, dims: int, length: int | None, count: int | None,
    stable: bool,
) -> str:  # fmt: skip
    """Return what is not for the routine: what it cannot sort, or ATen sorts as fast.

    Args:
        dims: dimensions of the tensor.
        length: elements of a row, None where that varies.
        count: elements of all rows, None where that varies.
        stable: whether equal elements keep their order.
    """
    if device.type != "cpu":
        return "a sort on a GPU"
    if dtype not in ROUTINE.functions:
        return f"a sort of {dtype}"
    if not dims:
        return "a sort of a number"
    if dtype is torch.int32 and dims == 1:
        return "one row of integers, which ATen sorts with several threads"
    if (length is not None and length < SHORT) or (count is not None and count < FEW):
        return "short rows, or few elements, to sort"
    if stable or (length is not None and length <= INSERTED):
        return ""
    if dtype is not torch.float32 or (length is not None and length > CROWDED):
        return "most rows hold equal elements, whose order is that of std::sort"
    return ""


def _reference(source: torch.Tensor, dim: int, descending: bool, stable: bool) -> Any:
    return torch.sort(source, dim=dim, descending=descending, stable=stable)


ROUTINE = routine(
    Routine(
        "sorting",
        refusal,
        {"sort": _reference},
        Path(__file__).with_suffix(".c"),
        {
            torch.float32: "sort_f32",
            torch.bfloat16: "sort_bf16",
            torch.float16: "sort_f16",
            torch.int32: "sort_i32",
        },
        signature=("p", "p", "p", "p", "i64", "i64", "i64", "i64", "i64", "i64"),
    )
)
