"""Calls timed against eager leave a program as it is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

import tc
from tc import trace
from tc.compiler.sentinel.pace import is_timed
from tc.compiler.telemetry.counters import emit_counts
from tc.compiler.telemetry.profile import OFTEN, is_sampled
from tc.trace import capture_events


@pytest.fixture(autouse=True)
def asked() -> Iterator[None]:
    tc.reset()
    with tc.config.patch(profile_eager=True):
        yield
    tc.reset()


def last(events: Any) -> trace.ProgramTime:
    emit_counts()
    found: trace.Profile = events.of(trace.Profile)[-1]
    return found.programs[0]


def test_no_call_is_timed_twice_over() -> None:
    timed = [n for n in range(1, 2000) if is_timed(n)]
    assert timed == [3, 5, 9, 17, 33, 65, 129, 257, 513, 1025, 1537]
    assert not any(is_sampled(n) or is_sampled(n, OFTEN) for n in timed)


def test_results_writes_and_random_numbers_stay() -> None:
    def f(x: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        state.add_(1)
        return torch.nn.functional.dropout(torch.tanh(x), 0.5) + state

    def run(step: Any) -> tuple[list[torch.Tensor], torch.Tensor, torch.Tensor]:
        torch.manual_seed(0)
        x, state = torch.randn(64, 64), torch.zeros(64, 64)
        return [step(x, state) for _ in range(12)], state, torch.rand(3)

    with capture_events() as events:
        found, wanted = run(tc.compile(f)), run(f)
        program = last(events)
    torch.testing.assert_close(found, wanted)
    assert program.eager > 0 and program.instead > 0


def test_gradients_stay() -> None:
    w = torch.ones(8, 8, requires_grad=True)
    with capture_events() as events:
        step = tc.compile(lambda x: torch.tanh(x @ w).sum())
        for _ in range(10):
            w.grad = None
            step(torch.ones(4, 8)).backward()
        emit_counts()
        programs = events.of(trace.Profile)[-1].programs
    (forward,) = (one for one in programs if one.graph == "forward")
    assert w.grad is not None
    other = w.detach().clone().requires_grad_()
    torch.tanh(torch.ones(4, 8) @ other).sum().backward()  # type: ignore[no-untyped-call]
    torch.testing.assert_close(w.grad, other.grad)
    assert forward.eager > 0


def test_what_fails_in_eager_or_cannot_be_copied_runs_once() -> None:
    calls: list[int] = []

    class Counted(torch.Tensor):
        """A subclass, of which no copy is made."""

    with capture_events() as events:

        def backend(gm: Any, _: Any) -> Any:
            return lambda *given: (calls.append(1), gm(*given))[1]

        step = tc.compile(lambda x: x + 1, backend=backend)
        for _ in range(6):
            step(torch.ones(3).as_subclass(Counted))
        emit_counts()
    assert len(calls) == 6
    assert not events.of(trace.Profile)


def test_nobody_listens_and_nothing_is_timed() -> None:
    step = tc.compile(torch.sin)
    torch.testing.assert_close(step(torch.ones(3)), torch.ones(3).sin())
