"""Accumulators of reductions: their C variables, initial values, steps and results.

In: a reduction's name, kind and type. Out: C, which the writers of kernels place.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from tc.compiler.codegen.printer import c_constant, c_convert, c_type
from tc.compiler.loops.ops import compute_dtype

INT_LIMITS = {
    torch.int64: ("(-9223372036854775807LL - 1)", "9223372036854775807LL"),
    torch.int32: ("(-2147483647 - 1)", "2147483647"),
    torch.int16: ("-32768", "32767"),
    torch.int8: ("-128", "127"),
    torch.uint8: ("0", "255"),
    torch.bool: ("0", "1"),
}
# Kinds of reductions -> OpenMP's operators.
OMP = {"sum": "+", "prod": "*", "max": "max", "min": "min", "any": "|", "all": "&"}
# Reductions to a position -> the reductions to the value there.
POSITIONS = {"argmax": "max", "argmin": "min"}


@dataclass(frozen=True)
class Accumulator:
    """A reduction's accumulator.

    Attributes:
        name: the reduction's.
        kind: of reduction.
        dtype: of the result; of the values, if the result is a position.
        places: the type of positions.
    """

    name: str
    kind: str
    dtype: torch.dtype
    places: torch.dtype = torch.int64

    @property
    def wide(self) -> torch.dtype:
        """Its accumulator type."""
        return compute_dtype(self.dtype)

    @property
    def is_position(self) -> bool:
        """Whether the result is where a value is."""
        return self.kind in POSITIONS

    @property
    def result_dtype(self) -> torch.dtype:
        """The type of the result."""
        return torch.int64 if self.is_position else self.dtype

    def variables(self, prefix: str = "a") -> list[tuple[str, str, str, str]]:
        """(C type, name, start value, OpenMP operator) of each variable; "" if it has none.

        A second one records whether there was a NaN, or where the best value is. ``prefix`` is
        ``a`` for the accumulator, ``s`` for that of a block.
        """
        kind, wide = self.kind, self.wide
        main = (c_type(wide), f"{prefix}_{self.name}", self.start(), OMP.get(kind, ""))
        if self.is_position:
            return [main, (c_type(self.places), f"{prefix}p_{self.name}", "0", "")]
        if kind in ("max", "min") and wide.is_floating_point:
            return [main, ("int", f"{prefix}n_{self.name}", "0", "|")]
        return [main]

    def start(self) -> str:
        """Return the neutral element."""
        if self.kind in ("sum", "any", "prod", "all"):
            return "0" if self.kind in ("sum", "any") else "1"
        if self.wide.is_floating_point:
            return c_constant(-math.inf if "max" in self.kind else math.inf, self.wide)
        return INT_LIMITS[self.wide][0 if "max" in self.kind else 1]

    def step(self, value: str, prefix: str, at: str = "") -> list[str]:
        """Return the statements that add one value."""
        a, n = f"{prefix}_{self.name}{at}", f"{prefix}n_{self.name}{at}"
        if self.kind in ("sum", "prod"):
            return [f"{a} {'+' if self.kind == 'sum' else '*'}= {value};"]
        if self.kind in ("any", "all"):
            return [f"{a} {'|' if self.kind == 'any' else '&'}= {value};"]
        sign = ">" if self.kind == "max" else "<"
        lines = [f"{a} = {value} {sign} {a} ? {value} : {a};"]
        if self.wide.is_floating_point:
            lines.append(f"{n} |= {value} != {value};")
        return lines

    def better(self, value: str, prefix: str, at: str = "") -> str:
        """C of whether a value is better than the best one so far; NaN is better than others."""
        best = f"{prefix}_{self.name}{at}"
        test = f"{value} {'>' if self.kind == 'argmax' else '<'} {best}"
        if not self.wide.is_floating_point:
            return test
        return f"({test}) | (({value} != {value}) & ({best} == {best}))"

    def choose(self, better: str, value: str, place: str, prefix: str, at: str = "") -> list[str]:
        """Return the statements that take a value and its place if it is better.

        They have no branches: which of random elements is the best cannot be predicted.
        """
        best, where = f"{prefix}_{self.name}{at}", f"{prefix}p_{self.name}{at}"
        return [
            f"{best} = {better} ? {value} : {best};",
            f"{where} = {better} ? {place} : {where};",
        ]

    def result(self, at: str = "") -> str:
        """Return the final value."""
        a, n = f"a_{self.name}{at}", f"an_{self.name}{at}"
        if self.is_position:
            return f"ap_{self.name}{at}"
        if self.kind in ("max", "min") and self.wide.is_floating_point:
            nan = c_constant(math.nan, self.wide)
            return c_convert(f"({n} ? {nan} : {a})", self.wide, self.dtype)
        return c_convert(a, self.wide, self.dtype) if self.wide is not self.dtype else a


def clause(sums: list[Accumulator], prefix: str) -> str:
    """OpenMP reduction clauses of all accumulators."""
    return "".join(f" reduction({op}:{n})" for a in sums for _, n, _, op in a.variables(prefix))


def joined(total: str, part: str, op: str) -> str:
    """Return C that adds a partial result to a total."""
    if op in ("max", "min"):
        sign = ">" if op == "max" else "<"
        return f"{total} = {part} {sign} {total} ? {part} : {total};"
    return f"{total} = {total} {op} {part};"
