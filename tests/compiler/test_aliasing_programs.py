"""Random programs of views, writes and returns over aliased inputs, compiled whole, do as eager.

A program is a function's source made from a number, so that a failing one is run again by it.
"""

from __future__ import annotations

import random
from itertools import product

import pytest
import torch

import tc

VIEWS = (
    "{v}.t() if {v}.dim() == 2 else {v}.unsqueeze(0)",
    "{v}[0] if {v}.dim() else {v}.view(1)",
    "{v}[1:] if {v}.dim() else {v}",
    "{v}[..., ::2] if {v}.dim() else {v}",
    "{v}.view(-1) if {v}.is_contiguous() else {v}.reshape(-1)",
    "{v}.unsqueeze(-1)",
    "{v}.squeeze()",
    "{v}.chunk(2)[0] if {v}.dim() else {v}",
    "{v}.unbind(0)[-1] if {v}.dim() and {v}.shape[0] else {v}",
    "{v}.detach()",
    "{v}.diagonal() if {v}.dim() == 2 else {v}",
    "{v}.expand(2, *{v}.shape)",
    "{v}.view_as({v})",
    "{v}",
)
NEW = (
    "{v} * 2 + {w}.sum()",
    "{v}.sin()",
    "{v}.clone()",
    "{v}.contiguous()",
    "{v}.sum(0, keepdim=True) if {v}.dim() else {v} * 2",
    "({v} > 0).to({v}.dtype) * {w}.mean()",
    "torch.zeros_like({v})",
    "torch.relu({v})",
)
WRITES = (
    "{v}.add_(1)",
    "{v}.mul_({w}.mean())",
    "{v}.zero_()",
    "{v}.copy_({w}.sum().expand({v}.shape))",
    "{v}.clamp_(min=-0.3)",
    "{v}.masked_fill_({v} > 0, 0.5)",
    "{v}[...] = 2.0",
    "{v}.sigmoid_()",
    "torch.sub({w}.mean(), {v}.detach() * 2, out={v}.detach())",
    "{v}.detach().add_(0.1)",
    "{v}.data.mul_(1.5)",
)
INPUTS = ("leaf", "frozen", "inner", "transposed", "part", "again", "detached")


def make_source(seed):
    """Return a program's source, its inputs by kind, and which outputs are written and summed."""
    rng = random.Random(seed)
    kinds = [rng.choice(INPUTS) for _ in range(rng.randint(1, 3))]
    names, lines = [f"a{i}" for i in range(len(kinds))], []
    for number in range(rng.randint(1, 7)):
        v, w = rng.choice(names), rng.choice(names)
        kind = rng.choice("vvnnww")
        quiet = kind != "v" and rng.random() < 0.2  # eager refuses writes to views made quietly
        indent = "    "
        if quiet:
            lines.append("    with torch.no_grad():")
            indent += "    "
        if kind == "w":
            lines.append(indent + rng.choice(WRITES).format(v=v, w=w))
            continue
        expression = rng.choice(VIEWS if kind == "v" else NEW).format(v=v, w=w)
        lines.append(f"{indent}b{number} = {expression}")
        names.append(f"b{number}")
    returned = [rng.choice(names) for _ in range(rng.randint(1, 4))]
    head = f"def program({', '.join(names[: len(kinds)])}):"
    text = "\n".join([head, *lines, f"    return ({', '.join(returned)},)"])
    return (
        text,
        kinds,
        [rng.random() < 0.3 for _ in returned],
        [rng.random() < 0.7 for _ in returned],
    )


def make_inputs(kinds):
    """Return inputs, some of which are the same or share memory, and the leaves behind them."""
    generator = torch.Generator().manual_seed(7)
    leaf = torch.randn(4, 4, generator=generator, requires_grad=True)
    inner = torch.randn(4, 4, generator=generator, requires_grad=True)
    made = inner * 1
    frozen = torch.randn(4, 4, generator=generator)
    found = {
        "leaf": leaf, "frozen": frozen, "inner": made, "transposed": made.t(),
        "part": frozen[1:, :3], "again": frozen.t(), "detached": leaf.detach(),
    }  # fmt: skip
    return [found[kind] for kind in kinds], [leaf, inner]


