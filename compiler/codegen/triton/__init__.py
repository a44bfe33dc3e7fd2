"""Triton backend: prints GPU plans as programs of Triton kernels and a Python wrapper."""

from tc.compiler.codegen.triton.stage import generate
from tc.compiler.codegen.triton.tuning import Tuning

__all__ = ["Tuning", "generate"]
