"""NumPy scalars that are known during capture: numbers where Python asks, tensors to torch."""

from __future__ import annotations

import math
import random
import warnings
from typing import Any

import numpy as np
import pytest
import torch

import tc


def _in_a_body(x: Any, scale: Any) -> Any:
    y = torch.utils.checkpoint.checkpoint(lambda z: (z * scale).sin(), x, use_reentrant=False)
    return y * scale


SIZES = (3, 4, 6, 5, 3)
#: what follows from sizes and constants without a guard on the size itself
DYNAMIC = {
    "int(ceil)": lambda x: x * int(np.ceil(x.shape[0] / 2)),
    "range(int(ceil))": lambda x: x.view(-1)[: int(np.ceil(x.shape[0] / 2))],
    "reshape(int(prod))": lambda x: x.reshape(int(np.prod(x.shape))),
    "reshape(prod)": lambda x: x.reshape(np.prod(x.shape[:1]), -1),
    "zeros(prod)": lambda x: x.new_zeros((np.prod(x.shape),)),
    "x * ceil": lambda x: x * np.ceil(x.shape[0] / 2),
    "x * sqrt": lambda x: x * np.sqrt(x.shape[0]),
    "float(sqrt)": lambda x: x * float(1 / np.sqrt(x.shape[0])),
    "max": lambda x: x * int(np.maximum(x.shape[0], 2)),
    "returned": lambda x: (x + 1, np.ceil(x.shape[0] / 2), np.floor(x.shape[0] / 2) > 2),
    "in a body": lambda x: _in_a_body(x, np.sqrt(x.shape[0])),
}
#: what needs the number itself
FIXED = {
    "branch": lambda x: x + 1 if np.ceil(x.shape[0] / 2) > 2 else x - 1,
    "constants": lambda x: x * int(np.log2(8)) * float(np.mean([1, 2, 3])) * np.argmax([1, 5, 2]),
    "text": lambda x: (x + 1, f"{np.sqrt(x.shape[0]):.3f}", str(np.prod(x.shape))),
    "key": lambda x: (x + 1, {np.prod(x.shape): 1, np.int64(3): 2}),
    "overflow": lambda x: (x + 1, int(np.prod((*x.shape, 2**40, 2**40)))),
    "zero": lambda x: (x + 1, np.ceil(-x.shape[0] / 8).item()),
    "type": lambda x: (x + 1, np.prod(x.shape).dtype, type(np.sqrt(x.shape[0]))),
    "truth": lambda x: x + 1 if np.isclose(2.5, 2.5) and not np.all([True, False]) else -x,
}


def _shown(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_shown(one) for one in value]
    if isinstance(value, torch.Tensor):
        return value.dtype, value.tolist()
    return type(value), repr(value)


def _compiles(program: Any, dynamic: bool | None) -> int:
    """Return how often a program is compiled for some sizes, after comparing its results."""
    graphs: list[Any] = []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph

    compiled = tc.compile(program, backend=backend, fullgraph=True, dynamic=dynamic)
    for size in SIZES:
        x = torch.arange(size * 2.0).view(size, 2)
        assert _shown(compiled(x)) == _shown(program(x))
    return len(graphs)


@pytest.mark.parametrize("name", DYNAMIC)
def test_sizes_stay_symbolic(name: str) -> None:
    assert _compiles(DYNAMIC[name], None) <= 2


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", FIXED)
def test_numbers_that_python_needs(name: str, dynamic: bool | None) -> None:
    assert 1 <= _compiles(FIXED[name], dynamic) <= len(set(SIZES))


@pytest.mark.parametrize("kind", [np.int64, np.int8, np.float64, np.float32])
def test_given_scalars(kind: Any) -> None:
    def program(x: Any, s: Any) -> Any:
        kept = "big" if s + s > 60 else "small"
        return x * int(s), float(s), round(s), s + s, kept, f"{s:.1f}", {s: 1}, max(s, 2)

    compiled = tc.compile(program, fullgraph=True)
    for number in (3, 100, 3, 40):
        x = torch.arange(3.0)
        assert _shown(compiled(x, kind(number))) == _shown(program(x, kind(number)))


