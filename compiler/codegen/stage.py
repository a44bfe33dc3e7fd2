"""The codegen stage: a plan becomes a program of C kernels and a Python wrapper.

In: `Plan`. Out: `Program`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import torch

from tc import trace
from tc.compiler.codegen.canonical import canonical
from tc.compiler.codegen.cpp.kernel import CKernel
from tc.compiler.codegen.cpp.kernel import generate as generate_kernel
from tc.compiler.codegen.wrapper import LARGE_BYTES, Wrapper, python_index
from tc.compiler.core.artifacts import KernelSpec, Program, StepCost
from tc.compiler.core.c_helpers import helpers_for
from tc.compiler.core.parts import grouped
from tc.compiler.loops.expr import walk
from tc.compiler.loops.ir import Buffer, CopyInto, Extern, Origin
from tc.compiler.loops.ops import SCALAR_OPS
from tc.compiler.schedule.costs import buffers_of, only_copies, work_of
from tc.compiler.schedule.plan import Accumulate, Allocate, Kernel, Plan, Running

#: a kernel over canonical names, the types of its buffers and the number of threads -> its C
Printed = dict[tuple[Any, ...], CKernel]
#: what `StepCost` says of a step's work: ``moved``, ``operations`` and ``copies``
_Work = tuple[str, str, bool]


def generate(plan: Plan, *, threads: int, kind: str = "") -> Program:
    """Print a plan as a program; kernels use up to ``threads`` OpenMP threads.

    Args:
        kind: see `Program`.
    """
    dtypes = dtypes_of(plan)
    functions: dict[str, CKernel] = {}
    called: dict[str, CKernel] = {}
    known: Printed = {}
    computes: dict[str, dict[str, None]] = {}
    for kernel in plan.kernels():
        printed = print_kernel(kernel, dtypes, threads, known)
        function = functions.setdefault(printed.source, printed)
        called[kernel.name] = replace(printed, name=function.name)
        computes.setdefault(function.name, {}).update(dict.fromkeys(origins(kernel)))
    texts = [_function(f, computes[f.name]) for f in functions.values()]
    wrapping = any(map(computes_integers, plan.kernels()))
    wrapper = Wrapper(plan, called)
    return Program(
        c_source=grouped(_helpers(functions.values(), wrapping), texts) if functions else "",
        kernels=tuple(map(spec_of, functions.values())),
        wrapper_source=wrapper.run(),
        constants=plan.constants,
        provenance=tuple((name, tuple(lines)) for name, lines in computes.items()),
        kind=kind,
        costs=costs_of(plan, wrapper),
    )


def costs_of(plan: Plan, printed: Wrapper) -> tuple[StepCost, ...]:
    """Return the steps of a wrapper's lines, with their costs if an event sink is attached."""
    work_in = _measure(plan, printed) if trace.enabled() else None
    fresh = {} if work_in is None else _fresh(plan)
    costs = []
    for step, line in printed.at:
        name = step.target if isinstance(step, Extern) else "copy_"
        if isinstance(step, Kernel):
            name = printed.kernels[step.name].name
        made_of = () if isinstance(step, CopyInto) else step.origins
        places = tuple(dict.fromkeys(origin.place for origin in made_of if origin.line))
        known = () if work_in is None else (*work_in(step), fresh.get(id(step), 0))
        costs.append(StepCost(line, name, places, *known))
    return tuple(costs)


def _measure(plan: Plan, printed: Wrapper) -> Callable[[Kernel | Extern | CopyInto], _Work]:
    """Return what gives the work of a step of a plan.

    Equal layers call one function for buffers of one size, whose work is derived once.
    """
    buffers = buffers_of(plan)
    known: dict[tuple[Any, ...], _Work] = {}

    def of(step: Kernel | Extern | CopyInto) -> _Work:
        work = work_of(step, buffers)
        if work is None:
            return "", "", only_copies(step)
        return python_index(work.moved), python_index(work.operations), only_copies(step)

    def of_equal(step: Kernel | Extern | CopyInto) -> _Work:
        if not isinstance(step, Kernel):
            return of(step)
        called = printed.kernels[step.name]
        names = [argument.name for argument in called.arguments]
        key = called.name, *(buffers[n].sizes if n in buffers else n for n in names)
        if key not in known:
            known[key] = of(step)
        return known[key]

    return of_equal


def _fresh(plan: Plan) -> dict[int, int]:
    """Return the id of a step -> bytes of its results that the C library maps in each call."""
    found: dict[int, int] = {}
    waiting = 0
    for step in plan.steps:
        if isinstance(step, Allocate):
            waiting += _mapped(step.buffer) if step.reuse is None else 0
        elif isinstance(step, Kernel):
            found[id(step)], waiting = waiting, 0
        elif isinstance(step, Extern) and not step.takes_over:
            found[id(step)] = sum(_mapped(made) for made in step.results if made is not None)
    return found


