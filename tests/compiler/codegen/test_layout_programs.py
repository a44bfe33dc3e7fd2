"""Random layouts do as eager does: loop graphs by the hundred, whole programs by the dozen."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from layout_check import check_batch, check_graph
from loop_graphs import draw_graph
from loop_harness import planned

import tc
from tc.compiler.codegen.stage import generate

GRAPHS = 50


@pytest.mark.parametrize(
    "part", [0, *(pytest.param(k, marks=pytest.mark.slow) for k in range(1, 40))]
)
def test_random_graphs_are_printed(part: int) -> None:
    """The writers refuse what is not declared, not closed, or called wrongly."""
    for seed in range(part * GRAPHS, (part + 1) * GRAPHS):
        graph = draw_graph(seed)
        graph.verify()
        assert bool(generate(planned(graph), threads=2).kernels) == bool(graph.nodes)


@pytest.mark.parametrize(
    "seed",
    [1000, 1001, *(pytest.param(s, marks=pytest.mark.slow) for s in range(2000, 2100))],
)
def test_random_graphs_compute_what_the_interpreter_does(seed: int) -> None:
    assert not check_graph(seed)


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(s, marks=pytest.mark.slow) for s in range(100, 150))]
)
def test_random_programs_do_as_eager_does(seed: int) -> None:
    count, failures = check_batch(random.Random(seed).getrandbits(40), 6)
    assert count and not failures, "\n".join(map(str, failures))


# What random programs found.

NOTHING: dict[str, Callable[[torch.Tensor], Any]] = {
    "max": lambda x: x[2:].max(),
    "min": lambda x: (x[2:] * 2).min(),
    "max of a dimension": lambda x: x[2:].max(0)[0],
    "min of a dimension": lambda x: x[2:].min(0)[1],
    "amax": lambda x: x[2:].amax(0),
    "argmax": lambda x: x[2:].argmax(),
    "argmin": lambda x: x[2:].argmin(0),
    "aminmax": lambda x: x[2:].aminmax()[0],
    "sum": lambda x: x[2:].sum(),
    "prod": lambda x: x[2:].prod(0),
    "mean": lambda x: x[2:].mean(0),
    "any": lambda x: (x[2:] > 0).any(0),
}


def outcome(fn: Callable[..., Any], x: torch.Tensor) -> Any:
    try:
        return fn(x).tolist()
    except (RuntimeError, IndexError) as error:
        return type(error)


@pytest.mark.sample(2)
@pytest.mark.parametrize("dynamic", [True, False])
@pytest.mark.parametrize("name", NOTHING)
def test_reductions_over_nothing(name: str, dynamic: bool) -> None:
    compiled = tc.compile(NOTHING[name], dynamic=dynamic)
    for length in (5, 2, 7):
        x = torch.arange(float(length * 3)).view(length, 3)
        assert repr(outcome(compiled, x)) == repr(outcome(NOTHING[name], x))


@pytest.mark.parametrize("dynamic", [True, False])
def test_writes_through_windows_leave_the_gaps_alone(dynamic: bool) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        x.unfold(0, 2, 3).neg_()
        return x + 1

    mine, theirs = torch.arange(24.0), torch.arange(24.0)
    assert torch.equal(tc.compile(program, dynamic=dynamic)(mine), program(theirs))
    assert torch.equal(mine, theirs)


def test_tiles_whose_strides_hold_commas() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> Any:
        return x[2:].contiguous().transpose(0, 1).reshape(-1), y[y.size(0) // 2 :].t().contiguous()

    compiled = tc.compile(program, dynamic=True)
    for n, m in ((17, 40), (64, 16), (3, 5)):
        given = torch.randn(n, m), torch.randn(m, n)
        for mine, theirs in zip(compiled(*given), program(*given), strict=True):
            assert torch.equal(mine, theirs)


def test_chosen_loads_stay_in_their_arm() -> None:
    """A long index, or a value used twice, was read before its condition was asked."""
    import torch.nn.functional as F

    def program(x: torch.Tensor) -> torch.Tensor:
        y = F.pad(x, (1, 2, 3, 1))
        return F.pad((y * y).transpose(0, 1), (2, 1, 0, 3)) + 1

    compiled = tc.compile(program, dynamic=True)
    for n, m in ((7, 5), (16, 3), (33, 8)):
        x = torch.randn(n, m)
        torch.testing.assert_close(compiled(x), program(x))
