"""How large the numbers are that symbols and expressions of symbols may have.

Python's integers have no bounds, those of graphs and kernels have 64 bits. Each symbol has a bound:
that of an integer input is guarded, a size or a number of data is trusted to have no more than 48
bits. An expression that stays in bounds for all values of its symbols needs nothing more; of
another one, capture guards the value.
"""

from __future__ import annotations

import math
from typing import Any

import torch

#: bits of a small number: sums and products by constants of such numbers fit as well
SMALL = 48
#: bits of the largest number that symbols and expressions may have, besides the sign
LARGE = 62
#: the largest float that has a symbol: the largest of float32
LARGEST_FLOAT = torch.finfo(torch.float32).max
#: nodes of the longest expression, shared ones counted each time. An expression that names its
#: predecessor twice in each step doubles, and each test of it walks all of its nodes.
LONGEST = 512
#: functions whose result is no larger than the largest, the first or the last of their arguments
_LARGEST_ARGUMENT = ("Max", "Min")
_FIRST_ARGUMENT = ("FloorDiv", "CleanDiv", "Identity", "RShift", "Abs")
_LAST_ARGUMENT = ("Mod", "PythonMod")
#: functions whose result is no larger than the sum of their arguments, of whatever sign
_ALL_ARGUMENTS = (
    "Add",
    "BitwiseFn_bitwise_and",
    "BitwiseFn_bitwise_or",
    "BitwiseFn_bitwise_xor",
)


def bits_of_symbol(value: int) -> int | None:
    """Return how many bits the symbol of an integer has; None if it is too large for one."""
    needed = (value if value >= 0 else ~value).bit_length()
    return next((bits for bits in (SMALL, LARGE) if needed <= bits), None)


class Ranges:
    """The bounds of the symbols of one compilation."""

    def __init__(self) -> None:
        self._bits: dict[Any, int] = {}
        self._lengths: dict[Any, int] = {}

    def note(self, number: torch.SymInt, bits: int) -> None:
        """Record how many bits the symbol of an integer input has, by its guard."""
        self._bits[number.node.expr] = bits

    def fits(self, number: torch.SymInt, bits: int = LARGE) -> bool:
        """Return whether an expression is small enough for all values that its symbols may have."""
        return self._largest(number.node.expr) <= 1 << bits

    def is_short(self, number: torch.SymInt | torch.SymFloat) -> bool:
        """Return whether an expression is short enough to be computed with."""
        return self._length(number.node.expr) <= LONGEST

    def _length(self, expr: Any) -> int:
        """Return the number of nodes of an expression, shared ones counted each time."""
        known = self._lengths.get(expr)
        if known is None:
            known = 1
            for part in expr.args:
                known += self._length(part)
            self._lengths[expr] = known
        return known

    def _largest(self, expr: Any) -> float:
        """Return a bound of the absolute value of an expression; infinity if none is known."""
        if expr.is_Integer:
            return float(min(abs(int(expr)), 2**64))
        if expr.is_Symbol:
            return float(2 ** self._bits.get(expr, SMALL))
        if expr.is_Mul or expr.is_Pow or type(expr).__name__ == "PowByNatural":
            return self._largest_product(expr)
        name = type(expr).__name__
        if name in _FIRST_ARGUMENT:
            return self._largest(expr.args[0])
        if name in _LAST_ARGUMENT:
            return self._largest(expr.args[-1])
        if name in _ALL_ARGUMENTS:
            return math.fsum(map(self._largest, expr.args))
        if name in _LARGEST_ARGUMENT:
            return max(map(self._largest, expr.args))
        return math.inf

    def _largest_product(self, expr: Any) -> float:
        """Return a bound of a product.

        Sizes of different names are trusted to be those of one tensor, whose number of elements is
        small. A size that is more than once a factor is not.
        """
        largest, most = 1.0, 0
        for base, exponent in _factors(expr):
            if exponent is None or exponent < 0:
                return math.inf
            if base.is_Symbol and base not in self._bits:
                most = max(most, exponent)
            else:
                bits = math.log2(max(self._largest(base), 1.0)) * exponent
                largest *= math.inf if bits > 512 else 2.0**bits
        return largest * 2.0 ** min(SMALL * most, 512)


def _factors(expr: Any) -> list[tuple[Any, int | None]]:
    """Return the factors of a product with their exponents; None for one that is no number."""
    parts = expr.args if expr.is_Mul else (expr,)
    found: list[tuple[Any, int | None]] = []
    for part in parts:
        if part.is_Pow or type(part).__name__ == "PowByNatural":
            base, exponent = part.args
            found.append((base, int(exponent) if exponent.is_Integer else None))
        else:
            found.append((part, 1))
    return found
