"""Prints kernels as one Python module, with its imports."""

from __future__ import annotations

from tc.compiler.loops.ops import SCALAR_OPS
from tc.compiler.loops.scans import SCANS

HEAD = """\
import triton
import triton.language as tl
from triton.language.extra import libdevice

from tc.compiler.runtime.triton import launch
"""
#: of indices; those of scalar ops are named by the rows of `SCALAR_OPS`
INDICES = ("floor_div", "floor_mod", "clip")
KINDS = ("sum", "prod", "max", "min", "any", "all", "argmax", "argmin")
MATH = (
    *INDICES,
    *(f"reduce_{kind}" for kind in KINDS),
    "better_max",
    "better_min",
    *(f"scan_{kind}" for kind, _ in SCANS.rows()),
    "last_of",
)


def module_of(kernels: list[str]) -> str:
    """Kernels as one Python module; empty if there is none."""
    if not kernels:
        return ""
    body = "\n\n".join(kernels)
    names = {*MATH, *(name for _, row in SCALAR_OPS.rows() for name in row.triton.called())}
    used = sorted(name for name in names if f"{name}(" in body)
    imports = f"from tc.compiler.runtime.triton_math import {', '.join(used)}\n" if used else ""
    return f"{HEAD}{imports}\n\n{body}"