def test_what_is_repeated() -> None:
    def program(x: Any, n: Any) -> Any:
        return x + 1, [1] * n, n * (1, 2), "a" * np.sum([1, 2])

    compiled = tc.compile(program)
    for count in (2, 3, 2):
        got, wanted = (f(torch.ones(2), np.int64(count)) for f in (compiled, program))
        assert repr(got) == repr(wanted)


UNARY = ("np.ceil({})", "np.floor({})", "np.sqrt({})", "np.abs({})", "np.sign({})", "np.int8({})",
         "np.float32({})", "np.int64({})", "np.prod([{}, 2])", "np.max([{}, 3])", "abs({})", "-{}",
         "np.round({}, 1)", "np.log2({})", "np.square({})")  # fmt: skip
BINARY = ("np.maximum({}, {})", "np.minimum({}, {})", "({} + {})", "({} * {})", "({} - {})",
          "({} / {})", "({} // {})", "({} % {})", "np.power({}, {})", "({} > {})", "({} == {})",
          "divmod({}, {})[0]", "np.hypot({}, {})")  # fmt: skip
ENDS = ("{}", "int({})", "float({})", "bool({})", "x + int({})", "({}).item()", "str({})",
        "1 if {} else 2", "(x if {} > 2 else -x)", "hash({})", "({}).dtype", "round(float({}), 2)",
        "math.floor({})", "[1, 2] * int(abs({}) % 3)")  # fmt: skip
LEAVES = ("x.shape[0]", "x.numel()", "2", "2.5", "0.5", "-1", "s", "k")


def _drawn(draw: random.Random, depth: int) -> str:
    if not depth:
        return draw.choice(LEAVES)
    form = draw.choice(UNARY if draw.random() < 0.5 else BINARY)
    return form.format(*(_drawn(draw, depth - 1) for _ in range(form.count("{}"))))


def _outcome(program: Any, *args: Any) -> Any:
    try:
        result = program(*args)
    except Exception as error:
        return "raises", type(error)
    if isinstance(result, torch.Tensor | float | np.generic):
        return type(result), result.dtype if hasattr(result, "dtype") else None, np.array(result)
    return type(result), result


@pytest.mark.parametrize("seed", range(40))
def test_drawn_expressions(seed: int) -> None:
    draw = random.Random(seed)
    text = draw.choice(ENDS).format(_drawn(draw, draw.randint(1, 3)))
    program = eval(f"lambda x, s, k: {text}", {"np": np, "math": math})
    kinds = draw.choice([np.float64, np.int64]), draw.choice([np.int64, np.int32, np.float32])
    compiled = tc.compile(program, backend="eager", dynamic=draw.choice([None, True, False]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for size, *numbers in ((3, 2, 3), (4, 2, 3), (5, 3, 3), (6, 3, 4), (3, 2, 3)):
            args = torch.arange(float(size)), *(k(n) for k, n in zip(kinds, numbers, strict=True))
            got, wanted = _outcome(compiled, *args), _outcome(program, *args)
            np.testing.assert_equal(got[:-1], wanted[:-1], text)
            if isinstance(wanted[-1], np.ndarray):  # a power may differ in its last digit
                np.testing.assert_allclose(got[-1], wanted[-1], 1e-6, err_msg=text)
            else:
                assert got[-1] == wanted[-1], text


SPECIAL = {
    "sqrt": lambda x, s: (x * np.sqrt(s), float(np.sqrt(s))),
    "ceil": lambda x, s: (x * np.ceil(s), bool(np.ceil(s))),
    "quotient": lambda x, s: (x * (1 / s), float(s / (s - s))),
    "integer": lambda x, s: x * int(np.floor(s)),
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", SPECIAL)
def test_numbers_for_which_python_raises(name: str, dynamic: bool | None) -> None:
    program = SPECIAL[name]
    compiled = tc.compile(program, dynamic=dynamic)
    x = torch.arange(3.0)
    for number in (2.5, 3.5, -4.0, 0.0, math.nan, math.inf, -0.0, 3.5):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            got, wanted = (repr(_outcome(f, x, np.float64(number))) for f in (compiled, program))
        assert got == wanted, number
