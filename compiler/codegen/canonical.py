"""Canonical names: kernels that differ only in names share one C function.

In: a `Kernel`. Out: the same kernel over ``in0, in1, …``, ``out0, …`` and locals ``v0, …``, and the
original names of its parameters. Repeated layers of a model then share their kernels.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tc.compiler.loops.expr import READS, Expr, transform
from tc.compiler.schedule.plan import Atomic, Kernel, Let, Product, Section, Statement, Store


@dataclass(frozen=True)
class Canonical:
    """A kernel under canonical names.

    Attributes:
        buffers: canonical parameter -> buffer of the plan.
    """

    kernel: Kernel
    buffers: dict[str, str]


def canonical(kernel: Kernel) -> Canonical:
    """Rename the buffers and locals of a kernel in the order they occur."""
    memory = {name: f"in{k}" for k, name in enumerate(kernel.loaded)}
    memory.update((name, f"out{k}") for k, name in enumerate(kernel.stored))
    buffers = {new: old for old, new in memory.items()}
    memory.update((scratch.name, f"row{k}") for k, scratch in enumerate(kernel.scratch))
    named = [s.name for s in kernel.statements() if not isinstance(s, Store)]
    local = {name: f"v{k}" for k, name in enumerate(dict.fromkeys(named))}

    def change(node: Expr) -> Expr:
        if node.op == "local":
            name = node.data[0]
            return Expr("local", (), node.dtype, (local.get(name, name),))
        if node.op in READS:
            data = (memory[node.data[0]], *node.data[1:])
            return Expr(node.op, node.args, node.dtype, data)
        return node

    def renamed(statement: Statement) -> Statement:
        value = transform(statement.value, change)
        if isinstance(statement, Atomic):
            name = memory[statement.buffer]
            return replace(statement, buffer=name, base=name, value=value)
        if isinstance(statement, Store):
            return replace(statement, buffer=memory[statement.buffer], value=value)
        if isinstance(statement, Let):
            return Let(local[statement.name], value)
        return replace(statement, name=local[statement.name], value=value)

    sections = tuple(
        Section(s.level, tuple(map(renamed, s.statements)), s.over) for s in kernel.sections
    )
    scratch = tuple(replace(s, name=memory[s.name]) for s in kernel.scratch)
    made = replace(kernel, sections=sections, scratch=scratch)
    if isinstance(made, Product):
        left, right = (transform(factor, change) for factor in (made.left, made.right))
        made = replace(made, result="", left=left, right=right)
    return Canonical(made, buffers)
