"""Results are written over operands that nobody reads afterwards, and over no others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from loop_harness import check, copied, lowered, planned, program, trace

from tc.compiler.core.gate import Gate
from tc.compiler.loops.lower.graph import lower
from tc.compiler.runtime.load import load
from tc.compiler.schedule.interpret import interpret as interpret_plan

T = torch.Tensor


def r(*shape: int) -> T:
    return torch.randn(shape)


def written_over(fn: Callable[..., Any], *args: Any, gate: Gate | None = None) -> int:
    """Compare with eager; return how many results are written over operands."""
    graph = lowered(fn, args)
    plan = planned(graph, gate)
    want = fn(*args)
    for call in (load(program(graph)), lambda given: interpret_plan(plan, given)):
        mine = copied(args)
        check(call(list(mine)), want, atol=1e-5, rtol=1e-4)
        for got, given in zip(mine, args, strict=True):
            assert torch.equal(got, given)
    return sum(d.kind == "over_dead" for d in plan.decisions)


WRITTEN: dict[str, tuple[Callable[..., Any], tuple[T, ...]]] = {
    "product": (lambda a, b: F.gelu(a @ b), (r(6, 5), r(5, 7))),
    "addmm": (lambda a, b, c: torch.addmm(c, a, b).relu(), (r(6, 5), r(5, 7), r(7))),
    "batched": (
        lambda a, b, c: torch.bmm(a, b) * c[:, :1] + c,
        (r(2, 4, 5), r(2, 5, 4), r(2, 4, 4)),
    ),
    "convolution": (
        lambda x, w: F.conv2d(x, w, groups=4).clamp(0, 6),
        (r(2, 4, 9, 9), r(4, 1, 3, 3)),
    ),
    "two products": (lambda a, b: (a @ b).relu() * (b @ a).exp(), (r(5, 5), r(5, 5))),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", WRITTEN)
def test_a_product_is_written_over(name: str) -> None:
    fn, args = WRITTEN[name]
    assert written_over(fn, *args) == 1


def products(a: T, b: T) -> tuple[T, ...]:
    c = a @ b
    return c, c.relu()


KEPT: dict[str, tuple[Callable[..., Any], tuple[T, ...]]] = {
    "returned too": (products, (r(5, 5), r(5, 5))),
    "read again by a product": (lambda a, b: (c := a @ b).relu() @ (c @ b), (r(5, 5), r(5, 5))),
    "read elsewhere": (lambda a, b: (c := a @ b) + c.t(), (r(5, 5), r(5, 5))),
    "read in rows": (lambda a, b: F.softmax(a @ b, -1), (r(5, 5), r(5, 5))),
    "another shape": (lambda a, b: (a @ b)[:, :3] * 2, (r(5, 5), r(5, 5))),
    "another type": (lambda a, b: (a @ b).double(), (r(5, 5), r(5, 5))),
    "an input": (lambda a, b: a + b, (r(5, 5), r(5, 5))),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", KEPT)
def test_what_is_read_otherwise_is_not(name: str) -> None:
    fn, args = KEPT[name]
    assert written_over(fn, *args) == 0


def test_an_op_of_unsure_layout_is_still_checked() -> None:
    source = program(lowered(*WRITTEN["convolution"])).wrapper_source
    assert "pinned(buf0" in source and "empty_strided" not in source.partition("def call")[2]


def test_the_choice_can_be_refused() -> None:
    fn, args = WRITTEN["product"]
    graph = lower(trace(fn, args), Gate())
    plan = planned(graph, Gate(refuse_from={"schedule.over_dead": 1}))
    assert not [d for d in plan.decisions if d.kind == "over_dead"]


def exponentials(x: T) -> T:
    return (x - x.amax(0)).exp()


def by_hand(x: T) -> T:
    e = exponentials(x)
    return e / e.sum(0)


def read_elsewhere(x: T) -> T:
    e = exponentials(x)
    return e / e.sum(0) * e.flip(1)


def read_again(x: T) -> tuple[T, T]:
    e = exponentials(x)
    y = e / e.sum(0)
    return y, e / y.amax(0)


def scattered_over(x: T, at: T) -> tuple[T, T]:
    return x * 2, x.index_put((at,), x[0], accumulate=True)


#: functions, arguments, and how many results are written over a temporary of their own kernel
TEMPORARIES: dict[str, tuple[Callable[..., Any], tuple[T, ...], int]] = {
    "columns": (lambda x: F.softmax(x, 0), (r(5, 40),), 1),
    "many columns": (lambda x: F.softmax(x, 0), (r(3, 700),), 1),
    "in batches": (lambda x: F.softmax(x, 1), (r(2, 5, 40),), 1),
    "double": (lambda x: F.softmax(x, 0), (r(5, 40).double(),), 1),
    "with an operand": (lambda x, y: F.softmax(x, 0) * y + y.flip(0), (r(5, 40), r(5, 40)), 1),
    "by hand": (by_hand, (r(5, 40),), 1),
    "cumulative": (lambda x: F.softmax(x, 0).cumsum(0), (r(5, 40),), 1),
    "two results": (lambda x: (F.softmax(x, 0), F.log_softmax(x, 0)), (r(5, 40),), 1),
    "long rows": (lambda x: F.softmax(x, 1), (r(3, 20_000),), 1),
    "read elsewhere": (read_elsewhere, (r(5, 40),), 0),
    "read again": (read_again, (r(5, 40),), 0),
    "scattered into": (scattered_over, (r(5, 40), torch.tensor([0, 2, 2])), 0),
    "returned too": (lambda x: ((e := exponentials(x)), e / e.sum(0)), (r(5, 40),), 0),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", TEMPORARIES)
def test_a_temporary_of_one_kernel_is_written_over(name: str) -> None:
    fn, args, count = TEMPORARIES[name]
    assert written_over(fn, *args) == count
