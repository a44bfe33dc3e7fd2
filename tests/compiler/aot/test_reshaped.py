"""Tensors reshaped in place: what viewed them before has the values and gradients of eager.

A program is a function's source made from a number, so that a failing one is run again by it.
"""

from __future__ import annotations

import random

import pytest
import torch

import tc

VIEWS = (
    "{v}.t() if {v}.dim() < 3 else {v}[0]",
    "{v}[1] if {v}.dim() and {v}.shape[0] > 1 else {v}.unsqueeze(0)",
    "{v}[1:] if {v}.dim() else {v}.view(1)",
    "{v}[..., ::2] if {v}.dim() else {v}.view_as({v})",
    "{v}.view(-1) if {v}.is_contiguous() else {v}.unsqueeze(0)",
    "{v}.diagonal() if {v}.dim() == 2 else {v}.unsqueeze(-1)",
    "{v}.expand(2, *{v}.shape)",
    "{v}.detach()",
    "{v} * 3",
)
RESHAPES = (
    "{v}.t_() if {v}.dim() < 3 else {v}.transpose_(0, 2)",
    "{v}.unsqueeze_(0)",
    "{v}.squeeze_()",
    "{v}.swapaxes_(0, -1) if {v}.dim() else {v}.unsqueeze_(-1)",
    "torch.ops.aten.t_({v}) if {v}.dim() == 2 else {v}.squeeze_(0)",
    "torch.ops.aten.transpose_.default({v}, 0, 1) if {v}.dim() == 2 else {v}.unsqueeze_(0)",
)
WRITES = ("{v}.mul_(1.5)", "{v}.add_(r.sum())", "{v}.detach().add_(0.1)")


def make_source(seed):
    """Return a program that views, reshapes and writes to tensors that it makes."""
    rng = random.Random(seed)
    names, lines = ["r"], []
    for number in range(rng.randint(2, 7)):
        v = rng.choice(names)
        kind = rng.choice((VIEWS, VIEWS, RESHAPES, RESHAPES, WRITES))
        if kind is VIEWS:
            lines.append(f"v{number} = {rng.choice(kind).format(v=v)}")
            names.append(f"v{number}")
        else:
            same = rng.choice(("", "", f"v{number} = "))
            lines.append(same + rng.choice(kind).format(v=v))
            names += [f"v{number}"] if same else []
    returned = ", ".join(rng.choice(names) for _ in range(rng.randint(1, 3)))
    return "\n    ".join(["def program(q):", "r = q * 2", *lines, f"return ({returned},)"])


def run(program, requires_grad):
    """Call and go backward; return values, strides and the gradient, or the type of an error."""
    q = torch.arange(9.0).view(3, 3).requires_grad_(requires_grad)
    try:
        outputs = program(q)
        seen = [
            (out.tolist(), out.shape, steps(out), out is outputs[0], out.requires_grad)
            for out in outputs
        ]
        total = q.sum()
        for out in outputs:
            places = torch.arange(1.0, out.numel() + 1).view(out.shape)
            total = total + (out * places).sum()
        return [*seen, torch.autograd.grad(total, q)[0].tolist() if requires_grad else None]
    except (RuntimeError, IndexError) as error:
        return type(error)


def steps(out):
    """Return the strides of dimensions of more than one element."""
    return [step for size, step in zip(out.shape, out.stride(), strict=True) if size > 1]


def check(seed):
    text = make_source(seed)
    names = {"torch": torch}
    exec(compile(text, f"{__file__}.{seed}.py", "exec"), names)
    for requires_grad in (True, False):
        want = run(names["program"], requires_grad)
        tc.reset()
        got = run(tc.compile(names["program"], backend="aot_eager"), requires_grad)
        assert got == want or isinstance(want, type), f"{seed}, {requires_grad}:\n{text}"


def test_programs(drawn):
    start = random.SystemRandom().randrange(10**6)
    for seed in [*drawn([38, 63, 103, 540, *range(20)], 8), *range(start, start + 10)]:
        check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("start", range(0, 3000, 500))
def test_many_programs(start):
    for seed in range(start, start + 500):
        check(seed)


def reshaped_base(q):
    r = q * 2
    s = r[1]
    r.t_()
    return (s,)


def reshaped_then_written(q):
    r = q * 2
    s = r[1]
    same = r.mul_(2)
    same.squeeze_().swapaxes_(0, 1)
    s.mul_(3)
    return r, s, same


def grown(q):
    r = q.clone()
    s = r[1]
    r.unsqueeze_(0)
    return r, s


def detached_and_written(q):
    r = q * 2
    s = r.detach()
    flat = s.view(-1)
    s.add_(r.sum())
    part = flat[::2]
    part.mul_(1.5)
    return (part,)


def inside_of_a_checkpoint(q):
    def body(x):
        y = x * x
        z = y[0]
        y.t_()
        return y * z

    return (torch.utils.checkpoint.checkpoint(body, q * 2, use_reentrant=False),)


@pytest.mark.sample(4)
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize(
    "program",
    [reshaped_base, reshaped_then_written, grown, detached_and_written, inside_of_a_checkpoint],
)
def test_views_made_before(program, backend):
    for requires_grad in (True, False):
        want = run(program, requires_grad)
        compiled = tc.compile(program, backend=backend, fullgraph=True)
        assert run(compiled, requires_grad) == want
