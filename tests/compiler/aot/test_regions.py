"""Checkpointed regions are computed again in backward, with eager's gradients."""

from __future__ import annotations

import functools
import random as random_numbers

import pytest
import torch
import torch.nn.functional as F
from aot_harness import training_of
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

import tc
from tc.compiler.core.gate import Gate

aten = torch.ops.aten
region = functools.partial(checkpoint, use_reentrant=False)


def p(*shape):
    return torch.randn(*shape, dtype=torch.float64).requires_grad_()


def block(x, w):
    return torch.tanh(torch.tanh(x @ w) @ w)


def with_dropout(x, w):
    return F.dropout(torch.tanh(x @ w), 0.5) @ w


def two_regions(x, w):
    x = region(block, x, w)
    return region(block, x, w).sum()


def chain(x, w):
    for _ in range(4):
        x = x + region(block, x, w)
    return x.sum()


def skip(x, w):
    y = region(block, x, w)
    return (y * region(block, y, w)).sum()


def nested(x, w):
    return region(lambda x, w: block(region(block, x, w), w), x, w).sum()


def random(x, w):
    return region(with_dropout, region(with_dropout, x, w), w).sum()


def reentrant(x, w):
    return checkpoint(with_dropout, x, w, use_reentrant=True).sum()


def view_out(x, w):
    return (region(lambda x, w: block(x, w).t(), x, w) @ x).sum()


def two_outputs(x, w):
    a, b = region(lambda x, w: (block(x, w), x.exp()), x, w)
    return (a @ b).sin().sum()


def written_inside(x, w):
    def body(x, w):
        y = x @ w
        y.add_(1).tanh_()
        return y @ w

    return region(body, x, w).sum()


def its_input(x, w):
    a, b = region(lambda x, w: (x, block(x, w)), x, w)
    return (a * b).sum()


def norms(x, w):
    return region(lambda x, w: F.layer_norm(F.gelu(x @ w), (4,)), x, w).pow(2).sum()


def in_another_order(x, w):
    first, second = region(block, x, w), region(block, x.sin(), w)
    return (second.exp() * first).sum()


def any_length(x, w):
    h = F.layer_norm(F.dropout(F.gelu(x @ w), 0.2), (4,), w[0], w[1])
    return (random(h, w) * h.sin()).sum() * len(x)


PROGRAMS = [
    two_regions, chain, skip, nested, random, reentrant, view_out, two_outputs, written_inside,
    its_input, norms, in_another_order, any_length,
]  # fmt: skip


@pytest.mark.sample(2)
@pytest.mark.parametrize("backend", ["inductor", "aot_eager"])
@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_gradients(function, backend):
    check_gradients(function, backend, p(4, 4), p(4, 4))


def check_gradients(function, backend, x, w):
    """Compare a function's result and gradients with eager's."""
    results = []
    for call in (function, tc.compile(function, backend=backend, fullgraph=True)):
        x.grad = w.grad = None
        torch.manual_seed(3)
        loss = call(x, w)
        loss.backward()
        results.append((loss.detach(), x.grad, w.grad))
    torch.testing.assert_close(results[1], results[0])


def test_any_number_of_rows():
    compiled = tc.compile(any_length, dynamic=True, fullgraph=True)
    for rows in (3, 5, 4):
        w, found = p(4, 4), []
        x = p(rows, 4)
        for call in (any_length, compiled):
            torch.manual_seed(3)
            found.append(torch.autograd.grad(call(x, w), (x, w)))
        torch.testing.assert_close(found[1], found[0])


def partition_of(function, *args, gate=None):
    """Return how a function is cut in forward and backward."""
    return training_of(function, *args, gate=gate).partition


def kept(partition):
    return {saved.name for saved in partition.saved if saved.kind != "input"}


