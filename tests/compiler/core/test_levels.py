"""Modes of the program, which the compiler keeps from itself while it compiles."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

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
