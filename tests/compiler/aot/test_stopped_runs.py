"""A run on fake inputs that stops between two nodes leaves modes of torch as they were."""

from __future__ import annotations

import contextlib

import pytest
import torch
from aot_harness import default_dtype
from torch.nn.attention import SDPBackend, sdpa_kernel

import tc
from tc.compiler.core.modes import MODES, Settings
from tc.trace import Artifact
from tc.trace.emit import capture_events


def nothing():
    return contextlib.nullcontext()


BLOCKS = {
    "no_grad": torch.no_grad,
    "set_grad_enabled": lambda: torch.set_grad_enabled(False),
    "inference_mode": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "autocast off": lambda: torch.autocast("cpu", enabled=False),
    "sdpa_kernel": lambda: sdpa_kernel(SDPBackend.MATH),
    "default_dtype": lambda: default_dtype(torch.float64),
}
AROUND = {"nothing": nothing, "no_grad": torch.no_grad, "autocast": BLOCKS["autocast"]}


def program(block):
    def run(x):
        x.masked_fill_(x > 0, 0.5)
        y = torch.relu(x)
        with block():
            z = y.contiguous()  # in the functional graph y is contiguous: the trace stops here
        return y, z + 1

    return run


def outcome(fn):
    leaf = torch.linspace(-1, 1, 16).reshape(4, 4).requires_grad_()
    x = (leaf * 1).t()
    y, product = fn(x)
    seen = [y.detach(), product.detach(), x.detach(), y.requires_grad, product.requires_grad]
    if y.requires_grad:
        seen += torch.autograd.grad(y.sum() + product.float().sum(), leaf)
    return [*seen, product.dtype]


@pytest.mark.sample(8)
@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_modes_after_a_trace_that_stops(backend, block, around):
    tc.reset()
    run = program(BLOCKS[block])
    with AROUND[around]():
        before = Settings()
        wanted = outcome(run)
        with capture_events() as events:
            found = outcome(tc.compile(run, backend=backend))
        assert list(before.changes()) == []
        assert not torch.is_inference_mode_enabled()
    for got, theirs in zip(found, wanted, strict=True):
        if isinstance(theirs, torch.Tensor):
            torch.testing.assert_close(got, theirs)
        else:
            assert got == theirs
    if around == "nothing" and block in ("no_grad", "inference_mode"):
        names = {event.name for event in events.of(Artifact)}
        assert "tc_graph_runs_eagerly" in names


def test_every_mode_is_set_back():
    settings = Settings()
    changed = {"grad": False, "default_dtype": torch.float64, "autocast.cpu": True}
    for name, value in changed.items():
        write, args = MODES[name].setting(value)
        write(*args)
    assert len(list(settings.changes())) == len(changed)
    settings.restore()
    assert list(settings.changes()) == []


def test_a_view_that_becomes_a_copy_does_not_miss_a_write():
    def late(x):
        x.add_(1)
        y = x[..., ::2]
        z = y.reshape(-1)  # a view of a window's rows, but not of a new tensor's
        z.add_(0.1)
        return y.contiguous(), y

    def early(x):
        x.add_(1)
        y = x[..., ::2]
        y.add_(0.1)
        return y.reshape(-1) * 2, y

    for fn in (late, early):
        got, theirs = (torch.arange(16.0).view(4, 4)[1:, :3] for _ in range(2))
        torch.testing.assert_close(tc.compile(fn, backend="aot_eager")(got), fn(theirs))
        torch.testing.assert_close(got, theirs)
