"""A graph under DistributedDataParallel becomes several, so that gradients are sent while others
are computed.

In: a captured graph, and which of its inputs are parameters. Out: the same graph as parts in order,
cut where the parameters used so far in backward fill one of DDP's buckets. One graph would be one
node of autograd, which gives all gradients at its end: no bucket could be sent before. Which
buckets there are follows PyTorch's documentation of DDP: from the last parameters to the first, a
small one first unless the user set the size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import fx

from tc import trace
from tc.compiler.backends.cut.parts import Part, parts_of


def bucket_limits() -> tuple[int, ...]:
    """Return the sizes of buckets in bytes of the DDP module whose forward runs, the last repeats.

    Empty: none runs, or its gradients need no sending.
    """
    ddp = torch.nn.parallel.DistributedDataParallel._active_ddp_module
    if ddp is None or not torch.is_grad_enabled() or not ddp.require_backward_grad_sync:
        return ()
    caps = getattr(ddp, "bucket_bytes_cap", None)
    if not isinstance(caps, int) or caps <= 0:
        return ()
    if getattr(ddp, "bucket_bytes_cap_default", False):
        first = torch.distributed._DEFAULT_FIRST_BUCKET_BYTES  # type: ignore[attr-defined]
        return first, caps
    return (caps,)


def at_buckets(
    gm: fx.GraphModule, inputs: Sequence[Any], limits: Sequence[int]
) -> tuple[Part, ...]:
    """Return a graph as parts in order; empty if it is to stay whole.

    Args:
        inputs: the real inputs, one a placeholder: parameters are recognised.
        limits: of `bucket_limits`.
    """
    if not limits:
        return ()
    placeholders = gm.graph.find_nodes(op="placeholder")
    parameters = {
        node: value.numel() * value.element_size()
        for node, value in zip(placeholders, inputs, strict=True)
        if isinstance(value, torch.nn.Parameter) and value.requires_grad
    }
    parts = parts_of(gm, _part_numbers(gm.graph, parameters, limits))
    if parts:
        sizes = " + ".join(str(part.size) for part in parts)
        text = f"{len(parts)} graphs of {sizes} operations, one a bucket of DistributedDataParallel"
        trace.emit(trace.Artifact("tc_ddp_buckets", text))
    return parts


def _part_numbers(
    graph: fx.Graph, parameters: Mapping[fx.Node, int], limits: Sequence[int]
) -> dict[fx.Node, int]:
    """Return for each node the number of its part, from the first to run."""
    order = {node: at for at, node in enumerate(graph.nodes)}
    ready: dict[fx.Node, int] = {}  # node -> bytes of the gradients that its backward completes
    for parameter, size in parameters.items():
        if parameter.users:
            first = min(parameter.users, key=order.__getitem__)
            ready[first] = ready.get(first, 0) + size
    from_last: dict[fx.Node, int] = {}
    bucket = filled = 0
    for node in reversed(graph.nodes):
        if node.op in ("placeholder", "output"):
            continue
        if filled >= limits[min(bucket, len(limits) - 1)] and ready.get(node):
            bucket, filled = bucket + 1, 0
        from_last[node] = bucket
        filled += ready.get(node, 0)
    return {node: bucket - number for node, number in from_last.items()}
