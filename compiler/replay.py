"""Runs the artifact at which a compile stopped, by reference interpreters: for `tc-bisect`.

In: a stage's artifact. Out: a callable that shows what it computes. A difference from eager that is
there after one stage and not after the stage before is that stage's doing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import fx

from tc.compiler.codegen.stage import kernel_alone
from tc.compiler.core.gate import Gate
from tc.compiler.errors import KernelDiffers
from tc.compiler.loops.interpret import Env, interpret
from tc.compiler.loops.ir import LoopGraph
from tc.compiler.runtime.load import open_kernels
from tc.compiler.schedule.interpret import interpret as interpret_plan
from tc.compiler.schedule.interpret import run_kernel
from tc.compiler.schedule.plan import Kernel, Plan
from tc.compiler.sentinel.rounding import Reference, compare, jittered, same_layout

Boxed = Callable[[list[Any]], tuple[Any, ...]]
KERNEL = "kernel"


def _aten(module: fx.GraphModule, gate: Gate, threads: int) -> Boxed:
    interpreter = fx.Interpreter(module)
    return lambda args: tuple(interpreter.run(*args))


def _loops(lowered: LoopGraph, gate: Gate, threads: int) -> Boxed:
    return lambda args: interpret(lowered, args)


def _plan(plan: Plan, gate: Gate, threads: int) -> Boxed:
    return lambda args: interpret_plan(plan, args, run_kernel)


def _kernels(plan: Plan, gate: Gate, threads: int) -> Boxed:
    """Compile the kernels that the gate allows; the others are interpreted."""
    # asked now, in the plan's order; a graph of a backward may run later, or never
    own = {
        k.name: gate.allow(f"{KERNEL}.{k.name}", lines=partial(_lines, k)) for k in plan.kernels()
    }
    run = partial(_run, plan=plan, own=own, threads=threads)
    return lambda args: interpret_plan(plan, args, run)


def _lines(kernel: Kernel) -> list[str]:
    return [origin.place for origin in kernel.origins]


def _run(kernel: Kernel, env: Env, plan: Plan, own: dict[str, bool], threads: int) -> None:
    """Run one kernel of a plan: compiled if it is its ``own``, else interpreted."""
    if not own[kernel.name]:
        run_kernel(kernel, env)
        return
    source, entry, names = kernel_alone(kernel, plan, threads)
    call = open_kernels(source, [entry], {})[entry.name]
    call(*(env[name] for name in names))


def _checked(plan: Plan, gate: Gate, threads: int) -> Boxed:
    """Compile the kernels, and compare each with its interpretation when it is called."""
    run = partial(_run_checked, plan=plan, threads=threads)
    return lambda args: interpret_plan(plan, args, run)


def _run_checked(kernel: Kernel, env: Env, plan: Plan, threads: int) -> None:
    """Run one kernel, compiled.

    Raises:
        KernelDiffers: it does not store what the interpreter stores, up to rounding.
    """
    own = {name for name, value in env.items() if isinstance(value, torch.Tensor)}
    stored = sorted(own.intersection(str(getattr(s, "buffer", "")) for s in kernel.statements()))

    before = {name: _copied(value) for name, value in env.items()}

    def interpreted(change: Callable[[Any], Any]) -> list[Any]:
        scope = {name: change(value) for name, value in before.items()}
        run_kernel(kernel, scope)
        return [scope[name] for name in stored]

    def moved(seed: int) -> list[Any]:
        generator = torch.Generator().manual_seed(seed)
        return interpreted(lambda value: jittered(_copied(value), generator))

    expected = interpreted(_copied)
    _run(kernel, env, plan, {kernel.name: True}, threads)
    got = [env[name] for name in stored]
    _, found = compare(Reference(expected, lambda: None, moved), got)
    if found is not None:
        lines = ", ".join(dict.fromkeys(o.line for o in kernel.origins if o.line))
        raise KernelDiffers(kernel.name, f"{kernel.name} ({lines}): {found.message}")


def _copied(value: Any) -> Any:
    return same_layout(value) if isinstance(value, torch.Tensor) else value


#: stage -> what makes a callable of its artifact, the gate and a number of threads
INTERPRETERS: dict[str, Callable[[Any, Gate, int], Boxed]] = {
    "aot": _aten,
    "loops": _loops,
    "schedule": _plan,
    "kernels": _kernels,
    "checked": _checked,
}
