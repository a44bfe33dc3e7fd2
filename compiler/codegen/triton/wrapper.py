"""The wrapper of a GPU program: the common wrapper, with memory on the device.

In: a `Plan`, the arguments each kernel takes, the device. Out: Python source of ``call(args)``.
"""

from __future__ import annotations

import torch

from tc.compiler.codegen.triton.kernel import TritonKernel
from tc.compiler.codegen.wrapper import Wrapper as CommonWrapper
from tc.compiler.loops.ir import CopyInto
from tc.compiler.schedule.plan import Allocate, Free, Plan, Step


class GpuWrapper(CommonWrapper):
    """Lines of the wrapper of a plan for one GPU."""

    def __init__(self, plan: Plan, kernels: dict[str, TritonKernel], device: torch.device) -> None:
        super().__init__(plan, kernels)
        self.device = device
        self.own = {step.buffer.name for step in plan.steps if isinstance(step, Allocate)}
        self.copies: list[CopyInto] = []
        self.dead: list[str] = []

    def step(self, step: Step) -> None:
        """Print a step; copies into inputs wait for others, to be made by one launch.

        Only what a kernel computed is copied so: it shares no memory with an input.
        """
        if isinstance(step, CopyInto) and step.source.buffer in self.own:
            self.copies.append(step)
        elif isinstance(step, Free) and self.copies:
            self.dead += step.names
        else:
            self.finish()
            super().step(step)

    def finish(self) -> None:
        """Print the copies that wait, those of a type in one call."""
        by_type: dict[torch.dtype, list[CopyInto]] = {}
        for copy in self.copies:
            by_type.setdefault(copy.source.dtype, []).append(copy)
        for copies in by_type.values():
            if len(copies) == 1:
                super().step(copies[0])
                continue
            self.at += [(copy, len(self.lines)) for copy in copies]
            inputs = ", ".join(copy.input for copy in copies)
            sources = ", ".join(self.value(copy.source) for copy in copies)
            self.emit(f"torch._foreach_copy_([{inputs}], [{sources}])")
        if self.dead:
            self.emit(f"del {', '.join(self.dead)}")
        self.copies, self.dead = [], []

    def allocate(self, step: Allocate) -> None:
        if step.reuse is not None:
            super().allocate(step)
            return
        buffer = step.buffer
        size, stride = self.layout(buffer)
        # On the current device: that of the program, see `runtime/triton.py`.
        function = f"empty_strided_{self.device.type}"
        self.emit(f"{buffer.name} = {function}({size}, {stride}, {buffer.dtype})")
