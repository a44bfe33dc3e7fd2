"""Numbers that have become symbols give what Python's numbers give: drawn programs, and eager."""

from __future__ import annotations

import functools
import itertools
import math
import operator
import random
import struct

import pytest
import torch

import tc
from tc.compiler import api

NAMES = {"torch": torch, "math": math, "operator": operator, "functools": functools,
         "itertools": itertools, "inf": math.inf, "nan": math.nan}  # fmt: skip


def function(text, parameters="x, n"):
    scope = dict(NAMES)
    exec(f"def f({parameters}):\n    x = -x\n    return {text}, x", scope)
    return scope["f"]


def outcome(fn, *args):
    try:
        return fn(*args)
    except Exception as error:
        return type(error)


def same(one, other):
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        both_nan = one != one and other != other
        return both_nan or struct.pack("d", one) == struct.pack("d", other)
    if isinstance(one, complex):
        return repr(one) == repr(other)
    if isinstance(one, torch.Tensor):
        alike = one.dtype == other.dtype and one.shape == other.shape
        return alike and torch.equal(one.nan_to_num(), other.nan_to_num())
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


def check(fn, calls, dynamic=None):
    compiled = tc.compile(fn, dynamic=dynamic)
    for args in calls:
        wanted, found = outcome(fn, *args), outcome(compiled, *args)
        assert same(wanted, found), (args, wanted, found)


# -- bools ---------------------------------------------------------------------------------------
BOOLS = [
    "(n > 3) == 1", "(n > 3) & 1", "(n > 3) in (0,)", "1 in [n > 3]", "(n == 4) is True",
    "bool(n) is True", "(n > 3) is (n > 2)", "bool(n) is (n > 0)", "[True].count(n > 2)",
    "[n > 3] == [True]", "(n > 3,) < (True,)", "(n > 3) + 1", "1 - (n > 3)", "(n > 3) * 2.5",
    "[(k, list(v)) for k, v in itertools.groupby([n, n + 1, 0], key=lambda v: v > 1)]",
    "-(n > 3)", "~(n > 3)", "abs(n > 3)", "(n > 3) | (n > 4)", "(n > 3) ^ True",
    "(n > 3) < (n > 4)", "(n > 3) != True", "f'{n > 3}'", "f'{(n > 3):d}'", "{n > 3: 1}",
    "{n > 3, 1}", "int(n > 3)", "float(n > 3)", "divmod(n > 3, 2)", "sum([n > 3, n > 4])",
    "max(n > 3, 0)", "sorted([n > 3, n > 4, n > 1])", "x * (n > 3)", "torch.tensor([n > 3, 1])",
    "(n > 3) and 5", "isinstance(n > 3, int)", "(n > 3).bit_length()", "[1, 2][n > 3]",
    "(n > 3) is not False", "(n > 3) == 1.0", "[n > 3].index(1)", "(n > 3) in {1}",
    "(n > 3) == 'a'", "(n > 3) is None", "n == True", "[n] == [True]", "(n > 3) == n",
    "n * (n > 3)", "x.masked_fill(x > 0, n > 3)", "dict(a=n > 3) == {'a': 1}", "x == (n > 3)",
    "functools.reduce(operator.add, [n > 3, n > 4])", "x.add(1, alpha=n > 3)", "[1] * (n > 3)",
]  # fmt: skip


@pytest.mark.sample(6)
@pytest.mark.parametrize("text", BOOLS)
def test_a_bool_is_one_of_two_objects_and_a_number(text):
    check(function(text), [(torch.arange(3.0), n) for n in (5, 6, 3, 4, 2, 1)])


