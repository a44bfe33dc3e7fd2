"""Functions of numpy on arrays of constants, and the texts of such arrays; medians of any array."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

import tc


def texts(x):
    a, b = np.array([1, 2]), np.linspace(0, 1, 3)
    shown = [f"{a}", str(a), repr(b), "%s" % b, "{}".format(a), str([a, b]), f"{a!r:>20}"]  # noqa: UP031, UP032
    return x + 1, shown, ascii(a), f"{a[a > 1]}", [str(one) for one in b]


def medians(x):
    a = x.numpy().reshape(-1, 1) * np.arange(4.0)
    kinds = [a, a.astype(np.int64), a.astype(np.float16), a.astype(np.float32), a > 2]
    of_axes = [np.median(a, axis) for axis in (0, 1, -1, (0, 1), (1,))]
    return [np.median(one) for one in kinds], of_axes, np.median(a, axis=1, keepdims=True)


def medians_of_few(x):
    lists = np.median([[1, 2], [3, 4]]), np.median(5), np.median(np.array([3.0]))
    infinite = np.median(np.array([np.inf, np.inf, 1.0])), np.median(np.array([1e308, 1e308]))
    return *lists, *infinite, np.median(np.array([1.0, np.nan, 2.0])), x + 1


def scaled_by_the_median(x):
    return x * float(np.median(np.array([1.0, 2.0, 5.0])))


def without_a_rule(x):
    a = np.array([1.0, 2.0, 4.0])
    drawn = np.percentile(a, 40), np.quantile(a, [0.1, 0.5]), np.interp(1.5, [1, 2], [3, 4])
    more = np.histogram(a, 3), np.unwrap(a), np.cov(a), np.cbrt(a), np.modf(a), np.nanmedian(a)
    return x * float(np.percentile(a, 50)), drawn, more, np.isin(a, [1, 2]), np.array2string(a)


@pytest.mark.parametrize(
    "function", [texts, medians, medians_of_few, scaled_by_the_median, without_a_rule]
)
@pytest.mark.parametrize("backend", ["eager", "tc"])
def test_in_one_graph(function, backend):
    compiled = tc.compile(function, fullgraph=True, backend=backend)
    for number in (1.0, 2.0):
        x = torch.arange(3.0) + number
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert repr(compiled(x)) == repr(function(x))


def written(x):
    a = np.array([3, 2, 1])
    a[0] = 9
    np.put(a, 1, 8)
    return x + 1, f"{a}", a


def viewed(x):
    a = np.array([[3.0, 2.0]])
    b = np.rollaxis(a, 1)
    b[0] = 7
    return a, b, x


def of_the_program(x):
    a = np.array([3, 2, 1])
    return x, np.apply_along_axis(lambda one: one + 1, 0, a), np.piecewise(a, [a > 1], [5, 6])


def of_data(x):
    return str(x.numpy()), np.percentile(x.numpy(), 50)


def refused(x):
    try:
        return np.median(np.array([1, 2]), axis=4)
    except ValueError as error:
        return type(error), str(error), x


@pytest.mark.parametrize("function", [written, viewed, of_the_program, of_data, refused])
def test_left_to_python(function):
    compiled = tc.compile(function, backend="eager")
    for number in (1.0, 2.0):
        x = torch.arange(3.0) + number
        assert repr(compiled(x)) == repr(function(x))


def test_texts_follow_the_settings():
    def shown(x):
        return x + 1, str(np.linspace(0, 1, 4))

    compiled = tc.compile(shown, fullgraph=True, backend="eager")
    for precision in (8, 3, 3, 8):
        with np.printoptions(precision=precision):
            assert repr(compiled(torch.ones(2))) == repr(shown(torch.ones(2)))


def divides(x, a):
    with np.errstate(all="raise"):
        try:
            return a / (a - a)
        except FloatingPointError:
            return "raised"


def prints(x, a):
    before = np.get_printoptions()
    np.set_printoptions(precision=2)
    text = f"{np.ones(2) / 3}"
    np.set_printoptions(**before)
    with np.printoptions(precision=3):
        return str(np.ones(2) / 3), text, x + 1


@pytest.mark.parametrize("program", [divides, prints])
def test_numpys_settings_of_the_function_hold_in_it(program):
    given = torch.ones(2), np.ones(2)
    compiled = tc.compile(program, backend="eager")
    for _ in range(2):
        assert str(compiled(*given)) == str(program(*given))


def test_numpys_errors_are_raised_where_the_caller_asks_for_them():
    compiled = tc.compile(lambda a: np.log(a - a) + 1)
    with np.errstate(all="ignore"):
        assert compiled(np.ones(2)).tolist() == [-np.inf, -np.inf]
    with np.errstate(all="raise"), pytest.raises(FloatingPointError):
        compiled(np.ones(2))


CALLS = (
    lambda x, a: torch.add(a, x), lambda x, a: x.add(a), lambda x, a: torch.cat([x, a]),
    lambda x, a: torch.sin(a), lambda x, a: x + a, lambda x, a: a @ x, lambda x, a: x[a > 0],
    lambda x, a: x * a.sum(), lambda x, a: torch.stack([torch.as_tensor(a), x]),
)  # fmt: skip


@pytest.mark.parametrize("place", range(len(CALLS)))
def test_functions_of_torch_refuse_arrays_and_operators_do_not(place):
    def run(call):
        try:
            return str(call(torch.ones(2), np.ones(2, dtype=np.float32)))
        except TypeError as error:
            return type(error)

    assert run(tc.compile(CALLS[place], backend="eager")) == run(CALLS[place])
