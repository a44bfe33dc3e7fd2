"""Runs an ATen graph as loops, as a plan, or as kernels called one by one (see `replay`).

In: a functional ATen graph. Out: a callable. With the driver the only module that knows all stages.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from tc.compiler import aot, library, loops, schedule
from tc.compiler.codegen.stage import kernel_alone
from tc.compiler.core.gate import Gate
from tc.compiler.loops.interpret import Env, interpret
from tc.compiler.runtime.load import open_kernels
from tc.compiler.runtime.tuned import tuner
from tc.compiler.schedule.interpret import interpret as interpret_plan
from tc.compiler.schedule.interpret import run_kernel
from tc.compiler.schedule.plan import Kernel, Plan

KERNEL = "kernel"


def replay(
    module: fx.GraphModule, stage: str, gate: Gate
) -> Callable[[list[Any]], tuple[Any, ...]]:
    """Compile a graph up to ``loops``, ``schedule`` or ``kernels``, and interpret what is left.

    Raises:
        Fallback: loops cannot say it.
    """
    library.arrange(module, gate, tuner=tuner())
    try:
        lowered = loops.lower(module, gate)
    except loops.Inconvertible as why:
        raise aot.Fallback(str(why)) from why
    if stage == "loops":
        return lambda args: interpret(lowered, args)
    plan = schedule.plan(lowered, gate)
    run = run_kernel
    if stage == "kernels":
        # asked now, in the plan's order; a graph of a backward may run later, or never
        own = {k.name: gate.allow(f"{KERNEL}.{k.name}") for k in plan.kernels()}
        run = functools.partial(_run, plan=plan, own=own)
    return lambda args: interpret_plan(plan, args, run)


def _run(kernel: Kernel, env: Env, plan: Plan, own: dict[str, bool]) -> None:
    """Run one kernel of a plan: compiled if it is its ``own``, else interpreted."""
    if not own[kernel.name]:
        run_kernel(kernel, env)
        return
    source, entry, names = kernel_alone(kernel, plan, torch.get_num_threads())
    call = open_kernels(source, [entry], {})[entry.name]
    call(*(env[name] for name in names))
