"""Floats that change from call to call get symbols: one compile more, then none."""

from __future__ import annotations

import math
import os
import random

import pytest
import torch
import torch.nn.functional as F

import tc
from tc.compiler import api

VALUES = (0.5, 1.25, 2.5, 0.75, 3.0, 1.0, 0.0, -1.5, math.inf)
BACKENDS = pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
PROGRAMS = {}


def program(fn):
    PROGRAMS[fn.__name__] = fn
    return fn


@program
def arithmetic(x, s):
    return x * s + 1, x + s, s - x, x / (abs(s) + 1), s * 2, -s, s + x.shape[0]


@program
def alpha_and_bounds(x, s):
    return torch.add(x, x, alpha=s), x.clamp(min=s), x.clamp(-1, s), torch.where(x > s, x, s)


@program
def powers(x, s):
    return x.abs() ** s, torch.pow(2.0, x * s)


@program
def made_of_it(x, s):
    return torch.full((2,), s), torch.full_like(x, s), x.new_full((3,), s), x.masked_fill(x > 0, s)


@program
def activations(x, s):
    return F.leaky_relu(x, s), F.elu(x, alpha=s), F.softplus(x, beta=2.0) * s


@program
def branches(x, s):
    if s > 2:
        return x * math.sqrt(s)
    return x * s if s != 1.0 else x


@program
def in_containers(x, s):
    scale = {"a": [s, s * 2]}
    return x * scale["a"][1] + max(s, 1.0) - min(s, 2.0), isinstance(s, float)


@program
def in_place(x, s):
    y = x.clone()
    y.mul_(s).add_(s)
    y[0] = s
    return y


@program
def functions(x, s):
    return x * math.sin(s), x + math.atan(s) * math.tanh(s), x - math.cosh(s)


@program
def functions_with_domains(x, s):
    return x * math.log2(s), x * math.asin(s / 4)


@program
def whole_numbers(x, s):
    return x * int(s), x + math.floor(s) * math.ceil(s), x - round(s) + math.trunc(s * 1.15)


@program
def sizes_of_it(x, s):
    return torch.full((abs(int(s * 3)) + 1,), s), x[: math.ceil(abs(s))]


def outcome(fn, x, s):
    try:
        return fn(x, s)
    except Exception as error:
        return type(error)


@pytest.mark.sample(2)
@BACKENDS
@pytest.mark.parametrize("name", PROGRAMS)
def test_values_are_eagers(name, backend):
    fn = PROGRAMS[name]
    tc.reset()
    compiled = tc.compile(fn, backend=backend)
    x = torch.linspace(-1.5, 2, 4)
    for s in VALUES:
        got, want = outcome(compiled, x, s), outcome(fn, x, s)
        if isinstance(want, type):  # of an error
            assert got is want, s
            continue
        torch.testing.assert_close(got, want, equal_nan=True)
        flat = got if isinstance(got, tuple) else (got,)
        assert [type(v) for v in flat] == [type(v) for v in (want if len(flat) > 1 else (want,))]


@BACKENDS
def test_the_second_value_makes_it_dynamic(backend):
    tc.reset()
    compiled = tc.compile(lambda x, s: x * s, backend=backend)
    for s in (1.5, 2.5, 3.5, 4.5, -2.0, 100.25):
        assert compiled(torch.ones(2), s).tolist() == [s, s]
    assert api.graph_stats()["graphs"] == 2


@pytest.mark.sample(2)
@BACKENDS
def test_gradients(backend):
    tc.reset()
    compiled = tc.compile(lambda x, s: (x * s).sin().sum() * s, backend=backend)
    for s in (1.5, 2.5, 0.25):
        x = torch.linspace(0, 1, 3, requires_grad=True)
        y = x.detach().clone().requires_grad_()
        compiled(x, s).backward()
        ((y * s).sin().sum() * s).backward()
        torch.testing.assert_close(x.grad, y.grad)
    assert api.graph_stats()["graphs"] == 2


def test_a_decided_comparison_is_guarded():
    tc.reset()
    compiled = tc.compile(branches, backend="eager")
    x = torch.ones(2)
    for s in (1.5, 1.75, 4.0, 9.0, 1.8):
        assert torch.equal(compiled(x, s), branches(x, s))
    assert api.graph_stats()["graphs"] == 3


def test_specialize_float_keeps_them_constant():
    tc.reset()
    with tc.config.patch(specialize_float=True):
        compiled = tc.compile(lambda x, s: x * s, backend="eager")
        for s in (1.5, 2.5, 3.5):
            compiled(torch.ones(2), s)
    assert api.graph_stats()["graphs"] == 3


def test_nan_stays_constant():
    assert math.isnan(tc.compile(lambda x, s: x * s, backend="eager")(torch.ones(1), math.nan))


