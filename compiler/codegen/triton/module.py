"""Kernels as one Python module, with what they import."""

from __future__ import annotations

from tc.compiler.loops.scans import SCANS

HEAD = """\
import triton
import triton.language as tl
from triton.language.extra import libdevice

from tc.compiler.runtime.triton import launch
"""
DIVISIONS = ("floor_div", "floor_mod", "floor_remainder", "floor_divide")
INTEGERS = ("shift_left", "shift_right", "integer_pow", "philox", "clip")
KINDS = ("sum", "prod", "max", "min", "any", "all", "argmax", "argmin")
MATH = (
    *DIVISIONS,
    *INTEGERS,
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
    used = sorted(name for name in MATH if f"{name}(" in body)
    imports = f"from tc.compiler.runtime.triton_math import {', '.join(used)}\n" if used else ""
    return f"{HEAD}{imports}\n\n{body}"
