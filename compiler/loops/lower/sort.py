"""Sorting, by a routine of ours that is quicker than ATen's.

In: calls of `sort`, which `argsort` and `msort` come down to. Out: calls of ``sorting.sort`` in the
wrapper (`runtime/sorting.py`); results are eager's, bit for bit.
"""

from __future__ import annotations

import torch

from tc.compiler.loops import index as ix
from tc.compiler.loops.ir import Buffer, Extern, contiguous
from tc.compiler.loops.lower.builder import Builder, NotLowered, Tensor
from tc.compiler.loops.lower.registry import Call, dimension, lowering, tensor
from tc.compiler.loops.lower.sympy_boundary import strides_of

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.int32)
#: elements, of a row and of all, below which ATen was measured to be as quick
SHORT, FEW = 8, 2048
#: elements up to which `std::sort` keeps the order of equal ones, and from which most rows of
#: float32 hold equal ones; the routine has rows that do sorted by ATen unless the sort is stable
INSERTED, CROWDED = 16, 4096


def _better_here(b: Builder, source: Tensor, dim: int, stable: bool) -> None:
    """Refuse what the routine cannot sort, and what ATen sorts as quickly."""
    if b.device.type != "cpu":
        raise NotLowered("a sort on a GPU")
    if source.dtype not in DTYPES:
        raise NotLowered(f"a sort of {source.dtype}")
    if not source.sizes:
        raise NotLowered("a sort of a number")
    if source.dtype is torch.int32 and len(source.sizes) == 1:
        raise NotLowered("one row of integers, which threads of ATen share")
    length, count = source.sizes[dim].constant, ix.product(source.sizes).constant
    if (length is not None and length < SHORT) or (count is not None and count < FEW):
        raise NotLowered("short rows, or few elements, to sort")
    if stable or (length is not None and length <= INSERTED):
        return
    if source.dtype is not torch.float32 or (length is not None and length > CROWDED):
        raise NotLowered("most rows hold equal elements, whose order is left to std::sort")


def _result(b: Builder, buffer: Buffer, fake: torch.Tensor) -> Tensor:
    """What the routine made, as eager lays it out."""
    made, wanted = b.memory(buffer), strides_of(fake)
    if wanted == buffer.strides:
        return made
    b.strides = wanted
    return b.value(buffer.sizes, buffer.dtype, b.element(made))


@lowering("sort", "sort.stable")
def _sort(b: Builder, call: Call) -> tuple[Tensor, Tensor]:
    source, stable = tensor(call["self"]), bool(call.get("stable"))
    dim = dimension(call["dim"], len(source.sizes))
    _better_here(b, source, dim, stable)
    view = b.view(source)
    if view.strides[dim] is ix.ZERO:
        raise NotLowered("one element, repeated, which ATen leaves as it is")
    sizes = source.sizes
    *outer, along = contiguous((*sizes[:dim], *sizes[dim + 1 :], sizes[dim]))
    strides = (*outer[:dim], along, *outer[dim:])
    values, places = (
        Buffer(b.name(), dtype, sizes, strides) for dtype in (source.dtype, torch.int64)
    )
    args = (view, dim, call["descending"], stable)
    b.nodes.append(Extern("sorting.sort", args, (), (values, places), True, b.origins()))
    return _result(b, values, call.fake[0]), _result(b, places, call.fake[1])