def test_only_what_leaves_a_region_is_kept():
    partition = partition_of(two_regions, p(4, 4), p(4, 4))
    assert kept(partition) == {"tanh_1"}
    again = [value.name for value in partition.recomputed]
    assert {"mm", "tanh", "mm_2", "tanh_2"} <= set(again)
    assert again.index("mm_2") < again.index("mm")  # each when its turn comes


def test_a_region_without_use_for_its_result_keeps_nothing():
    assert kept(partition_of(nested, p(4, 4), p(4, 4))) == set()


def test_random_draws_are_kept():
    partition = partition_of(random, p(4, 4), p(4, 4))
    masks = [saved for saved in partition.saved if saved.type == "b8[4, 4]"]
    assert len(masks) == 2
    assert not any("dropout" in value.op for value in partition.recomputed)


def test_regions_hold_where_nothing_else_is_computed_again():
    partition = partition_of(two_regions, p(4, 4), p(4, 4), gate=Gate({"aot.recompute": 0}))
    assert kept(partition) == {"tanh_1"}


def test_the_gate_refuses_regions():
    partition = partition_of(two_regions, p(4, 4), p(4, 4), gate=Gate({"aot": 1}))
    assert not partition.recomputed


def save_products(context, op, *args, **kwargs):
    if op is aten.mm.default:
        return CheckpointPolicy.MUST_SAVE
    return CheckpointPolicy.PREFER_RECOMPUTE


@pytest.mark.parametrize("chosen", [save_products, [aten.mm.default]], ids=["function", "list"])
def test_a_policy_keeps_what_it_names(chosen):
    contexts = functools.partial(create_selective_checkpoint_contexts, chosen)

    def function(x, w):
        return region(block, x, w, context_fn=contexts).sum()

    args = p(4, 4), p(4, 4)
    partition = partition_of(function, *args)
    assert kept(partition) == {"mm", "mm_1"}
    reasons = {s.reason for s in partition.saved if s.name in ("mm", "mm_1")}
    assert reasons == {"the checkpoint's policy keeps it"}
    got = tc.compile(function, fullgraph=True)(*args)
    wanted = torch.autograd.grad(block(*args).sum(), args)
    torch.testing.assert_close(torch.autograd.grad(got, args), wanted)


def test_inner_lines_are_known():
    partition = partition_of(two_regions, p(4, 4), p(4, 4))
    line = block.__code__.co_firstlineno + 1
    assert {value.line for value in partition.recomputed} == {f"{__file__}:{line}"}


OPS = [
    torch.sin, torch.sigmoid, F.gelu, lambda x: x @ x / 4, lambda x: x.softmax(-1),
    lambda x: x - x.mean(0), lambda x: F.layer_norm(x, (8,)), lambda x: F.dropout(x, 0.5),
    lambda x: x.t(), lambda x: torch.cat([x[2:], x[:2]]), lambda x: x.clone().mul_(2),
]  # fmt: skip


def part_of(dice):
    """Return a function of two squares that returns one or two, of operations by chance."""
    steps = [(dice.choice(OPS), dice.randrange(4), dice.random() < 0.5) for _ in range(4)]
    two = dice.random() < 0.5

    def part(*values):
        values = list(values)
        for op, which, times in steps:
            value = op(values[-1 - which % len(values)])
            values.append(value * values[-1] / 3 if times else value)
        return tuple(values[-2:]) if two else (values[-1],)

    return part


def program_of(seed):
    """Return a function of parts in a row, most of them checkpointed."""
    dice = random_numbers.Random(seed)
    parts = [(part_of(dice), dice.random() < 0.7, dice.randrange(4)) for _ in range(3)]

    def function(x, w):
        values = [x, w]
        for part, inside, which in parts:
            args = values[-1], values[-1 - which % len(values)]
            values += region(part, *args) if inside else part(*args)
        return sum((value * value).sum() for value in values)

    return function


@pytest.mark.sample(2)
@pytest.mark.parametrize("seed", range(12))
def test_any_regions(seed):
    check_gradients(program_of(seed), "aot_eager" if seed % 3 else "inductor", p(8, 8), p(8, 8))
