"""The reference interpreter of plans: kernels statement by statement, on torch tensors.

In: `Plan` and its inputs. Out: the expected results of the plan's program. It shares nothing with
the code generators, so a difference from its results is their fault; a difference between it and
`loops/interpret.py` is the schedule's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import torch

from tc.compiler.loops import index as ix
from tc.compiler.loops.expr import Expr, load, transform
from tc.compiler.loops.index import Index
from tc.compiler.loops.interpret import (
    REDUCE,
    Env,
    bound,
    call,
    evaluate,
    grid,
    ints,
    read_value,
    scattered,
)
from tc.compiler.loops.interpret import store as write
from tc.compiler.loops.ir import Buffer, row_major
from tc.compiler.loops.scans import SCANS
from tc.compiler.schedule.plan import (
    Accumulate,
    Allocate,
    Atomic,
    BumpVersions,
    Free,
    Kernel,
    Let,
    Plan,
    Running,
    Scratch,
    Section,
    Statement,
    Store,
)

RunKernel = Callable[[Kernel, Env], None]


def run_kernel(kernel: Kernel, env: Env) -> None:
    """Run a kernel on the buffers in ``env``, which include those that it writes."""
    _Run(kernel, env).run()


def interpret(plan: Plan, args: Sequence[Any], run: RunKernel = run_kernel) -> tuple[Any, ...]:
    """Run a plan; ``run`` executes the kernels."""
    env = bound(plan.inputs, plan.constants, args)
    for step in plan.steps:
        if isinstance(step, Kernel):
            run(step, env)
        elif isinstance(step, Allocate):
            env[step.buffer.name] = _allocated(step, env)
        elif isinstance(step, Free):
            for name in step.names:
                env.pop(name, None)
        elif isinstance(step, BumpVersions):
            torch.autograd.graph.increment_version([env[name] for name in step.names])
        else:
            call(step, env)
    return tuple(read_value(item, env) for item in plan.outputs)


def _allocated(step: Allocate, env: Env) -> torch.Tensor:
    if step.reuse is not None:
        taken: torch.Tensor = env.pop(step.reuse)
        return taken
    return empty(step.buffer, env)


def empty(buffer: Buffer, env: Env) -> torch.Tensor:
    """Return new memory for a buffer of known sizes."""
    sizes, strides = ints(buffer.sizes, env), ints(buffer.strides, env)
    return torch.empty_strided(sizes, strides, dtype=buffer.dtype, device="cpu")


class _Run:
    """One run of a kernel: each value is a tensor over all loops, or over the outer ones."""

    def __init__(self, kernel: Kernel, env: Env) -> None:
        self.kernel = kernel
        self.env = env
        self.loops = (*kernel.outer, *kernel.inner)
        self.extents = ints([ix.extent(v) for v in self.loops], env)
        self.scope: Env = dict(env)
        rows = 1
        for extent in self.extents[: len(kernel.outer)]:
            rows *= extent
        self.rows = rows
        self.scratch = {item.name: item for item in kernel.scratch}
        for item in kernel.scratch:
            length = rows * ints([item.extent], env)[0]
            self.scope[item.name] = torch.empty(length, dtype=item.dtype, device="cpu")

    def run(self) -> None:
        if not self.rows:
            return
        for section in self.kernel.sections:
            self._section(section)

    def _section(self, section: Section) -> None:
        """Run a section; if its range differs from row to row, one row after the other."""
        bounds = section.over[1:] if section.over is not None else ()
        needed = {atom for bound in bounds for atom in bound.variables()}
        around = [v for v in self.loops if v.atoms() <= needed] if needed else []
        for place in product(*(range(n) for n in ints([ix.extent(v) for v in around], self.env))):
            self._part(section, dict(zip(map(str, around), place, strict=True)))

    def _part(self, section: Section, fixed: dict[str, int]) -> None:
        """Run a section for all positions of its loops, or for one of some of them."""
        rank, outer = len(self.loops), len(self.kernel.outer)
        shape = list(self.extents)
        for position, variable in enumerate(self.loops):
            values = torch.arange(shape[position], device="cpu")
            if section.over is not None and section.over[0] is variable:
                bounds = ints(section.over[1:], {**self.env, **fixed})
                values = torch.arange(*bounds, device="cpu")
            elif str(variable) in fixed:
                values = values[fixed[str(variable)]].view(1)
            shape[position] = len(values)
            self.scope[str(variable)] = grid(rank, position, values)
        if section.level == "row":
            shape[outer:] = [1] * (rank - outer)
        if 0 in shape[:outer]:
            return
        totals: Env = {}
        for statement in section.statements:
            self._statement(statement, shape, totals)
        self.scope.update(totals)  # a reduction's result exists after its loop

    def _statement(self, statement: Statement, shape: list[int], totals: Env) -> None:
        if isinstance(statement, Store) and 0 in shape:
            return
        if isinstance(statement, Atomic):
            body, memory = self._own_rows(statement.value), self.scope[statement.buffer]
            scattered(memory, statement.kind, statement.index, body, self.scope, shape)
            return
        value = evaluate(self._own_rows(statement.value), self.scope, {}, checked=True)
        if isinstance(statement, Let):
            self.scope[statement.name] = value
            return
        value = torch.broadcast_to(value, shape)
        if isinstance(statement, Running):
            self.scope[statement.name] = SCANS[statement.kind].python(value, -1).to(statement.dtype)
            return
        if isinstance(statement, Accumulate):
            outer = len(self.kernel.outer)
            flat = value.reshape([*shape[:outer], -1])
            total = REDUCE[statement.kind](flat, -1).to(statement.dtype)
            totals[statement.name] = total.reshape([*shape[:outer], *[1] * (len(shape) - outer)])
            return
        index = statement.index
        if statement.buffer in self.scratch:
            index = index + self._row() * self.scratch[statement.buffer].extent
        where = torch.broadcast_to(
            torch.as_tensor(ix.evaluate(index, self.scope), device="cpu"), shape
        )
        write(self.scope[statement.buffer], where, value)

    def _own_rows(self, value: Expr) -> Expr:
        """Return the value with reads of scratch memory directed to the row's part of it."""
        if not self.scratch:
            return value

        def change(node: Expr) -> Expr:
            item: Scratch | None = self.scratch.get(node.data[0]) if node.op == "load" else None
            if item is None:
                return node
            return load(item.name, node.data[1] + self._row() * item.extent, node.dtype)

        return transform(value, change)

    def _row(self) -> Index:
        return row_major(self.kernel.outer)
