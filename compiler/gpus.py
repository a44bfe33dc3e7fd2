"""Which graphs get kernels for GPUs.

In: an ATen graph. Out: the GPU.
"""

from __future__ import annotations

import torch
from torch import fx
from torch.utils import _pytree as pytree

from tc import trace
from tc.compiler.runtime.triton import available as triton_available


def gpu_of(module: fx.GraphModule) -> torch.device | None:
    """Return the GPU that a graph's kernels are for, None where the CPU computes.

    That is the one GPU its tensors are on, where Triton is there to make kernels for it. Tensors
    elsewhere, and those of graphs on several GPUs, are left to ATen.
    """
    devices = {
        value.device
        for node in module.graph.nodes
        for value in pytree.tree_leaves(node.meta.get("val"))
        if isinstance(value, torch.Tensor) and value.device.type == "cuda"
    }
    if len(devices) != 1:
        return None
    if not triton_available():
        trace.emit(trace.Artifact("tc_no_gpu_kernels", "triton is not installed: ATen runs it all"))
        return None
    return devices.pop()