# -- numbers -------------------------------------------------------------------------------------
CONSTANTS = (
    "0", "0.0", "-0.0", "1", "2", "-1", "3.5", "inf", "-inf", "nan", "True", "2**62", "10**20",
    "1e308", "1e-320", "-2.5", "1j",
)  # fmt: skip
OPERATIONS = (
    "n + c", "c + n", "n - c", "c - n", "n * c", "c * n", "n / c", "c / n", "n // c", "c // n",
    "n % c", "c % n", "n ** (c if c == c and abs(c) < 99 else 2)", "n < c", "n == c", "c >= n",
    "min(n, c)", "max(c, n)", "n * c * 0", "-(n * c)", "abs(n * c)", "(n * c) + n - n * c",
    "float(n) * c", "n in (c,)", "(n * c,) < (c,)", "sum([n, c, n])", "math.prod([n, c])",
    "(n - c) * (n + c)", "(n * c) // 2", "math.copysign(1.0, n * c)", "(n * n) % 7 + n * c",
    "divmod(n, c)", "(n * n * n) // 3", "n * c if n > c else n + c", "n << 2", "~n", "n & 6",
)  # fmt: skip
INTEGERS = (3, 5, 7, -4, 2**31, 10**10, 2**48, 2**62, 2**63 - 1, -(2**63), 2**63, 10**20, 0, 1)
FLOATS = (1.5, 2.5, -3.25, 1e-300, 1e300, 0.1, -0.0, 0.0, math.inf, math.nan, 7.0)
DRAWN = random.Random(0).sample([*itertools.product(OPERATIONS, CONSTANTS)], 80)


@pytest.mark.sample(4)
@pytest.mark.parametrize("operation, constant", DRAWN)
@pytest.mark.parametrize("kind", ["int", "float"])
def test_arithmetic_is_pythons(operation, constant, kind):
    text = f"(lambda c: {operation})({constant})"
    values = INTEGERS if kind == "int" else FLOATS
    check(function(text), [(torch.ones(2), value) for value in values])


@pytest.mark.sample(2)
@pytest.mark.parametrize("text", ["2**n * x", "x + (-2) ** n % 7", "x * (1 << n)"])
def test_a_symbol_is_no_exponent(text):
    check(function(text), [(torch.arange(3), n) for n in (2, 3, 62, 63, 100)])


def test_sizes_have_no_bounds_either():
    fn = function("x + (x.shape[0] ** 20) % 1000", "x")
    check(fn, [(torch.arange(n),) for n in (2, 3, 4, 5, 11, 6)])


