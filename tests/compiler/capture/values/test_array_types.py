"""Types, kinds and values of NumPy's results: every universal function and operator, a table."""

from __future__ import annotations

import functools
import itertools
import operator
import warnings
from typing import Any

import numpy as np
import pytest
import torch

import tc
from tc.compiler.capture.values.array_calls import UFUNCS, numpy_name

KINDS = ("bool", "int8", "uint8", "int32", "int64", "float16", "float32", "float64", "complex64")
NUMBERS = (True, 2, -3, 0.5, 1.5 + 1j)
ALL = sorted(name for name in dir(np) if isinstance(getattr(np, name), np.ufunc))
KNOWN = [name for name in ALL if numpy_name(getattr(np, name)) and name != "logaddexp2"]
OPERATORS = [name for name in UFUNCS if hasattr(operator, name) or hasattr(operator, name + "_")]
REDUCTIONS = (
    "sum", "prod", "mean", "std", "var", "max", "min", "argmax", "cumsum", "cumprod", "any", "all",
    "ptp", "trace", "count_nonzero", "average", "diff", "argsort", "median",
)  # fmt: skip


def _operands(kind: str) -> list[Any]:
    """Return an array, an array of no dimension and a scalar of a type."""
    signs = -1 if np.dtype(kind).kind in "ifc" else 1
    array = np.array([0, 1, signs, 2, 3, signs * 3]).astype(kind)
    return [array, array[1]]


def _function(name: str) -> Any:
    if name in OPERATORS:
        return (
            divmod
            if name == "divmod"
            else getattr(operator, name, None) or getattr(operator, name + "_")
        )
    return getattr(np, name)


def _accepted(function: Any, args: tuple[Any, ...]) -> bool:
    try:
        function(*args)
    except (TypeError, ValueError, OverflowError, AttributeError):
        return False
    return True


def _shown(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_shown(one) for one in value]
    return type(value).__name__, getattr(value, "dtype", None), np.shape(value)


def _flat(value: Any) -> list[Any]:
    return [np.asarray(one) for one in (value if isinstance(value, tuple) else (value,))]


def _same(found: Any, wanted: Any, where: Any) -> None:
    assert _shown(found) == _shown(wanted), where
    for one, other in zip(_flat(found), _flat(wanted), strict=True):
        tolerance = 2e-2 if other.dtype == np.float16 else 1e-5
        np.testing.assert_allclose(one, other, rtol=tolerance, err_msg=str(where))
        if other.dtype.kind == "f":
            zeros = other == 0
            assert (np.signbit(one) == np.signbit(other))[zeros].all(), where


def _check(function: Any, calls: list[tuple[Any, ...]]) -> None:
    def program(x, operands):
        return x + 1, [function(*args) for args in operands]

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        calls = [args for args in calls if _accepted(function, args)]
        tc.reset()
        compiled = tc.compile(program, backend="eager")
        found = compiled(torch.ones(2), calls)[1]
        wanted = program(torch.ones(2), calls)[1]
    assert calls
    for one, other, args in zip(found, wanted, calls, strict=True):
        _same(one, other, args)


def _pairs() -> list[tuple[Any, Any]]:
    arrays = [one for kind in KINDS for one in _operands(kind)]
    divisors = [np.where(one == 0, one.dtype.type(2), one)[()] for one in arrays]
    alike = list(itertools.product(arrays, divisors))
    beside = [pair for one in arrays for k in NUMBERS for pair in ((one, k), (k, one))]
    return alike[::3] + beside


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", [*KNOWN, *OPERATORS])
def test_a_universal_function_computes_in_numpys_types(name):
    function = _function(name)
    ufunc = getattr(np, UFUNCS.get(name, name))
    arrays = [(one,) for kind in KINDS for one in _operands(kind)]
    _check(function, arrays if ufunc.nin == 1 else _pairs())


def test_operators_do_not_break_the_graph():
    def program(x, a, b):
        return x + 1, a[0] / 2, a + b, a[1] ** 2, b % a, -b, a < b, np.sin(a), np.mean(a)

    compiled = tc.compile(program, backend="eager", fullgraph=True)
    a, b = np.array([1, 2], dtype=np.int8), np.array([1.5, 2.5], dtype=np.float32)
    for one, other in zip(compiled(torch.ones(2), a, b), program(torch.ones(2), a, b), strict=True):
        _same(one, other, None)


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_a_reduction_has_numpys_type(name):
    arrays = [(np.tile(_operands(kind)[0], (2, 1)),) for kind in KINDS]
    _check(getattr(np, name), arrays)
    if name in dir(np.ndarray):
        _check(operator.methodcaller(name), arrays)


def _in_place(name: str, one: Any, other: Any) -> Any:
    one = one.copy()
    one = getattr(operator, f"i{name}")(one, other)
    return one


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and"])
def test_an_operator_in_place_keeps_the_type_of_an_array(name):
    name = name + "_" * (name == "and")
    _check(functools.partial(_in_place, name.rstrip("_")), _pairs())


def test_the_sign_of_zero_is_that_of_the_divisor():
    for kind in ("float32", "float64"):
        values = np.array([0.0, -0.0, 3.0, -3.0, 1.5, -1.5, np.inf], dtype=kind)
        grid = np.meshgrid(values, values)
        for function in (np.remainder, operator.mod, divmod, np.fmod, np.copysign, np.hypot):
            _check(function, [tuple(grid)])


KINDS_OF_RESULT = {
    "split": lambda a: np.split(a, 2),
    "array_split": lambda a: np.array_split(a, 3),
    "hsplit": lambda a: np.hsplit(a, 2),
    "vsplit": lambda a: np.vsplit(a, 2),
    "meshgrid": lambda a: np.meshgrid(a[0], a[1]),
    "broadcast_arrays": lambda a: np.broadcast_arrays(a[0], a),
    "nonzero": lambda a: np.nonzero(a),
    "diag_indices": lambda a: np.diag_indices(3),
    "fill_diagonal": lambda a: (np.fill_diagonal(a, 7.0), a),
    "copyto": lambda a: (np.copyto(a, 2.0), a),
    "put": lambda a: (np.put(a, [0, 1], [5.0, 6.0]), a),
    "putmask": lambda a: (np.putmask(a, a > 3, 0.0), a),
}


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", KINDS_OF_RESULT)
def test_several_results_and_none_are_what_numpy_returns(name):
    function = KINDS_OF_RESULT[name]

    def seen(run):
        array = np.arange(16.0).reshape(4, 4)
        result = run(array)
        return type(result), [None if one is None else np.array(one) for one in result], array

    for found, wanted in zip(seen(tc.compile(function)), seen(function), strict=True):
        if isinstance(wanted, type):
            assert found is wanted
        else:
            np.testing.assert_equal(found, wanted)
