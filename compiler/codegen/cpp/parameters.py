"""The parameters of kernels: the buffers, sizes and numbers that they use.

In: a `Kernel`. Out: `Argument`s in the order they are passed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tc.compiler.loops import index as ix
from tc.compiler.loops.expr import extents, walk
from tc.compiler.loops.index import Index
from tc.compiler.schedule.plan import Kernel, Store


@dataclass(frozen=True)
class Argument:
    """One parameter of a kernel: a buffer's pointer, a size, or a number."""

    kind: str
    name: str


def parameters(kernel: Kernel) -> tuple[Argument, ...]:
    """Return a kernel's parameters: buffers read, buffers written, sizes, numbers."""
    found = [Argument("p", name) for name in (*kernel.loaded, *kernel.stored)]
    found += [Argument("i64", name) for name in _sizes(kernel)]
    return (*found, *(Argument("f64", name) for name in _scalars(kernel)))


def _indices(kernel: Kernel) -> Iterable[Index]:
    for variable in (*kernel.outer, *kernel.inner):
        yield ix.extent(variable)
    for section in kernel.sections:
        yield from section.over[1:] if section.over is not None else ()
    for scratch in kernel.scratch:
        yield scratch.extent
    for statement in kernel.statements():
        if isinstance(statement, Store):
            yield statement.index
        for node in walk(statement.value):
            if node.op in ("load", "at"):
                yield node.data[1]
            elif node.op == "index":
                yield node.data[0]
            yield from extents(node)


def _sizes(kernel: Kernel) -> list[str]:
    names = {
        atom.name for index in _indices(kernel) for atom in index.atoms() if atom.kind in ix.SYMBOLS
    }
    return sorted(names)


def _scalars(kernel: Kernel) -> list[str]:
    names = {
        node.data[0] for s in kernel.statements() for node in walk(s.value) if node.op == "scalar"
    }
    return sorted(names)
