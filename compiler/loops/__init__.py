"""Loops: ATen graphs become loop nests over scalar ops (`lower`)."""

from tc.compiler.loops.lower.border import Inconvertible, size_hints
from tc.compiler.loops.lower.graph import CPU, lower

__all__ = ["CPU", "Inconvertible", "lower", "size_hints"]
