"""Index expressions: canonical, and equal to brute force over all values of their variables."""

from __future__ import annotations

import itertools
import pickle

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from tc.compiler.codegen.printer import c_index
from tc.compiler.loops import index as ix
from tc.compiler.loops.index import Index

S, T = ix.size("s0"), ix.size("s1")
EXTENTS = {"i": 3, "j": 4, "k": 5}
I, J, K = (ix.var(name, n) for name, n in EXTENTS.items())  # noqa: E741


def everywhere(a: Index, b: Index) -> bool:
    """Whether two indices over i, j, k are equal at every point."""
    for values in itertools.product(*(range(n) for n in EXTENTS.values())):
        scope = dict(zip(EXTENTS, values, strict=True))
        if ix.evaluate(a, scope) != ix.evaluate(b, scope):
            return False
    return True


leaves = st.one_of(st.sampled_from([I, J, K]), st.integers(-6, 6).map(ix.const))
divisors = st.integers(1, 9).map(ix.const)


def _deeper(inner: st.SearchStrategy[Index]) -> st.SearchStrategy[Index]:
    return st.one_of(
        st.tuples(inner, inner).map(lambda p: p[0] + p[1]),
        st.tuples(inner, inner).map(lambda p: p[0] - p[1]),
        st.tuples(inner, st.integers(-4, 4)).map(lambda p: p[0] * p[1]),
        st.tuples(inner, divisors).map(lambda p: p[0] // p[1]),
        st.tuples(inner, divisors).map(lambda p: p[0] % p[1]),
    )


@settings(max_examples=80, deadline=None)
@given(st.recursive(leaves, _deeper, max_leaves=6), st.integers(1, 12), st.integers(0, 11))
def test_division_identity_and_bounds(x: Index, c: int, offset: int) -> None:
    quotient, rest = x // c, x % c
    for values in itertools.product(*(range(n) for n in EXTENTS.values())):
        scope = dict(zip(EXTENTS, values, strict=True))
        plain = ix.evaluate(x, scope)
        assert ix.evaluate(quotient, scope) == plain // c
        assert ix.evaluate(rest, scope) == plain % c
        low = ix.lower_bound(x)
        assert low is None or low <= plain
    assert everywhere(quotient * c + rest, x)
    assert everywhere((x + offset) - offset, x)


@pytest.mark.parametrize(
    "given_, wanted",
    [
        (lambda: (I * 20 + J * 5 + K) // 20, lambda: I),
        (lambda: (I * 20 + J * 5 + K) % 20, lambda: J * 5 + K),
        (lambda: (I * 20 + J * 5 + K) // 5 % 4, lambda: J),
        (lambda: I // 2 * 2 + I % 2, lambda: I),
        (lambda: (I * S * T + J * T) // T, lambda: I * S + J),
        (lambda: (I + J) - J, lambda: I),
        (lambda: ix.var("v", S * T) // T * T + ix.var("v", S * T) % T, lambda: ix.var("v", S * T)),
        (
            lambda: (ix.var("a", S) * (T + 2) + ix.var("b", T + 2)) // (T + 2),
            lambda: ix.var("a", S),
        ),
        (lambda: ix.minimum(S, S + 3), lambda: S),
        (lambda: (K // 2) // 2, lambda: K // 4),
    ],
)
def test_simplified(given_, wanted) -> None:  # type: ignore[no-untyped-def]
    assert given_() is wanted()


def _times(inner: st.SearchStrategy[Index]) -> st.SearchStrategy[Index]:
    return st.one_of(_deeper(inner), st.tuples(inner, inner).map(lambda p: p[0] * p[1]))


products = st.recursive(leaves, _times, max_leaves=6)


@settings(max_examples=60, deadline=None)
@given(products, products)
def test_what_replaces_a_variable_is_evaluated_in_its_place(x: Index, by: Index) -> None:
    atom = ix.atom_of(J)
    assert atom is not None
    found = ix.substitute(x, {atom: by})
    for values in itertools.product(*(range(n) for n in EXTENTS.values())):
        scope = dict(zip(EXTENTS, values, strict=True))
        there = {**scope, "j": ix.evaluate(by, scope)}
        assert ix.evaluate(found, scope) == ix.evaluate(x, there)


@settings(max_examples=60, deadline=None)
@given(products)
def test_a_coefficient_is_what_each_step_adds(x: Index) -> None:
    step = ix.coefficient(x, J)
    if step is None:
        return  # not known to be the same for all steps
    for i, j, k in itertools.product(range(3), range(3), range(5)):
        here, there = ({"i": i, "j": at, "k": k} for at in (j, j + 1))
        assert ix.evaluate(x, there) - ix.evaluate(x, here) == ix.evaluate(step, here)


@pytest.mark.parametrize(
    "index, wanted",
    [
        (I * 20 + J * 5 + K, ix.const(5)),
        (I * S + J * S * T + J * 3, S * T + 3),
        (I + K // 2, ix.ZERO),
        (J * I, None),
        (J * J, None),
        (J // 2 + J, None),
        ((J + 4) % 5 * S, None),
    ],
)
def test_coefficients(index: Index, wanted: Index | None) -> None:
    assert ix.coefficient(index, J) is wanted


def test_equal_expressions_are_one_object_also_after_pickling() -> None:
    assert I + J is J + I
    assert (I + 1) * (I - 1) is I * I - 1
    assert pickle.loads(pickle.dumps(I * S + J // 2)) is I * S + J // 2


def test_printing_reads_as_python() -> None:
    text = str((I * 7 + S - 3) // (T + 1))
    scope = {"i": 2, "s0": 10, "s1": 3}
    assert eval(text, {}, scope) == ix.evaluate((I * 7 + S - 3) // (T + 1), scope)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.randoms())
def test_regrouped_keeps_row_order(sizes: list[int], random) -> None:  # type: ignore[no-untyped-def]
    total = 1
    for n in sizes:
        total *= n
    other: list[int] = []
    left = total
    while left > 1:
        factor = random.choice([d for d in range(2, left + 1) if left % d == 0])
        other.append(factor)
        left //= factor
    old = tuple(map(ix.const, sizes))
    new = tuple(map(ix.const, other))
    position = tuple(ix.var(f"n{k}", n) for k, n in enumerate(new))
    found = ix.regrouped(old, new, position)
    for flat, values in enumerate(itertools.product(*(range(n) for n in other))):
        scope = {f"n{k}": v for k, v in enumerate(values)}
        at = 0
        for index, n in zip(found, sizes, strict=True):
            at = at * n + ix.evaluate(index, scope)
        assert at == flat


def test_a_constant_is_an_integer() -> None:
    two = ix.const(2)
    with pytest.raises(TypeError):
        ix.const(2.0)  # type: ignore[arg-type]
    assert ix.const(True) is ix.ONE and type(ix.const(True).constant) is int
    assert ix.const(2) is two and type(two.constant) is int


def test_a_counter_may_be_zero() -> None:
    row, of = ix.counter("row"), ix.counter("of")
    assert ix.is_at_least(row + of, 0) and not ix.is_at_least(row + of, 1)
    assert ix.is_at_least(S, 1)  # a size inside of a loop may not
    assert c_index((row + of - 2) % S) == f"tc_mod(of + row - 2, {S})"


def test_a_position_in_rows_of_symbolic_sizes_is_put_together_again() -> None:
    rows, columns = ix.size("s0"), ix.size("s1")
    flat = ix.var("r", rows * columns)
    row, column = ix.floordiv(flat, columns), ix.mod(flat, columns)
    assert ix.mod(row, rows) is row
    assert ix.mod(row, rows) * columns + column is flat
    assert ix.mod(row, rows - 1) is not row
    assert ix.is_less(row, rows) and not ix.is_less(row, rows - 1)
