"""Loops: ATen graphs become loop nests over scalar ops (`lower`)."""

from tc.compiler.loops.lower.border import Inconvertible
from tc.compiler.loops.lower.graph import CPU, lower

__all__ = ["CPU", "Inconvertible", "lower"]
