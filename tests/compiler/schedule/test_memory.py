"""Memory is freed after its last use, and reuse never raises the peak."""

from __future__ import annotations

import random

import pytest
import torch
from loop_harness import check, copied, lowered, program

from tc.compiler import schedule
from tc.compiler.core.gate import Gate
from tc.compiler.loops.ir import Extern, Input
from tc.compiler.runtime.load import load
from tc.compiler.schedule.memory import read_later, size_in_bytes
from tc.compiler.schedule.plan import Allocate, Free, Plan


def peak(plan: Plan) -> int:
    """The most bytes a plan holds at a time."""
    sizes = {b.name: size_in_bytes(b) for b in plan.buffers}
    alive = {i.buffer.name: size_in_bytes(i.buffer) for i in plan.inputs if i.buffer}
    most = sum(alive.values())
    for step in plan.steps:
        if isinstance(step, Allocate):
            alive.pop(step.reuse, None)  # type: ignore[arg-type]
            alive[step.buffer.name] = sizes[step.buffer.name]
        elif isinstance(step, Extern):
            alive.update((b.name, sizes[b.name]) for b in step.results if b)
        elif isinstance(step, Free):
            for name in step.names:
                del alive[name]
        most = max(most, sum(alive.values()))
    return most


def random_program(seed: int):
    """Pointwise ops, products and sums over squares of two sizes, in an order of chance."""

    def fn(small: torch.Tensor, large: torch.Tensor) -> torch.Tensor:
        dice = random.Random(seed)
        values = [small, large]
        for _ in range(14):
            value = dice.choice(values[-5:])
            other = dice.choice([v for v in values if v.shape == value.shape])
            values.append(
                dice.choice(
                    [
                        lambda a=value, b=other: a @ b,
                        lambda a=value, b=other: (a + b).sin(),
                        lambda a=value: a.repeat(2, 2) if len(a) < 16 else a[:8, :8].exp(),
                        lambda a=value: a - a.sum(0),
                    ]
                )()
            )
        return values[-1] * 2

    return fn


@pytest.mark.sample(7)
@pytest.mark.parametrize("seed", range(25))
def test_reuse_never_raises_the_peak(seed: int) -> None:
    args = (torch.randn(8, 8) / 4, torch.randn(16, 16) / 4)
    graph = lowered(random_program(seed), args)
    reusing = schedule.plan(graph, Gate())
    without = schedule.plan(graph, Gate({"schedule.reuse": 1, "schedule.over_dead": 1}))
    reusing.verify()
    assert not any(isinstance(s, Allocate) and s.reuse for s in without.steps)
    assert peak(reusing) <= peak(without)


def test_a_large_dead_buffer_does_not_wait_for_long() -> None:
    def fn(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        small = (x.exp() @ w)[:4].sin()  # x.exp() is dead now
        wide = (small @ w).repeat(32, 1).sin() @ w  # and this is larger than all before
        return (wide[:64] @ w).cos() @ w

    args = (torch.randn(64, 64), torch.randn(64, 64) / 8)
    graph = lowered(fn, args)
    plan = schedule.plan(graph, Gate())
    assert peak(plan) == peak(schedule.plan(graph, Gate({"schedule.reuse": 1})))
    check(load(program(graph))(copied(args)), fn(*args))


def test_inputs_are_freed_after_their_last_use() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return ((x @ w).sin() @ w).cos() @ y, w

    args = (torch.randn(4, 4), torch.randn(4, 4), torch.randn(4, 4))
    plan = schedule.plan(lowered(fn, args), Gate())
    names = [i.name for i in plan.inputs if isinstance(i, Input)]
    freed = [name for step in plan.steps if isinstance(step, Free) for name in step.names]
    assert names[0] in freed  # long before the end
    assert names[1] not in freed  # the last step reads it
    assert names[2] not in freed  # it is returned
    check(load(program(lowered(fn, args)))(copied(args)), fn(*args))


def test_what_a_collective_reads_is_kept_until_it_is_waited_for() -> None:
    collective = torch.ops._c10d_functional

    def fn(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        whole = collective.all_gather_into_tensor(x.sin(), 2, "0")  # it may begin to read later
        y = ((x @ w).cos() @ w).tanh() @ w
        waited = collective.wait_tensor(whole)
        return waited[:16] @ y, (y.exp() @ w).sin()

    plan = schedule.plan(lowered(fn, (torch.randn(16, 16), torch.randn(16, 16))), Gate())
    steps = list(plan.steps)
    gather, wait = (
        next(at for at, step in enumerate(steps) if isinstance(step, Extern) and name in str(step))
        for name in ("all_gather", "wait_tensor")
    )
    [read] = read_later(steps[gather])
    reused = [at for at, s in enumerate(steps) if isinstance(s, Allocate) and s.reuse == read]
    freed = [at for at, s in enumerate(steps) if isinstance(s, Free) and read in s.names]
    assert min([*reused, *freed, len(steps)]) > wait > gather
