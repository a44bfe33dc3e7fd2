"""Inputs that are written to: by the kernel itself where nobody can notice, by a copy otherwise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from loop_harness import check, copied, lowered, planned, program

import tc
from tc.compiler.core.gate import Gate
from tc.compiler.loops.ir import CopyInto
from tc.compiler.runtime.load import load
from tc.compiler.schedule.interpret import interpret as interpret_plan
from tc.compiler.schedule.plan import BumpVersions

T = torch.Tensor


def r(*shape: int) -> T:
    return torch.randn(shape)


def both(fn: Callable[..., Any], *args: Any) -> tuple[int, int]:
    """Compare with eager, inputs included; return how many are written in place, and copied to."""
    graph = lowered(torch.func.functionalize(fn), copied(args))
    plan = planned(graph)
    want = copied(args)
    results = fn(*want)
    for call in (load(program(graph)), lambda given: interpret_plan(plan, given)):
        mine = copied(args)
        versions = [t._version for t in mine]
        check(call(list(mine)), results)
        for got, wanted, given, before in zip(mine, want, args, versions, strict=True):
            torch.testing.assert_close(got, wanted)
            assert (got._version > before) == (not torch.equal(wanted, given))
    in_place = sum(len(step.names) for step in plan.steps if isinstance(step, BumpVersions))
    return in_place, sum(isinstance(step, CopyInto) for step in plan.steps)


def test_a_kernel_writes_to_what_it_read() -> None:
    def step(p: T, g: T, m: T) -> tuple[()]:
        m.mul_(0.5).add_(g)
        p.sub_(m * 2)
        return ()

    assert both(step, r(5, 7), r(5, 7), r(5, 7)) == (2, 0)


def test_all_is_read_before_anything_is_written() -> None:
    def swap(a: T, b: T) -> tuple[()]:
        old = a.clone()
        a.copy_(b * 2 + a)
        b.copy_(old + b)
        return ()

    both(swap, r(33), r(33))


def transposed(p: T) -> tuple[()]:
    p.add_(p.t().clone())
    return ()


def read_later(p: T) -> tuple[T]:
    old = p * 2
    p.add_(1)
    return (old.sum(0) + p.sum(0) * old.sum(),)


def returned(p: T) -> tuple[T]:
    p.mul_(2)
    return (p,)


def of_a_part(p: T) -> tuple[()]:
    p[1:].mul_(2)
    return ()


def then_fails(p: T, i: T) -> tuple[T]:
    p.mul_(2)
    return (p.sin()[i.abs().clamp(max=2).long()],)


def overwritten(p: T, g: T) -> tuple[()]:
    p.copy_(g)
    return ()


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("fn", "inputs"),
    [
        (transposed, 1), (read_later, 1), (returned, 1), (of_a_part, 1), (then_fails, 2),
        (overwritten, 2),
    ],
)  # fmt: skip
def test_what_could_be_observed_is_copied(fn: Callable[..., Any], inputs: int) -> None:
    assert both(fn, *(r(4, 4) for _ in range(inputs))) == (0, 1)


def test_the_gate_leaves_the_copies() -> None:
    graph = lowered(torch.func.functionalize(lambda p, g: (p.sub_(g), ())[1]), (r(9), r(9)))
    plan = planned(graph, Gate({"schedule.in_place": 0}))
    assert not any(isinstance(step, BumpVersions) for step in plan.steps)
    assert any(isinstance(step, CopyInto) for step in plan.steps)


def test_inputs_that_share_memory_are_written_as_eager_does() -> None:
    def fn(a: T, b: T) -> None:
        b.mul_(2)
        a.copy_(a + b)

    compiled = tc.compile(fn)
    for start in (8, 4, 0):
        mine, theirs = (torch.arange(16.0) for _ in range(2))
        compiled(mine[:8], mine[start : start + 8])
        fn(theirs[:8], theirs[start : start + 8])
        assert torch.equal(mine, theirs)


def test_autograd_sees_what_a_kernel_wrote() -> None:
    @tc.compile
    def write(p: T) -> None:
        p.mul_(2)

    p, w = torch.ones(5), torch.ones(5, requires_grad=True)
    y = (p * w).sum()
    with torch.no_grad():
        write(p)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.1, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, 0.1, foreach=False),
    "foreach": lambda p: torch.optim.Adam(p, 0.1, foreach=True, amsgrad=True),
    "adamw": lambda p: torch.optim.AdamW(p, 0.1),
    "rmsprop": lambda p: torch.optim.RMSprop(p, 0.1, momentum=0.5, centered=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, 0.1),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(name: str) -> None:
    starts = [r(6, 5), r(7), r(1, 3).t()]
    gradients = [[torch.randn_like(p) for p in starts] for _ in range(4)]
    found = []
    for compiled in (True, False):
        parameters = [torch.nn.Parameter(p.clone()) for p in starts]
        optimizer = OPTIMIZERS[name](parameters)
        step = tc.compile(optimizer.step) if compiled else optimizer.step
        for each in gradients:
            for p, g in zip(parameters, each, strict=True):
                p.grad = g.clone()
            step()
        found.append([*parameters, *(p.grad for p in parameters), optimizer.state_dict()["state"]])
    torch.testing.assert_close(found[0], found[1])
