"""Modes of the program, which the compiler keeps from itself while it compiles."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

import tc
from tc import trace


class PassesOn(TorchDispatchMode):
    """Does nothing."""

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return function(*args, **(kwargs or {}))


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    tc.reset()
    yield
    tc.reset()


MODES: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "any": PassesOn,
    "flops": lambda: FlopCounterMode(display=False),
}


@pytest.mark.parametrize("name", MODES)
@pytest.mark.parametrize("first", ["inside", "outside"])
def test_calls_under_a_dispatch_mode_have_one_compile_of_their_own(name: str, first: str) -> None:
    w, x = torch.randn(4, 4, requires_grad=True), torch.randn(3, 4)
    compiled = tc.compile(lambda x: torch.sin(x @ w).sum(), backend="eager")
    with trace.capture_events() as events:
        for inside in (first == "inside", first != "inside") * 3:
            if inside:
                with MODES[name]():
                    compiled(x)
            else:
                compiled(x)
    assert len(list(events.of(trace.FrameStart))) == 2


def test_arrays_are_compared_under_a_dispatch_mode() -> None:
    seen: list[Any] = []

    class Notes(TorchDispatchMode):
        def __torch_dispatch__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen.append(function)
            return function(*args, **(kwargs or {}))

    compiled = tc.compile(lambda x, a: (x * 2, a.sum()), backend="eager")
    for _ in range(3):
        seen.clear()
        with Notes():
            found = compiled(torch.ones(3), np.arange(3))
        assert torch.equal(found[0], torch.full((3,), 2.0)) and found[1] == 3
        assert seen.count(torch.ops.aten.lift_fresh.default) == 0
