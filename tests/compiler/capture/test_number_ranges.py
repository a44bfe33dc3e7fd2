"""Bounds of expressions hold for all values of their symbols."""

from __future__ import annotations

import pytest
import sympy
from torch.utils._sympy.functions import (
    BitwiseFn_bitwise_and,
    BitwiseFn_bitwise_or,
    BitwiseFn_bitwise_xor,
    FloorDiv,
    Max,
    PythonMod,
    RShift,
)

from tc.compiler.capture.number_ranges import LARGE, LONGEST, SMALL, Ranges, bits_of_symbol

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


@pytest.mark.parametrize("function", [
    BitwiseFn_bitwise_and, BitwiseFn_bitwise_or, BitwiseFn_bitwise_xor,
])  # fmt: skip
def test_bits_of_integers(function):
    """The sum of two absolute values is a bound, of negative numbers, too."""
    for one in range(-9, 9):
        for other in range(-9, 9):
            assert abs(function(sympy.Integer(one), sympy.Integer(other))) <= abs(one) + abs(other)
    assert Ranges().fits(Number(function(N, M) + 5))
    assert not Ranges().fits(Number(function(N * N, M)))


def test_shifts_to_the_right():
    assert Ranges().fits(Number(RShift(N, 3)))


def test_shared_nodes_count_each_time():
    ranges, expr = Ranges(), N
    for _ in range(LONGEST.bit_length() - 3):  # a step doubles, and adds five
        assert ranges.is_short(Number(expr))
        expr = FloorDiv(expr, 2) + PythonMod(expr, 3)
    assert not ranges.is_short(Number(expr))
