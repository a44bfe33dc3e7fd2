"""Runs the artifact at which a compile stopped, by reference interpreters: for `tc-bisect`.

In: a stage's artifact. Out: a callable that shows what it computes. A difference from eager that is
there after one stage and not after the stage before is that stage's doing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from torch import fx

from tc.compiler.codegen.stage import kernel_alone
from tc.compiler.core.gate import Gate
from tc.compiler.loops.interpret import Env, interpret
from tc.compiler.loops.ir import LoopGraph
from tc.compiler.runtime.load import open_kernels
from tc.compiler.schedule.interpret import interpret as interpret_plan
from tc.compiler.schedule.interpret import run_kernel
from tc.compiler.schedule.plan import Kernel, Plan

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
    own = {k.name: gate.allow(f"{KERNEL}.{k.name}") for k in plan.kernels()}
    run = functools.partial(_run, plan=plan, own=own, threads=threads)
    return lambda args: interpret_plan(plan, args, run)


def _run(kernel: Kernel, env: Env, plan: Plan, own: dict[str, bool], threads: int) -> None:
    """Run one kernel of a plan: compiled if it is its ``own``, else interpreted."""
    if not own[kernel.name]:
        run_kernel(kernel, env)
        return
    source, entry, names = kernel_alone(kernel, plan, threads)
    call = open_kernels(source, [entry], {})[entry.name]
    call(*(env[name] for name in names))


#: stage -> what makes a callable of its artifact, the gate and a number of threads
INTERPRETERS: dict[str, Callable[[Any, Gate, int], Boxed]] = {
    "aot": _aten,
    "loops": _loops,
    "schedule": _plan,
    "kernels": _kernels,
}
