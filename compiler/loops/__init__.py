"""Loops: ATen graphs become loop nests over scalar ops (`lower`)."""

from tc.compiler.loops.lower.graph import lower

__all__ = ["lower"]
