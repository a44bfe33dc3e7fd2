"""Takes a tensor on the CPU and returns what `torch.sort` does, sooner.

The work is done by ``sorting.c``, which keeps the order of equal elements. So does torch if asked
to (``stable``); else it leaves them in the order `std::sort` happens to leave them in, and since
results are to be eager's, rows that hold equal elements are then sorted by torch.
"""

from __future__ import annotations

import torch

from tc.compiler.runtime.launch import Kernel
from tc.compiler.runtime.routines import open_routine

KERNELS = {
    torch.float32: "sort_f32",
    torch.bfloat16: "sort_bf16",
    torch.float16: "sort_f16",
    torch.int32: "sort_i32",
}
SIGNATURE = ("p", "p", "p", "p", "i64", "i64", "i64", "i64", "i64", "i64")
#: elements up to which `std::sort` inserts one after the other, which keeps the order of equal ones
INSERTED = 16
#: elements from which most rows of floats hold equal ones
CROWDED = 4096
#: of so many rows or more, an eighth is tried first
MANY = 64

Sorted = tuple[torch.Tensor, torch.Tensor]


def sort(source: torch.Tensor, dim: int, descending: bool, stable: bool) -> Sorted:
    """Return the values along a dimension in order, and the places they were at.

    Both lie in memory row by row, the elements of a row along ``dim``.
    """
    last = dim == source.dim() - 1
    rows = (source if last else source.movedim(dim, -1)).contiguous()
    kernel = _kernel(rows.dtype)
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


def _kernel(dtype: torch.dtype) -> Kernel | None:
    """Return the routine for a type; None where there is none, or no C compiler."""
    name = KERNELS.get(dtype)
    return None if name is None else open_routine("sorting", name, SIGNATURE)
