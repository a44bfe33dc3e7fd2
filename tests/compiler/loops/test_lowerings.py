"""Every row of the lowering table: interpreter and generated C agree with eager."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from loop_harness import compare, externs
from loop_samples import samples

import tc
from tc.compiler.loops.lower.registry import BY_CHOICE, LOWERINGS, VIEWS

# Random ones are the matter of test_random.py, chosen ones of tests/compiler/library.
ROWS = [
    (str(op).removeprefix("aten."), op)
    for op in LOWERINGS
    if torch.Tag.nondeterministic_seeded not in op.tags and op not in BY_CHOICE
]
# Eager computes these a little differently, or is itself less exact.
# Long sums are added up in an order of each CPU's own.
LOOSE = {"lgamma.default": 1e-4, "sum.dim_IntList": 1e-5}


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, list | tuple):
        return [t for item in value for t in _tensors(item)]
    return []


def _filled(value: Any, tensors: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return next(tensors)
    if isinstance(value, list | tuple):
        return [_filled(item, tensors) for item in value]
    return value


@pytest.mark.sample(4)
@pytest.mark.parametrize("name, op", ROWS, ids=[name for name, _ in ROWS])
def test_row_agrees_with_eager(name: str, op: Any) -> None:
    calls = samples(name)
    assert calls, f"tests/loop_samples.py has no sample of {name}"
    given = [t for args, kwargs in calls for t in _tensors([args, list(kwargs.values())])]

    def run(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        left = iter(tensors)
        results: list[torch.Tensor] = []
        for args, kwargs in calls:
            values = _filled(args, left)
            keywords = {k: _filled(v, left) for k, v in kwargs.items()}
            made = _tensors(op(*values, **keywords))
            for result in made:
                # a view alone needs no loop: read through it
                results.append(result + 1 if op in VIEWS else result)
        return tuple(results)

    tolerance = {"rtol": LOOSE[name], "atol": 1e-6} if name in LOOSE else {}
    graph = compare(run, given, **tolerance)
    called = [target for target in externs(graph) if target.endswith(name)]
    assert not called, f"{name} was passed to ATen"


@pytest.mark.sample(2)
@pytest.mark.parametrize("dim", [1, -1, 2])
def test_short_concatenations_are_written_from_front_to_back(dim: int) -> None:
    pieces = [torch.randn(3, 65, 70), torch.randn(3, 65, 70), torch.randn(3, 65, 70)]

    def fn(*given: torch.Tensor) -> torch.Tensor:
        return torch.cat(given, dim)

    assert not externs(compare(fn, pieces))
    assert not externs(compare(fn, [piece.bfloat16() for piece in pieces]))


def test_one_run_a_piece_is_left_to_the_library() -> None:
    graph = compare(lambda x, y: torch.cat([x, y]), [torch.randn(40, 70), torch.randn(3, 70)])
    assert externs(graph) == ["aten.cat.default"]


def test_bits_of_floating_point_numbers_raise_as_in_eager():
    for function in (lambda x: x & x, lambda x: x ^ 1):
        with pytest.raises(NotImplementedError):
            tc.compile(function)(torch.ones(3))


@pytest.mark.sample(3)
@pytest.mark.parametrize("exponent", [0.5, -0.5, 2, 3, -1, -2, 0, 1, 1.5, -1.5, 0.25])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_powers_of_unusual_numbers(dtype: torch.dtype, exponent: float) -> None:
    numbers = [-torch.inf, -0.0, 0.0, torch.inf, torch.nan, -1.0, 4.0, 1e-7, 60000.0]
    x = torch.tensor(numbers * 4).to(dtype)
    wanted, got = x**exponent, tc.compile(lambda x: x**exponent)(x)
    torch.testing.assert_close(got, wanted, equal_nan=True)
    known = ~wanted.isnan()
    assert torch.equal(got.signbit() & known, wanted.signbit() & known)
