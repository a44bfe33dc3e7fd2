"""Codegen stage: prints plans as programs of C kernels and a Python wrapper (`generate`)."""

from tc.compiler.codegen.stage import generate, lines_of

__all__ = ["generate", "lines_of"]
