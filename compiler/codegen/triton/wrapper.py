"""The wrapper of a GPU program: the common wrapper, with memory on the device.

In: a `Plan`, the arguments each kernel takes, the device. Out: Python source of ``call(args)``.
"""

from __future__ import annotations

import torch

from tc.compiler.codegen.triton.kernel import TritonKernel
from tc.compiler.codegen.wrapper import Wrapper as CommonWrapper
from tc.compiler.schedule.plan import Allocate, Plan


class GpuWrapper(CommonWrapper):
    """Lines of the wrapper of a plan for one GPU."""

    def __init__(self, plan: Plan, kernels: dict[str, TritonKernel], device: torch.device) -> None:
        super().__init__(plan, kernels)
        self.device = device

    def allocate(self, step: Allocate) -> None:
        if step.reuse is not None:
            super().allocate(step)
            return
        buffer = step.buffer
        size, stride = self.layout(buffer)
        # On the current device: that of the program, see `runtime/triton.py`.
        function = f"empty_strided_{self.device.type}"
        self.emit(f"{buffer.name} = {function}({size}, {stride}, {buffer.dtype})")
