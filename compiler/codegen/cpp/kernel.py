"""Prints kernels as C: chooses the kind of loops, prints parameters and body.

In: a `Kernel` of the plan. Out: a C function and the arguments it takes (`CKernel`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from tc.compiler.codegen.cpp.dots import DotWriter, is_dots
from tc.compiler.codegen.cpp.lanes import LaneWriter
from tc.compiler.codegen.cpp.parameters import Argument
from tc.compiler.codegen.cpp.pointwise import PointwiseWriter, TileWriter
from tc.compiler.codegen.cpp.rows import RowWriter
from tc.compiler.codegen.cpp.scans import ScanWriter
from tc.compiler.codegen.cpp.scatters import ScatterWriter
from tc.compiler.codegen.cpp.writer import Writer
from tc.compiler.codegen.printer import c_type
from tc.compiler.schedule.plan import Kernel, Running
from tc.compiler.schedule.versions import at_seen


@dataclass(frozen=True)
class CKernel:
    """A printed kernel: ``source`` is parameters and body, without the name.

    Attributes:
        checked: whether it returns fault bits, see `KernelSpec`.
        helpers: the functions of `c_helpers.helpers` it calls, in order.
    """

    name: str
    arguments: tuple[Argument, ...]
    source: str
    checked: bool = False
    helpers: tuple[str, ...] = ()


def writer_for(kernel: Kernel, threads: int) -> Writer:
    """Return the writer of this kind of kernel."""
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
    body, helpers = writer.run(), dict.fromkeys(writer.helpers)
    if kernel.seen:
        version = writer_for(at_seen(kernel), threads)
        test = " && ".join(f"{name} == {value}" for name, value in kernel.seen)
        end = "" if version.checked else "return 0;\n" if writer.checked else "return;\n"
        body = f"if ({test}) {{\n{version.run()}{end}}}\n{body}"
        helpers.update(dict.fromkeys(version.helpers))
    stored = kernel.stored
    spelled = []
    for argument in writer.parameters:
        if argument.kind == "p":
            const = "" if argument.name in stored else "const "
            spelled.append(f"{const}{c_type(dtypes[argument.name])}* restrict {argument.name}")
        else:
            spelled.append(f"{'long long' if argument.kind == 'i64' else 'double'} {argument.name}")
    return CKernel(
        kernel.name,
        writer.parameters,
        f"({', '.join(spelled) or 'void'}) {{\n{body}}}\n",
        writer.checked,
        tuple(helpers),
    )
