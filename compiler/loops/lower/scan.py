"""Scans: cumulative sums, products, extrema, and the logarithm of the sum of exponentials.

In: calls of ATen scans. Out: scan nodes. On a CPU torch adds float32 up in float64, so do these.
"""

from __future__ import annotations

import torch

from tc.compiler.loops import index as ix
from tc.compiler.loops.expr import Expr, constant
from tc.compiler.loops.lower.builder import (
    Builder,
    NotLowered,
    Tensor,
    converted,
    loop_vars,
    of_one,
    supported,
)
from tc.compiler.loops.lower.registry import Call, dimension, lowering, tensor
from tc.compiler.loops.ops import compute_dtype

KINDS = {"cumsum": "sum", "cumprod": "prod", "logcumsumexp": "logsumexp"}
# On a GPU one block scans a row; ATen's own scans distribute a few long rows over all blocks.
GPU_ROWS, GPU_LONG = 64, 1 << 14
# For these, along memory, C loops were measured to be faster than ATen's up to that row length.
ALONG_MEMORY = {
    "sum": (torch.float32, torch.bfloat16, torch.float16),
    "prod": (torch.float32,),
}
LONG, LANES = 256, 8


def _running(b: Builder, dtype: torch.dtype) -> torch.dtype:
    """Return the accumulator type of a sum, product or logarithm."""
    wide = b.device.type == "cpu" and dtype is torch.float32
    return torch.float64 if wide else compute_dtype(dtype)


def _better_here(b: Builder, kind: str, call: Call, dim: int, body: Expr) -> None:
    """Raise for scans that ATen's own routine does faster."""
    sizes, dtype = call.sizes, tensor(call["self"]).dtype
    if not sizes or sizes[dim] is ix.ONE:
        return
    length = sizes[dim].constant
    others = [extent for d, extent in enumerate(sizes) if d != dim]
    if b.device.type != "cpu":
        rows = ix.product(others).constant
        if (length is None or length > GPU_LONG) and (rows is None or rows < GPU_ROWS):
            raise NotLowered("few long rows to scan")
        return
    variables = [v for v in loop_vars(sizes) if v is not ix.ZERO]
    scanned = loop_vars(sizes)[dim]
    reads = [use.data[1] for use in body.loads()]
    along = {v for v in variables if any(ix.coefficient(i, v) is ix.ONE for i in reads)}
    if scanned not in along:
        wide = [ix.extent(v).constant for v in along]
        if any(extent is None or extent >= LANES for extent in wide):
            return
        raise NotLowered("a scan that runs neither along nor across memory")
    if dtype not in ALONG_MEMORY.get(kind, ()) or (length is not None and length < LONG):
        raise NotLowered(f"a scan ({kind}) along memory")


def _scan(b: Builder, kind: str, call: Call, dtype: torch.dtype, body: Expr, dim: int) -> Tensor:
    sizes = call.sizes
    if not sizes or sizes[dim] is ix.ONE:
        alone = constant(0, dtype) if kind.startswith("arg") else body
        alone = of_one(kind, alone) if sizes else alone
        return b.value(sizes, dtype, alone)
    return b.scan(kind, dtype, dim, body, sizes)


@lowering("cumsum", "cumprod", "logcumsumexp")
def _cumulative(b: Builder, call: Call) -> Tensor:
    source, dtype = tensor(call["self"]), call.dtype
    kind = KINDS[call.op.overloadpacket.__name__]
    supported(source.dtype)
    supported(dtype)
    if dtype is torch.bool:
        raise NotLowered("a sum of bools as a bool")
    dim = dimension(call["dim"], len(source.sizes))
    # Over the sizes of the result: one that guards have made 1 since is a symbol in the source.
    element = b.element(source, loop_vars(call.sizes))
    _better_here(b, kind, call, dim, element)
    body = converted(converted(element, dtype), _running(b, dtype))
    return _scan(b, kind, call, dtype, body, dim)


@lowering("cummax", "cummin")
def _extreme(b: Builder, call: Call) -> tuple[Tensor, Tensor]:
    source = tensor(call["self"])
    kind = call.op.overloadpacket.__name__.removeprefix("cum")
    supported(source.dtype)
    dim = dimension(call["dim"], len(source.sizes))
    running = torch.uint8 if source.dtype is torch.bool else compute_dtype(source.dtype)
    element = b.element(source, loop_vars(call.sizes))
    _better_here(b, kind, call, dim, element)
    body = converted(element, running)
    values = _scan(b, kind, call, source.dtype, body, dim)
    b.strides = b.reader.strides(call.fake[1])
    return values, _scan(b, f"arg{kind}", call, torch.int64, body, dim)
