"""Kernels with a second version, for the length that short symbolic rows had at capture."""

from __future__ import annotations

import random

import pytest
import torch
import torch.nn.functional as F

import tc
from tc.compiler.core.gate import Gate
from tc.compiler.loops import index as ix
from tc.compiler.loops.expr import Expr, load
from tc.compiler.schedule.plan import Accumulate, Kernel, Let, Section, Store
from tc.compiler.schedule.versions import LONGEST, at_seen, with_version

ROWS, LENGTH = ix.size("s0"), ix.size("s1")
FLOAT = torch.float32
ROW, ALONG = ix.var("i0", ROWS), ix.var("r0", LENGTH)
FLAT = ROW * LENGTH + ALONG


def local(name):
    return Expr("local", (), FLOAT, (name,))


def normalised(again: bool) -> Kernel:
    """Return rows over their sums; elements are kept in the result, or in their own buffer."""
    kept = "out" if again else "buf"
    value = Expr("exp", (load("x", FLAT, FLOAT),), FLOAT)
    first = Section("inner", (Let("v", value), Store(kept, FLAT, local("v"))))
    total = Section("inner", (Accumulate("t", "sum", load(kept, FLAT, FLOAT), FLOAT),))
    part = Expr("div", (load(kept, FLAT, FLOAT), local("t")), FLOAT)
    last = Section("inner", (Store("out", FLAT, part),))
    return Kernel("k", (ROW,), (ALONG,), (first, total, last))


@pytest.mark.parametrize("again", [True, False])
def test_a_version_keeps_rows_in_scratch(again):
    hints = {"s0": 1000, "s1": 4}
    made = with_version(normalised(again), hints, Gate())
    assert made.seen == (("s1", 4),)
    version = at_seen(made)
    assert [str(ix.extent(v)) for v in version.loops()] == ["s0", "4"]
    assert [str(s.extent) for s in version.scratch] == ["4"]
    assert version.loaded == ("x",)
    assert version.stored == (("out",) if again else ("buf", "out"))


@pytest.mark.parametrize(
    ("hints", "gate"),
    [
        ({}, Gate()),
        ({"s0": 4}, Gate()),
        ({"s0": 9, "s1": LONGEST + 1}, Gate()),
        ({"s0": 9, "s1": 4}, Gate({"schedule.version": 1})),
    ],
)
def test_no_version(hints, gate):
    kernel = normalised(True)
    assert with_version(kernel, hints, gate) is kernel


BODIES = {
    "softmax": lambda x, y: F.softmax(x * y, -1),
    "log_softmax": lambda x, y: F.log_softmax(x + y, 0),
    "norm": lambda x, y: F.layer_norm(x, (x.shape[-1],)) * y,
    "sums": lambda x, y: (x.exp() * y).sum(-1) + x.amax(-1),
    "lanes": lambda x, y: (x * y).mean(0),
    "broadcast": lambda x, y: x.tanh() - x[:, :1] * y,
    "var": lambda x, y: torch.var_mean(x + y, -1)[0],
    "argmax": lambda x, y: (x - y).argmax(-1),
    "norms of both": lambda x, y: F.normalize(x, dim=-1) + F.normalize(y, dim=0),
    "scan": lambda x, y: (x.cumsum(-1) * y).sum(-1),
    "transposed": lambda x, y: x.t() * y.t().exp(),
    "gathered": lambda x, y: x.gather(1, y.abs().long() % x.shape[1]),
    "all": lambda x, y: x * y.sum() + x.sum(),
    "joined": lambda x, y: torch.cat([x, y], 1).softmax(-1),
}


@pytest.mark.sample(4)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("name", BODIES)
def test_both_versions_give_eager_results(name, dtype):
    dice = random.Random(f"{name} {dtype}")
    body = BODIES[name]
    tc.reset()
    compiled = tc.compile(body, dynamic=True)
    first = dice.randint(2, LONGEST // 2)
    for length in (first, dice.randint(2, 9), first, dice.randint(65, 90)):
        rows = dice.randint(2, 40)
        x, y = (torch.randn(rows, length).to(dtype) for _ in range(2))
        wanted, found = body(x, y), compiled(x, y)
        tolerance = {} if dtype in (torch.float32, torch.float64) else {"rtol": 2e-2, "atol": 2e-2}
        torch.testing.assert_close(found, wanted, **tolerance)


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", ["softmax", "norm", "norms of both"])
def test_gradients_of_both_versions(name):
    body = BODIES[name]
    compiled = tc.compile(body, dynamic=True)
    for length in (6, 3, 6, 70):
        given = [torch.randn(9, length, dtype=torch.float64, requires_grad=True) for _ in range(2)]
        found = torch.autograd.grad(compiled(*given).square().sum(), given)
        wanted = torch.autograd.grad(body(*given).square().sum(), given)
        torch.testing.assert_close(found, wanted)