def _mapped(buffer: Buffer) -> int:
    size = (buffer.numel.constant or 0) * buffer.dtype.itemsize
    return size if size >= LARGE_BYTES else 0


def kernel_alone(kernel: Kernel, plan: Plan, threads: int) -> tuple[str, KernelSpec, list[str]]:
    """Return one kernel of a plan as a C file, its entry, and the names of its arguments."""
    printed = print_kernel(kernel, dtypes_of(plan), threads)
    body = _function(printed, list(origins(kernel)))
    source = f"{_helpers([printed], computes_integers(kernel))}\n{body}"
    return source, spec_of(printed), [a.name for a in printed.arguments]


def dtypes_of(plan: Plan) -> dict[str, torch.dtype]:
    """Return the type of each buffer of a plan."""
    dtypes = {buffer.name: buffer.dtype for buffer in plan.buffers}
    dtypes.update((i.buffer.name, i.buffer.dtype) for i in plan.inputs if i.buffer is not None)
    dtypes.update((name, tensor.dtype) for name, tensor in plan.constants)
    return dtypes


def spec_of(kernel: CKernel) -> KernelSpec:
    """Return the entry of a printed kernel."""
    return KernelSpec(kernel.name, tuple(a.kind for a in kernel.arguments), kernel.checked)


def print_kernel(
    kernel: Kernel, dtypes: dict[str, torch.dtype], threads: int, known: Printed | None = None
) -> CKernel:
    """Return a kernel as C over canonical names, and as its arguments the buffers of the plan.

    Args:
        known: what is printed already, and takes up what is printed here: a model of equal layers
            has each of its kernels once a layer.
    """
    renamed = canonical(kernel)
    own = {new: dtypes[old] for new, old in renamed.buffers.items()}
    unnamed = replace(renamed.kernel, name="", members=(), origins=())
    key = unnamed, tuple(own.items()), threads
    known = {} if known is None else known
    if key not in known:
        known[key] = generate_kernel(unnamed, own, threads)
    printed = known[key]
    arguments = tuple(
        replace(a, name=renamed.buffers.get(a.name, a.name)) for a in printed.arguments
    )
    return replace(printed, name=kernel.name, arguments=arguments)


def _helpers(kernels: Iterable[CKernel], wrapping: bool) -> str:
    names = dict.fromkeys(name for kernel in kernels for name in kernel.helpers)
    return helpers_for(names, wrapping=wrapping)


def computes_integers(kernel: Kernel) -> bool:
    """Return whether a kernel has results of integer arithmetic, which may overflow.

    C takes types that are narrower than int to int, in which they do not overflow.
    """
    wide = (torch.int32, torch.int64)
    return any(
        (isinstance(s, Accumulate | Running) and s.dtype in wide)
        or any(node.op in SCALAR_OPS and node.dtype in wide for node in walk(s.value))
        for s in kernel.statements()
    )  # fmt: skip


def origins(kernel: Kernel) -> tuple[str, ...]:
    """What a kernel computes: ``op (node) at line``, without repetition."""
    return tuple(dict.fromkeys(map(_text, kernel.origins)))


def _text(origin: Origin) -> str:
    """Return an origin as one line of a comment: names of files and functions may be any text."""
    text = f"{origin.op} ({origin.node})" + (f" {origin.line}" if origin.line else "")
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text
    )


def lines_of(plan: Plan, program: Program) -> dict[str, dict[str, list[str]]]:
    """Return user line (``file:line``) -> the ``nodes``, ``kernels`` and ``calls`` made of it.

    Args:
        plan: the printed plan.
        program: has the names of kernels, one of which may serve several equal ones of the plan.
    """
    externs = [step for step in plan.steps if isinstance(step, Extern)]
    all_origins = [o for kernel in plan.kernels() for o in kernel.origins]
    all_origins += [o for extern in externs for o in extern.origins]
    known = {_text(origin): origin for origin in all_origins}
    made = [("kernels", name, text) for name, texts in program.provenance for text in texts]
    made += [("calls", step.target, _text(o)) for step in externs for o in step.origins]
    lines: dict[str, dict[str, list[str]]] = {}
    for kind, name, text in made:
        origin = known[text]
        entry = lines.setdefault(origin.place, {"nodes": [], "kernels": [], "calls": []})
        for key, value in (("nodes", origin.node), (kind, name)):
            if value not in entry[key]:
                entry[key].append(value)
    return lines


def _function(kernel: CKernel, lines: Iterable[str]) -> str:
    comment = "".join(f"/* {line.replace('*/', '* /')} */\n" for line in lines)
    kind = "long long" if kernel.checked else "void"
    return f"{comment}{kind} {kernel.name}{kernel.source}"