# -- integers in graphs --------------------------------------------------------------------------
FORMS = (
    "torch.tensor(n)", "torch.tensor([n, 1])", "torch.tensor(n * 2)", "x.new_tensor(n)",
    "torch.as_tensor(n)", "torch.asarray([n])", "torch.tensor([[n], [2]])",
    "torch.tensor([1.5, n])",
    "torch.tensor(n, dtype=torch.float64)", "torch.tensor(n, dtype=x.dtype)", "x + n", "n - x",
    "torch.where(x > 1, x, n)", "torch.full_like(x, n)", "x.masked_fill(x > 0, n)",
    "x.clamp(max=n)", "x + (n * n) % 7", "x.float() + n * n", "x + n % 1000",
    "x.double() * (n / 3)",
    "torch.arange(n, n + 2)", "x.add(x, alpha=n)", "x > n", "x // n",
    "torch.tensor(n, dtype=float)",
    "torch.tensor(n, dtype=torch.complex64)", "x.index_fill(0, torch.tensor([0]), n)",
)  # fmt: skip
LARGE = {
    torch.int64: (3, 5, 10**10, 2**31, -(2**40), 2**62, 2**63 - 1, 2**63, 10**20),
    torch.uint8: (3, 5, 300, 255, -1, 2**40),
    torch.int32: (3, 5, 2**40, 2**31 - 1, -(2**31)),
    torch.float16: (3, 5, 70000),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("text", FORMS)
@pytest.mark.parametrize("dtype", LARGE)
def test_an_integer_keeps_its_64_bits(text, dtype):
    check(function(text), [(torch.ones(2).to(dtype), n) for n in LARGE[dtype]])


def test_a_number_of_data_keeps_its_64_bits():
    def fn(x):
        n = x[0].item()
        return torch.tensor(n), torch.tensor([n, 1])

    with tc.config.patch(capture_scalar_outputs=True):
        check(fn, [(torch.tensor([n, 1]),) for n in (3, 10**10, -(2**40))])


def test_a_small_number_needs_no_second_compile():
    compiles = []

    def backend(module, examples):
        compiles.append(module)
        return module

    compiled = tc.compile(lambda x, n: x + n * 2, backend=backend)
    for n in (3, 5, 7, 10**10, -(2**40), 0):
        assert compiled(torch.tensor([1]), n).item() == 1 + n * 2
    assert len(compiles) == 2


KEEP_SYMBOLS = [
    "n.real + n.imag + n.numerator + n.denominator",
    "h.real + h.imag",
    "n.conjugate() + n.__abs__() + n.__neg__() + n.__pos__() + n.__invert__()",
    "n.__round__() + n.__floor__() + n.__trunc__() + n.__ceil__() + n.__index__() + n.__int__()",
    "h.__floor__() + h.__trunc__() + h.__ceil__() + h.__int__()",
    "h.conjugate() + h.__abs__() + h.__neg__() + h.__add__(2.0)",
    "n.__pow__(2) + n.__lshift__(1) + n.__rshift__(1) + n.__and__(6) + n.__or__(8) + n.__xor__(3)",
    "sum(n.__divmod__(3)) + sum(divmod(n, 3))",
    "~n + (~n).__abs__()",
    "[hasattr(n, 'anything'), hasattr(h, 'numerator'), getattr(n, 'other', 3), getattr(n, 'real')]",
    "[n.__class__, type(h), isinstance(n, int), n.__str__(), n.__repr__(), h.__repr__()]",
    "[torch.sym_float(n), torch.sym_sqrt(n), torch.sym_int(h), torch.sym_max(n, 2)]",
    "[int.__add__(n, 2), int.__neg__(n), int.conjugate(n), int.real.__get__(n)]",
    "list(map(int.__neg__, x.shape))",
]


@pytest.mark.sample(5)
@pytest.mark.parametrize("text", KEEP_SYMBOLS)
def test_what_a_number_is_asked_does_not_decide_it(text):
    space = {"torch": torch}
    exec(
        f"def f(x):\n    n = x.shape[0]\n    h = n / 3\n    r = {text}\n    return x.sin(), r\n",
        space,
    )
    f = space["f"]
    tc.reset()
    compiled = tc.compile(f, fullgraph=True, backend="eager")
    for n in (4, 5, 6, 7):
        x = torch.ones(n, 3)
        found, wanted = compiled(x)[1], f(x)[1]
        assert found == wanted
        assert type(found) is type(wanted)
    assert api.graph_stats()["graphs"] == 2


def test_a_number_lacks_what_python_numbers_lack():
    def f(x):
        try:
            return x + 1, x.shape[0].anything
        except AttributeError as error:
            return x + 2, str(error)

    for n in (4, 5, 6):
        x = torch.ones(n)
        assert tc.compile(f, fullgraph=True, backend="eager")(x)[1] == f(x)[1]


def test_an_expression_of_unknown_numbers_that_is_one_number_has_its_value():
    """Not that of the numbers which stand in for what the data says."""

    def f(x):
        u, v = x.tolist()
        torch._check_is_size(u)
        n = u + 10
        return x + (n * n) % n, x * (v - v + 3), (n * n) % n == 0

    with tc.config.patch(capture_scalar_outputs=True):
        compiled = tc.compile(f, fullgraph=True)
        for given in ([20, 21], [3, 0]):
            x = torch.tensor(given)
            found, expected = compiled(x), f(x)
            assert torch.equal(found[0], expected[0]) and torch.equal(found[1], expected[1])
            assert found[2] is expected[2]
