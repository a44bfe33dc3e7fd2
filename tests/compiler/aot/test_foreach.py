"""Ops over lists of tensors are taken apart, and steps of optimizers do what eager's do."""

from __future__ import annotations

import pytest
import torch
from aot_harness import check

import tc
from tc.compiler.aot.foreach import foreach_rows

ROWS = foreach_rows()


def value_of(argument):
    kind = str(argument.type)
    if kind == "List[Tensor]":
        return [torch.rand(2, 3) / 2 + 0.25, torch.rand(4) / 2 + 0.25]
    if kind == "List[number]":
        return [0.5, 2.0]
    if kind == "Tensor":
        return torch.tensor(0.75)
    return 2.0 if kind == "number" else None


@pytest.mark.sample(24)
@pytest.mark.parametrize("op", list(ROWS), ids=str)
def test_rows_against_eager(op):
    torch.manual_seed(0)
    args = [value_of(a) for a in op._schema.arguments if not a.has_default_value()]
    for got, eager in zip(ROWS[op](*args), op(*args), strict=True):
        torch.testing.assert_close(got, eager)


def test_most_ops_have_a_row():
    assert len(ROWS) > 60


def sgd(p1, p2, g1, g2):
    torch._foreach_add_([p1, p2], [g1, g2], alpha=-0.1)


def adam(p1, p2, g1, g2, m1, m2, v1, v2):
    params, grads, ms, vs = [p1, p2], [g1, g2], [m1, m2], [v1, v2]
    torch._foreach_lerp_(ms, grads, 0.1)
    torch._foreach_mul_(vs, 0.99)
    torch._foreach_addcmul_(vs, grads, grads, 0.01)
    scale = torch._foreach_sqrt(vs)
    torch._foreach_add_(scale, 1e-8)
    torch._foreach_addcdiv_(params, ms, scale, -0.01)


def adam_one(p, g, m, v):
    m.lerp_(g, 0.1)
    v.mul_(0.99).addcmul_(g, g, value=0.01)
    p.addcdiv_(m, v.sqrt().add_(1e-8), value=-0.01)


@pytest.mark.parametrize(("step", "count"), [(sgd, 4), (adam, 8), (adam_one, 4)])
def test_optimizer_steps(step, count):
    def function(*args):
        step(*args)
        return args[0]

    args = tuple(torch.rand(2, 3) for _ in range(count))
    graph = check(function, args)
    assert "foreach" not in str(graph)


def test_order_of_writes_to_several_inputs():
    def swap(a, b):
        old = a.clone()
        a.copy_(b)
        b.copy_(old)

    check(lambda a, b: (swap(a, b), a + b)[1], (torch.zeros(3), torch.ones(3)))


def twice(x):
    torch._foreach_mul_([x, x], [x, x])


def windows(x):
    torch._foreach_add_([x[:2], x[1:]], 1)


def crossed(x):
    torch._foreach_mul_([x[:2], x[2:]], [x[2:], x[:2]])


def number_of_the_same_memory(x):
    one = x[0]
    torch._foreach_mul_([one, x[1:]], one)


@pytest.mark.parametrize("program", [twice, windows, crossed, number_of_the_same_memory])
def test_a_list_sees_what_was_written_through_its_earlier_places(program):
    want, got = torch.arange(4.0) + 2, torch.arange(4.0) + 2
    program(want)
    tc.compile(program)(got)
    assert torch.equal(got, want)
