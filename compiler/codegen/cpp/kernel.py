"""C for kernels: picks the kind of loops, prints parameters and body.

In: a `Kernel` of the plan. Out: a C function and the arguments it takes (`CKernel`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch

from tc.compiler.codegen.cpp.dots import DotWriter, is_dots
from tc.compiler.codegen.cpp.lanes import LaneWriter
from tc.compiler.codegen.cpp.pointwise import PointwiseWriter, TileWriter
from tc.compiler.codegen.cpp.rows import RowWriter
from tc.compiler.codegen.cpp.scans import ScanWriter
from tc.compiler.codegen.cpp.scatters import ScatterWriter
from tc.compiler.codegen.cpp.writer import Writer
from tc.compiler.codegen.printer import c_type
from tc.compiler.loops import index as ix
from tc.compiler.loops.expr import walk
from tc.compiler.loops.index import Index
from tc.compiler.schedule.plan import Kernel, Running, Store


@dataclass(frozen=True)
class Argument:
    """One parameter of a kernel: a buffer's pointer, a size, or a number."""

    kind: str
    name: str


@dataclass(frozen=True)
class CKernel:
    """A printed kernel: ``source`` is parameters and body, without the name.

    Attributes:
        checked: it returns what went wrong, as `KernelSpec` says.
    """

    name: str
    arguments: tuple[Argument, ...]
    source: str
    checked: bool = False


def writer_for(kernel: Kernel, threads: int) -> Writer:
    """The writer of this kind of kernel."""
    if is_dots(kernel.statements()):
        return DotWriter(kernel, threads)
    if kernel.bases():
        return ScatterWriter(kernel, threads)
    if kernel.lane is not None:
        return LaneWriter(kernel, threads)
    if kernel.tile is not None:
        return TileWriter(kernel, threads)
    if any(isinstance(s, Running) for s in kernel.statements()):
        return ScanWriter(kernel, threads)
    return RowWriter(kernel, threads) if kernel.inner else PointwiseWriter(kernel, threads)


def generate(kernel: Kernel, dtypes: Mapping[str, torch.dtype], threads: int) -> CKernel:
    """Print one kernel; ``dtypes`` are those of its buffers."""
    writer = writer_for(kernel, threads)
    body = writer.run()
    stored, loaded = kernel.stored(), kernel.loaded()
    arguments = [Argument("p", name) for name in (*loaded, *stored)]
    arguments += [Argument("i64", name) for name in _sizes(kernel)]
    arguments += [Argument("f64", name) for name in _scalars(kernel)]
    spelled = []
    for argument in arguments:
        if argument.kind == "p":
            const = "" if argument.name in stored else "const "
            spelled.append(f"{const}{c_type(dtypes[argument.name])}* restrict {argument.name}")
        else:
            spelled.append(f"{'long long' if argument.kind == 'i64' else 'double'} {argument.name}")
    return CKernel(
        kernel.name,
        tuple(arguments),
        f"({', '.join(spelled) or 'void'}) {{\n{body}}}\n",
        writer.checked,
    )


def _indices(kernel: Kernel) -> Iterable[Index]:
    for variable in (*kernel.outer, *kernel.inner):
        yield ix.extent(variable)
    for statement in kernel.statements():
        if isinstance(statement, Store):
            yield statement.index
        for node in walk(statement.value):
            if node.op in ("load", "at"):
                yield node.data[1]
                yield from node.data[2] if node.op == "at" else ()
            elif node.op in ("index", "into"):
                yield from (node.data[0],) if node.op == "index" else node.data[0]


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
