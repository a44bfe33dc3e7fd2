"""Loop stage: lowers ATen graphs to loop nests over scalar ops (`lower`)."""

from tc.compiler.loops.lower.graph import CPU, lower
from tc.compiler.loops.lower.registry import made_of_loops
from tc.compiler.loops.lower.sympy_boundary import UnsupportedSizeExpr, size_hints

__all__ = ["CPU", "UnsupportedSizeExpr", "lower", "made_of_loops", "size_hints"]
