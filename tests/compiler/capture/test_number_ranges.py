"""Bounds of expressions hold for all values of their symbols."""

from __future__ import annotations

import pytest
import sympy
from torch.utils._sympy.functions import FloorDiv, Max, PythonMod

from tc.compiler.capture.number_ranges import LARGE, SMALL, Ranges, bits_of_symbol

N, M, K = sympy.symbols("n m k", integer=True)


class Number:
    """A symbolic number as far as ranges look at it."""

    def __init__(self, expr):
        self.node = self
        self.expr = expr


@pytest.mark.parametrize("value, bits", [
    (0, SMALL), (-(2**SMALL), SMALL), (2**SMALL, LARGE), (2**LARGE - 1, LARGE),
    (-(2**LARGE), LARGE), (2**LARGE, None), (-(2**LARGE) - 1, None), (10**30, None),
])  # fmt: skip
def test_bits(value, bits):
    assert bits_of_symbol(value) == bits


@pytest.mark.parametrize("expr, fits", [
    (K + 1, True), (K * 768 - N, True), (N * M, True), (N * M * 100 + K, True), (K * K, False),
    (K * N, False), (N * N, False), (N**20, False), (PythonMod(K * K, 7), True),
    (FloorDiv(K * K, 7), False), (Max(K, N) + 1, True), (Max(K, N * N), False), (2**N, False),
    (K * 2**20, False), (N * M + K * K, False),
])  # fmt: skip
def test_expressions(expr, fits):
    ranges = Ranges()
    ranges.note(Number(K), SMALL)
    assert ranges.fits(Number(expr)) is fits
