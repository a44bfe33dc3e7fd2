"""The codegen stage: a plan becomes a program of C kernels and a Python wrapper.

In: `Plan`. Out: `Program`.
"""

from __future__ import annotations

from tc.compiler.codegen.cpp.kernel import CKernel
from tc.compiler.codegen.cpp.kernel import generate as generate_kernel
from tc.compiler.codegen.cpp.math import helpers_for
from tc.compiler.codegen.wrapper import wrapper
from tc.compiler.core.artifacts import KernelSpec, Program
from tc.compiler.loops.ir import Buffer
from tc.compiler.schedule.plan import Kernel, Plan


def generate(plan: Plan, *, threads: int) -> Program:
    """Print a plan as a program; kernels use up to ``threads`` OpenMP threads."""
    buffers: dict[str, Buffer] = {buffer.name: buffer for buffer in plan.buffers}
    buffers.update((i.buffer.name, i.buffer) for i in plan.inputs if i.buffer is not None)
    for name, tensor in plan.constants:
        buffers.setdefault(name, Buffer(name, tensor.dtype, (), ()))
    printed = {k.name: generate_kernel(k, buffers, threads) for k in plan.kernels()}
    sources = [_commented(kernel, printed[kernel.name]) for kernel in plan.kernels()]
    body = "\n".join(sources)
    return Program(
        c_source=f"{helpers_for(body)}\n{body}" if sources else "",
        kernels=tuple(
            KernelSpec(k.name, tuple(a.kind for a in k.arguments)) for k in printed.values()
        ),
        wrapper_source=wrapper(plan, printed),
        constants=plan.constants,
        provenance=tuple((k.name, origins(k)) for k in plan.kernels()),
    )


def origins(kernel: Kernel) -> tuple[str, ...]:
    """What a kernel computes: ``op (node) at line``, without repetition."""
    found = (f"{o.op} ({o.node})" + (f" {o.line}" if o.line else "") for o in kernel.origins)
    return tuple(dict.fromkeys(found))


def _commented(kernel: Kernel, printed: CKernel) -> str:
    lines = [text.replace("*/", "* /") for text in origins(kernel)]
    comment = "".join(f"/* {line} */\n" for line in lines)
    return comment + printed.source