def run(function, kinds, written, summed):
    """Call, write to outputs, go backward; return all that can be seen after each of these."""
    args, leaves = make_inputs(kinds)
    seen = []
    try:
        outputs = function(*args)
        seen.append(look([*args, *outputs]))
        for out, write in zip(outputs, written, strict=True):
            if write and out.numel():
                out.mul_(1.25)
        seen.append(look([*args, *outputs]))
        total = 0
        for number, (out, chosen) in enumerate(zip(outputs, summed, strict=True)):
            if chosen and out.requires_grad:
                total = total + (out * (number + 1)).sum()
        if isinstance(total, torch.Tensor):
            found = torch.autograd.grad(total, leaves, allow_unused=True)
            # One node has the gradients of a graph: what it does not reach is zero there, not None.
            seen.append(
                [
                    torch.zeros_like(x) if g is None else g
                    for g, x in zip(found, leaves, strict=True)
                ]
            )
    except (RuntimeError, IndexError) as error:
        seen.append(type(error))
        if "modified by an inplace operation" in str(error):
            seen[-1] = KeptOutput
    return seen


class KeptOutput(Exception):
    """An output was written to that backward needs, if only for outputs that are not used."""


def look(values):
    relations = [
        (a is b, a.untyped_storage()._cdata == b.untyped_storage()._cdata)
        for a, b in product(values, values)
    ]
    facts = [(v.requires_grad, v.shape, v.stride(), v.dtype) for v in values]
    return [v.detach().clone() for v in values], relations, facts


def check(seed, backend):
    text, kinds, written, summed = make_source(seed)
    names = {"torch": torch}
    exec(compile(text, f"{__file__}.{seed}.py", "exec"), names)
    program = names["program"]
    want = run(program, kinds, written, summed)
    if want and isinstance(want[0], type):
        return  # eager refuses the program
    tc.reset()
    got = run(tc.compile(program, backend=backend), kinds, written, summed)
    note = f"program {seed} of {kinds}, written {written}, summed {summed}:\n{text}"
    if isinstance(want[-1], type):  # what eager refuses later, compiled code may do or refuse
        want.pop()
        got = [one for one in got if not isinstance(one, type)][: len(want)]
        want = want[: len(got)]
    if got and got[-1] is KeptOutput:
        return  # as torch.compile: the one node of a graph checks all that it kept
    assert len(got) == len(want), f"{note}\n{got[-1]} for {want[-1]}"
    for actual, theirs in zip(got, want, strict=True):
        same(actual, theirs, note)


def same(got, theirs, note):
    assert type(got) is type(theirs), f"{note}\n{got} for {theirs}"
    if isinstance(theirs, torch.Tensor):
        torch.testing.assert_close(got, theirs, equal_nan=True, msg=lambda m: f"{note}\n{m}")
    elif isinstance(theirs, (list, tuple)):
        assert len(got) == len(theirs), note
        for a, b in zip(got, theirs, strict=True):
            same(a, b, note)
    else:
        assert got == theirs, f"{note}\n{got} for {theirs}"


@pytest.mark.parametrize("seed", [402785, 612402, 3003253])
def test_programs_that_were_wrong(seed):
    check(seed, "aot_eager")


def test_some():
    start = random.SystemRandom().randrange(10**6)
    for seed in range(start, start + 20):
        check(seed, "aot_eager")


@pytest.mark.slow
@pytest.mark.parametrize("start", range(0, 5000, 500))
def test_many(start):
    for seed in range(start, start + 500):
        check(seed, "aot_eager")


@pytest.mark.slow
@pytest.mark.parametrize("start", range(5000, 5500, 100))
def test_kernels(start):
    for seed in range(start, start + 100):
        check(seed, "inductor")
