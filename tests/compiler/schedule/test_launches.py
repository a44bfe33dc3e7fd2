"""Small loop nests on a GPU: computed by their readers, or several in one launch."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from layout_programs import draw, draw_sizes
from loop_harness import check, copied, lowered

from tc.compiler.core.gate import Gate
from tc.compiler.loops.ir import Extern
from tc.compiler.schedule import gpu, launches
from tc.compiler.schedule.interpret import interpret
from tc.compiler.schedule.plan import BumpVersions, Kernel, Plan

T = torch.Tensor
OFF = {"schedule.recompute": 0, "schedule.side_by_side": 0}


def r(*shape: int) -> T:
    return torch.randn(shape)


def plans(fn: Callable[..., Any], *args: Any, mode: str = "fake") -> tuple[Plan, Plan]:
    """Plans with and without the two passes, after a comparison of both with eager."""
    graph = lowered(torch.func.functionalize(fn), copied(args), mode)
    want = copied(args)
    results = fn(*want)
    found = []
    for gate in (Gate(), Gate(OFF)):
        plan = gpu.plan(graph, gate)
        plan.verify()
        mine = copied(args)
        check(interpret(plan, list(mine)), results)
        torch.testing.assert_close(mine, want)
        found.append(plan)
    return found[0], found[1]


def counts(fn: Callable[..., Any], *args: Any, mode: str = "fake") -> tuple[int, int]:
    """The kernels with and without the two passes."""
    one, other = (sum(isinstance(s, Kernel) for s in p.steps) for p in plans(fn, *args, mode=mode))
    return one, other


def scaled(x: T, w: T, v: T) -> T:
    """A batch norm's factors, then its elements, which a matrix product keeps apart."""
    y = torch.mm(x, x)
    factor = (v + 1e-5).rsqrt() * w
    return y * factor[:, None] + factor.neg()[:, None]


def test_a_reader_computes_a_small_value() -> None:
    assert counts(scaled, r(33, 33), r(33), r(33).abs()) == (1, 2)


def test_also_where_the_reader_reduces() -> None:
    def fn(x: T, v: T) -> T:
        return (torch.mm(x, x) * (v + 1).rsqrt()).sum(1)

    assert counts(fn, r(33, 33), r(33).abs()) == (1, 2)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_value_is_rounded_as_in_memory(dtype: torch.dtype) -> None:
    def fn(x: T, v: T) -> T:
        return torch.mm(x, x).float() * (v * v * v).exp()[:, None]

    args = torch.ones(17, 17, dtype=dtype), r(17).to(dtype)
    graph = lowered(fn, args)
    with_pass = interpret(gpu.plan(graph, Gate()), copied(args))
    without = interpret(gpu.plan(graph, Gate(OFF)), copied(args))
    check(with_pass, without, rtol=0, atol=0)


def test_what_is_returned_stays() -> None:
    def fn(x: T, v: T) -> tuple[T, T]:
        factor = (v + 1e-5).rsqrt() * v
        return torch.mm(x, x) * factor[:, None], factor

    assert counts(fn, r(33, 33), r(33).abs()) == (2, 2)


def test_what_is_expensive_stays() -> None:
    def fn(x: T, v: T) -> T:
        for _ in range(4):
            v = v.sin().exp()
        return torch.mm(x, x) * v[:, None]

    assert counts(fn, r(33, 33), r(33)) == (2, 2)


def test_what_is_large_stays() -> None:
    def fn(x: T, v: T) -> T:
        factor = (v * v).rsqrt() * v
        return torch.mm(x, x).view(1, 3, 3) * factor[:, None, None]

    assert counts(fn, r(3, 3), r(launches.SMALL + 1) + 9) == (2, 2)


def test_values_of_symbolic_size_stay() -> None:
    assert counts(scaled, r(33, 33), r(33), r(33).abs(), mode="symbolic") == (2, 2)


def test_an_operand_that_is_written_over_is_read_before() -> None:
    def fn(x: T, v: T, at: T) -> tuple[T, T]:
        small = (v * 2 + 1).exp() * 3
        kept = (v + 1).index_add(0, at, torch.ones(3))
        return torch.mm(x, x) * small[:, None], kept

    plans(fn, r(9, 9), r(9), torch.tensor([0, 4, 4]))


def test_a_scatter_keeps_its_base() -> None:
    def fn(g: T, at: T) -> T:
        return torch.zeros(9).index_add(0, at, g.sum(1))

    plans(fn, r(30, 4), torch.arange(30) % 9)


def test_counters_share_a_launch() -> None:
    def fn(x: T, *steps: T) -> T:
        for step in steps:
            x = torch.mm(x, x)
            step.add_(1)
        return x

    one, other = plans(fn, torch.eye(5), *(torch.tensor(k) for k in range(6)))
    assert sum(isinstance(step, Kernel) for step in one.steps) == 1
    assert sum(isinstance(step, Kernel) for step in other.steps) == 6


def test_values_that_need_a_call_between_them_do_not() -> None:
    def fn(x: T) -> tuple[T, T]:
        y = x.sin()
        return y, torch.mm(y, y).cos()

    assert counts(fn, r(5, 5)) == (2, 2)


def test_nothing_moves_before_a_condition() -> None:
    graph = lowered(lambda x, v: (x.sin(), v.cos()), (r(5), r(5)))
    one, other = graph.nodes
    check = Extern("aten._assert_async.default", (), (), (), unpack=False)
    for nodes, kernels in ((graph.nodes, 1), ((one, check, other), 2)):
        plan = gpu.plan(replace(graph, nodes=nodes), Gate())
        assert sum(isinstance(step, Kernel) for step in plan.steps) == kernels


def test_kernels_write_to_inputs_as_on_a_cpu() -> None:
    def step(p: T, g: T, m: T) -> tuple[()]:
        m.mul_(0.5).add_(g)
        p.sub_(m * 2)
        return ()

    plan, _ = plans(step, r(5, 7), r(5, 7), r(5, 7))
    assert [step.names for step in plan.steps if isinstance(step, BumpVersions)]
    assert len([step for step in plan.steps if isinstance(step, Kernel)]) == 1


def test_a_batch_norm_of_each_mode() -> None:
    def fn(x: T, w: T, b: T, mean: T, var: T, steps: T) -> T:
        steps.add_(1)
        x = F.batch_norm(F.conv2d(x, w), mean, var, b, b, True)
        return F.batch_norm(F.conv2d(x, w), mean, var, b, b, False)

    plans(fn, r(2, 8, 5, 5), r(8, 8, 1, 1), r(8), r(8), r(8).abs(), torch.tensor(3))


@pytest.mark.sample(4)
@pytest.mark.parametrize("seed", range(12))
def test_drawn_programs(seed: int) -> None:
    sizes = draw_sizes(random.Random(seed))
    program = draw(seed, sizes)
    names: dict[str, Any] = {"torch": torch, "F": F}
    exec(program.source(), names)
    args = program.make(sizes[0])
    graph = lowered(torch.func.functionalize(names["program"]), copied(args))
    one, other = (interpret(gpu.plan(graph, gate), copied(args)) for gate in (Gate(), Gate(OFF)))
    check(one, other, rtol=0, atol=0)
