"""Sorting by tc's own routine, which is faster than ATen's.

In: calls of `sort`, which `argsort` and `msort` come down to. Out: calls of ``sorting.sort`` in the
wrapper (`routines/sorting.py`); results are eager's, bit for bit.
"""

from __future__ import annotations

import torch

from tc.compiler.loops import index as ix
from tc.compiler.loops.ir import Buffer, Extern, contiguous
from tc.compiler.loops.lower.builder import Builder, NotLowered, Tensor
from tc.compiler.loops.lower.registry import Call, dimension, lowering, tensor
from tc.compiler.routines import sorting


def _result(b: Builder, buffer: Buffer, fake: torch.Tensor) -> Tensor:
    """What the routine made, as eager lays it out."""
    made, wanted = b.memory(buffer), b.reader.strides(fake)
    if wanted == buffer.strides:
        return made
    b.strides = wanted
    return b.value(buffer.sizes, buffer.dtype, b.element(made))


@lowering("sort", "sort.stable")
def _sort(b: Builder, call: Call) -> tuple[Tensor, Tensor]:
    source, stable = tensor(call["self"]), bool(call.get("stable"))
    dim = dimension(call["dim"], len(source.sizes))
    length = source.sizes[dim].constant if source.sizes else None
    count = ix.product(source.sizes).constant
    reason = sorting.refusal(b.device, source.dtype, len(source.sizes), length, count, stable)
    if reason:
        raise NotLowered(reason)
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
    (name,) = sorting.ROUTINE.calls
    b.nodes.append(Extern(name, args, (), (values, places), True, b.origins()))
    return _result(b, values, call.fake[0]), _result(b, places, call.fake[1])