#: functions of a number that differ from their real-valued simplification, and the numbers
ROUNDED = (
    (lambda x, n: int(n * 1.15 * 100), (2, 3, 6, 7)),
    (lambda x, n: round(n * 1.15 * 100, 1), (2, 5)),
    (lambda x, n: n**0.5 * n**0.5 == n, (2, 3, 4)),
    (lambda x, n: x.new_zeros(int(n * 1.1 * 10)).shape[0], (2, 3, 6, 7, 11)),
    (lambda x, n: 1 if n * 1.15 * 100 == 345.0 else 2, (2, 6, 3)),
    (lambda x, a: ((a + 0.1) - (a + 0.3), a * 0.0), (1.5, 2.3, 123456.789, float("inf"))),
    (lambda x, a: (a / 3 * 3 == a, math.floor(a * 0.1 * 10), a * 1.1 * 1.1 - a), (2.5, 3.7, 1.1)),
    (lambda x, a: (a - 1e16 + 1e16, a**2 / a), (1.5, 2.7, -3.3)),
    (lambda x, a: (a * 2.0, 1.0 - a, math.copysign(1.0, a)), (1.5, -0.0, 0.0, 2.5)),
)


@pytest.mark.sample(10)
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("place", range(len(ROUNDED)))
def test_symbolic_floats_round_as_floats_do(place, backend, dynamic):
    function, numbers = ROUNDED[place]
    compiled = tc.compile(lambda x, n: (x + 1, function(x, n)), backend=backend, dynamic=dynamic)
    for number in numbers:
        got = compiled(torch.ones(1), number)[1]
        assert repr(got) == repr(function(torch.ones(1), number)), number


@pytest.mark.sample(2)
@pytest.mark.parametrize("count", [8, 9, 40])
def test_one_kernel_takes_any_number_of_floats(count):
    def table(x, numbers):
        return torch.tensor(numbers) + torch.stack([x * number for number in numbers])

    compiled = tc.compile(table, dynamic=True, fullgraph=True)
    for start in (0.5, 1.25):
        numbers = [start + place for place in range(count)]
        assert torch.equal(compiled(torch.ones(1), numbers), table(torch.ones(1), numbers))


# -- drawn arithmetic that ends in whole numbers -------------------------------------------------
STEPS = ("{} * {}", "{} / {}", "{} + {}", "{} - {}", "{1} - {0}", "{1} / {0}", "math.sqrt(abs({}))",
         "abs({} * {}) ** 0.5", "math.atan({}) * {}", "max({}, {})", "-(-{})")  # fmt: skip
ENDS = ("int", "math.floor", "math.ceil", "round", "math.trunc")
#: such as are not what they are written as, and lead to numbers beside whole ones
CONSTANTS = ("0.1", "0.3", "1.15", "3", "0.5", "100", "7", "2.675", "1e-3", "49.0")


def drawn(source: random.Random):
    """Return a function of a matrix that computes with its number of rows, and its text."""
    text = "n"
    for _ in range(source.randint(1, 4)):
        text = "(" + source.choice(STEPS).format(text, source.choice(CONSTANTS)) + ")"
    end = source.choice(ENDS)
    lines = [
        "def program(x):",
        "    n = x.shape[0]",
        f"    k = {end}({text})",
        "    return x[: abs(k) % 5], x * k, torch.ones(abs(k) % 7 + 1), k > 10",
    ]
    namespace = {"torch": torch, "math": math}
    exec("\n".join(lines), namespace)
    return namespace["program"], "\n".join(lines)


@pytest.mark.sample(2)
@pytest.mark.parametrize("number", range(6))
def test_whole_numbers_of_drawn_arithmetic_are_those_of_python(number):
    source = random.Random(f"{os.environ['TC_TEST_SEED']} {number}")
    program, text = drawn(source)
    compiled = tc.compile(program, dynamic=True, backend=source.choice(["eager", "inductor"]))
    for rows in source.sample(range(2, 120), 25):
        x = torch.ones(rows, 2)
        try:
            expected = program(x)
        except ZeroDivisionError:
            continue
        for got, eagers in zip(compiled(x), expected, strict=True):
            assert (got == eagers) if isinstance(eagers, bool) else torch.equal(got, eagers), text


@pytest.mark.parametrize("end", ENDS)
def test_a_ratio_of_a_size_stays_dynamic(end):
    kinds = {"int": int, "round": round}
    whole = kinds.get(end) or getattr(math, end.removeprefix("math."))
    counts = []

    def backend(gm, inputs):
        counts.append(1)
        return gm.forward

    def half(x):
        return x[: whole(x.shape[0] * 0.45)]

    tc.reset()
    compiled = tc.compile(half, backend=backend)
    for rows in (10, 13, 17, 24, 31):
        assert torch.equal(compiled(torch.arange(rows)), half(torch.arange(rows)))
    assert len(counts) == 2  # of the first size, and of all others
