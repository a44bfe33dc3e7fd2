"""Sizes as torch computes them, converted into sizes of loops."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import sympy
from torch.utils._sympy import functions

from tc.compiler.loops.index import evaluate
from tc.compiler.loops.lower.sympy_boundary import SizeReader, UnsupportedSizeExpr

S = sympy.Symbol("s0", integer=True, positive=True)
ROUNDINGS: dict[Any, Callable[[float], int]] = {
    functions.TruncToInt: math.trunc,
    functions.FloorToInt: math.floor,
    functions.CeilToInt: math.ceil,
}


@pytest.mark.parametrize("rounding", ROUNDINGS, ids=lambda rounding: rounding.__name__)
@pytest.mark.parametrize("factor", [0.5, 1.5, 0.75, 2.25, 1.001953125])
def test_sizes_by_a_factor_of_few_bits(rounding: Any, factor: float) -> None:
    index = SizeReader().expression(rounding(sympy.Float(factor) * functions.ToFloat(S)))
    for size in (*range(1, 70), 1023, 2**31 + 1, 2**43 - 1):
        assert evaluate(index, {"s0": size}) == ROUNDINGS[rounding](factor * float(size))


@pytest.mark.parametrize("factor", [1.7, 0.1, -1.5, 2.0**-11])
def test_other_factors_are_refused(factor: float) -> None:
    with pytest.raises(UnsupportedSizeExpr):
        SizeReader().expression(functions.TruncToInt(sympy.Float(factor) * functions.ToFloat(S)))
