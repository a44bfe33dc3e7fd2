"""The memory that a plan says a step takes is what it takes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from itertools import accumulate
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

import tc
from tc import trace
from tc.compiler.library import routines
from tc.trace import capture_events
from tc.trace.memory import step_memory


@pytest.fixture(autouse=True)
def one_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products by the first way: a library that times would choose has scratch memory of its own.

    No plan knows of that, and which library is faster differs from run to run.
    """
    monkeypatch.setattr(routines, "_fastest", lambda *_: "aten")


def measured(step: Callable[[], Any]) -> int:
    """The most bytes of torch's allocator that are alive in a step at a time."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        kept = step()
    results: Any = profiled.profiler
    events = [e for e in results.kineto_results.events() if e.name() == "[memory]"]
    events.sort(key=lambda event: event.start_ns())
    del kept
    return max(accumulate(event.nbytes() for event in events))


def chain(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    h = torch.tanh(x @ w)
    return torch.softmax(h @ w.t(), -1)


def reused(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    for _ in range(4):
        x = torch.relu(x @ w @ w.t()) + 1
    return x.sum(0)


@pytest.mark.sample(2)
@pytest.mark.parametrize("function", [chain, reused])
@pytest.mark.parametrize("dynamic", [None, True])
def test_a_prediction_is_what_is_measured(function: Any, dynamic: bool | None) -> None:
    tc.reset()
    x, w = torch.randn(512, 128), torch.randn(128, 256)
    with torch.no_grad(), capture_events() as events:
        compiled = tc.compile(function, dynamic=dynamic)
        compiled(x, w)
        (plan,) = events.of(trace.MemoryPlan)
        report = step_memory([dataclasses.asdict(plan)])
        assert report.peak == pytest.approx(measured(lambda: compiled(x, w)), rel=0.02)
    assert sum(one.bytes for one in report.holders) == report.peak
    assert {one.line.rpartition(":")[0] for one in report.holders} == {__file__}


def test_a_training_step_is_both_its_graphs() -> None:
    tc.reset()
    x, w = torch.randn(512, 128), torch.randn(128, 256, requires_grad=True)
    with capture_events() as events:
        compiled = tc.compile(lambda x, w: chain(x, w).square().sum())

        def step() -> torch.Tensor:
            w.grad = None
            loss: torch.Tensor = compiled(x, w)
            loss.backward()  # type: ignore[no-untyped-call]
            return loss

        step()
        plans = [dataclasses.asdict(one) for one in events.of(trace.MemoryPlan)]
    assert [one["graph"] for one in plans] == ["forward", "backward"]
    w.grad = None
    assert step_memory(plans).peak == pytest.approx(measured(step), rel=0.05)
