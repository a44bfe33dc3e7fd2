"""Runs a function through the loop compiler and compares with eager.

`compare(fn, args)` traces `fn` to ATen, lowers, interprets, schedules, interprets again, generates
C, builds, runs, and holds all results against eager: values, types, sizes and strides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

import tc
from tc.compiler.codegen.stage import generate
from tc.compiler.core.artifacts import Program
from tc.compiler.core.gate import Gate
from tc.compiler.loops.interpret import interpret
from tc.compiler.loops.ir import Extern, LoopGraph
from tc.compiler.loops.lower.graph import lower
from tc.compiler.runtime.load import load
from tc.compiler.schedule.interpret import interpret as interpret_plan
from tc.compiler.schedule.plan import Plan
from tc.compiler.schedule.stage import plan
from tc.trace import OutputCode, capture_events


def trace(fn: Callable[..., Any], args: Sequence[Any], mode: str = "fake") -> fx.GraphModule:
    """An ATen graph of a function."""
    with torch.no_grad():
        module: fx.GraphModule = make_fx(fn, tracing_mode=mode)(*args)
    module.graph.eliminate_dead_code()
    return module


def lowered(fn: Callable[..., Any], args: Sequence[Any], mode: str = "fake") -> LoopGraph:
    """The loop graph of a function."""
    graph = lower(trace(fn, args, mode), Gate())
    graph.verify()
    return graph


def planned(graph: LoopGraph, gate: Gate | None = None) -> Plan:
    """A verified plan."""
    found = plan(graph, gate or Gate())
    found.verify()
    return found


def externs(graph: LoopGraph) -> list[str]:
    """ATen ops a graph calls."""
    return [node.target for node in graph.nodes if isinstance(node, Extern)]


def program(graph: LoopGraph, threads: int = 2) -> Program:
    """A verified program."""
    found = generate(planned(graph), threads=threads)
    found.verify()
    return found


def copied(args: Sequence[Any]) -> list[Any]:
    """Arguments with tensors of their own, strides kept."""
    return [
        torch.empty_strided(a.shape, a.stride(), dtype=a.dtype).copy_(a)
        if isinstance(a, torch.Tensor) and not _overlaps(a)
        else a
        for a in args
    ]


def _overlaps(tensor: torch.Tensor) -> bool:
    shape = zip(tensor.shape, tensor.stride(), strict=True)
    return any(step == 0 and extent > 1 for extent, step in shape)


def check(got: Any, want: Any, strides: bool = True, **tolerance: float) -> None:
    """Compare results."""
    wanted = want if isinstance(want, tuple | list) else (want,)
    assert len(got) == len(wanted)
    for mine, theirs in zip(got, wanted, strict=True):
        torch.testing.assert_close(mine, theirs, equal_nan=True, **tolerance)
        if isinstance(theirs, torch.Tensor) and strides and theirs.numel():
            pairs = zip(theirs.shape, mine.stride(), theirs.stride(), strict=True)
            assert all(n == 1 or a == b for n, a, b in pairs), (mine.stride(), theirs.stride())


def compare(
    fn: Callable[..., Any],
    args: Sequence[Any],
    mode: str = "fake",
    run_args: Sequence[Any] | None = None,
    threads: int = 2,
    **tolerance: float,
) -> LoopGraph:
    """Interpreters of loops and of the plan == C == eager; returns the loop graph."""
    graph = lowered(fn, args, mode)
    used = args if run_args is None else run_args
    with torch.no_grad():
        want = fn(*copied(used))
    check(interpret(graph, copied(used)), want, **tolerance)
    check(interpret_plan(planned(graph), copied(used)), want, **tolerance)
    call = load(program(graph, threads))
    check(call(copied(used)), want, **tolerance)
    return graph


def printed(function: Callable[..., object], *arguments: torch.Tensor) -> str:
    """The code that is generated for a call, on one thread and without caches."""
    tc.reset()
    with capture_events() as events, tc.config.patch(fx_graph_cache=False, threads=1):
        tc.compile(function)(*arguments)
    return "".join(one.code for one in events.of(OutputCode))
