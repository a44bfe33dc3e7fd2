"""The codegen stage for GPUs: a plan becomes a program of Triton kernels and a Python wrapper.

In: `Plan` made by `schedule/gpu.py`, and the device it runs on. Out: `GpuProgram`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import torch

from tc.compiler.codegen.canonical import canonical
from tc.compiler.codegen.stage import costs_of, origins
from tc.compiler.codegen.triton.kernel import TritonKernel
from tc.compiler.codegen.triton.kernel import generate as generate_kernel
from tc.compiler.codegen.triton.module import module_of
from tc.compiler.codegen.triton.ops import SHORT_NAMES
from tc.compiler.codegen.triton.tuning import Tuning
from tc.compiler.codegen.triton.wrapper import GpuWrapper
from tc.compiler.core.artifacts import KernelSpec
from tc.compiler.core.gpu import GpuProgram
from tc.compiler.loops import index as ix
from tc.compiler.loops.ir import Buffer, CopyInto, Extern
from tc.compiler.schedule.plan import Allocate, BumpVersions, Kernel, Plan


def generate(
    plan: Plan,
    device: torch.device,
    kind: str = "",
    replay: bool = False,
    tuning: Tuning | None = None,
) -> GpuProgram:
    """Print a plan as a program for one device.

    Args:
        kind, replay: see `GpuProgram`.
        tuning: chooses block sizes by measurement.
    """
    buffers: dict[str, Buffer] = {buffer.name: buffer for buffer in plan.buffers}
    buffers.update((i.buffer.name, i.buffer) for i in plan.inputs if i.buffer is not None)
    for name, tensor in plan.constants:
        sizes = tuple(map(ix.const, tensor.shape))
        buffers.setdefault(
            name, Buffer(name, tensor.dtype, sizes, tuple(map(ix.const, tensor.stride())))
        )
    functions: dict[tuple[str, tuple[str, ...]], TritonKernel] = {}
    called: dict[str, TritonKernel] = {}
    computes: dict[str, dict[str, None]] = {}
    for kernel in plan.kernels():
        printed, names = print_kernel(kernel, buffers, tuning)
        types = _types(printed, {new: buffers[old] for new, old in names.items()})
        text = replace(printed, name="kernel").source
        function = functions.setdefault((text, types), printed)
        arguments = tuple(replace(a, name=names.get(a.name, a.name)) for a in printed.arguments)
        called[kernel.name] = replace(function, arguments=arguments)
        computes.setdefault(function.name, {}).update(dict.fromkeys(origins(kernel)))
    wrapper = GpuWrapper(plan, called, device)
    return GpuProgram(
        c_source="",
        kernels=tuple(
            KernelSpec(k.name, tuple(a.kind for a in k.arguments)) for k in functions.values()
        ),
        wrapper_source=wrapper.run(),
        constants=plan.constants,
        provenance=tuple((name, tuple(lines)) for name, lines in computes.items()),
        kind=kind,
        costs=costs_of(plan, wrapper),
        triton_source=module_of([_commented(f, computes[f.name]) for f in functions.values()]),
        device=str(device),
        arguments=tuple((f.name, types) for (_, types), f in functions.items()),
        replay=replay,
        written=_written(plan),
        unreplayable=_unreplayable(plan, device),
    )


def print_kernel(
    kernel: Kernel, buffers: dict[str, Buffer], tuning: Tuning | None = None
) -> tuple[TritonKernel, dict[str, str]]:
    """Return a kernel over canonical names, and those names with the plan's buffers."""
    renamed = canonical(kernel)
    own = {new: replace(buffers[old], name=new) for new, old in renamed.buffers.items()}
    make = generate_kernel if tuning is None else tuning.kernel
    return make(renamed.kernel, own), renamed.buffers


def _written(plan: Plan) -> tuple[int, ...]:
    """Return positions of the inputs that a program writes to."""
    names = {step.input for step in plan.steps if isinstance(step, CopyInto)}
    memory = {s.buffer.name: s.reuse for s in plan.steps if isinstance(s, Allocate)}
    for step in plan.steps:
        if isinstance(step, BumpVersions):  # kernels write to these directly
            names.update(memory[name] or name for name in step.names)
    return tuple(k for k, item in enumerate(plan.inputs) if item.name in names)


def _unreplayable(plan: Plan, device: torch.device) -> tuple[str, str] | None:
    """Return why the launches cannot be recorded, as far as the plan shows it."""
    for step in plan.steps:
        if not isinstance(step, Extern):
            continue
        if "_local_scalar_dense" in step.target:
            return "synchronises", f"{step.target} waits for a value"
        sizes = [s for b in step.results if b is not None for s in b.sizes]
        if any(atom.name.startswith("u") for s in sizes for atom in s.atoms()):
            return "dynamic", f"the size of what {step.target} gives depends on values"
        places = [value for name, value in step.kwargs if name == "device"]
        if any(torch.device(place).type != device.type for place in places if place is not None):
            return "elsewhere", f"{step.target} makes a tensor on {places[0]}"
    return None


def _types(kernel: TritonKernel, buffers: dict[str, Buffer]) -> tuple[str, ...]:
    """What Triton calls the types of a kernel's arguments."""
    kinds = {"i64": "i64", "f64": "fp64"}
    return tuple(
        f"*{SHORT_NAMES[buffers[a.name].dtype]}" if a.kind == "p" else kinds[a.kind]
        for a in kernel.arguments
    )


def _commented(printed: TritonKernel, lines: Iterable[str]) -> str:
    return "".join(f"# {line}\n" for line in lines) + printed.source
