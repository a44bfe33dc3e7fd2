"""What the sentinel leaves on disk is a program that shows the same call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import tc
from tc import trace
from tc.compiler.options import config

SCALE = torch.arange(3.0) + 1


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TC_CACHE_DIR", str(tmp_path))
    tc.reset()
    with config.patch(sentinel=1, sentinel_bisect=False):
        yield


def wrong(gm: Any, inputs: Any) -> Any:
    return lambda *args: [value + 1 if isinstance(value, torch.Tensor) else value
                          for value in gm(*args)]  # fmt: skip


def written(program: Callable[..., Any], *arguments: Any, backward: bool = False) -> str:
    with trace.capture_events() as events:
        result = tc.compile(program, backend=wrong)(*arguments)
        if backward:
            result.sum().backward()
    (found,) = events.of(trace.SentinelDifference)
    assert found.repro, found.no_repro
    return found.repro


def conditional(x: Any) -> Any:
    return torch.cond(x.sum() > 0, lambda x: x.relu().sin(), lambda x: x.cos() + 1, (x,))


def writes(x: Any, y: Any) -> Any:
    y += 1
    x[0] = 2
    return x[1:] + y[:2]


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "plain": (lambda x: x.sin() @ x, (torch.randn(3, 3),)),
    "a constant": (lambda x: x * torch.tensor([1.0, 2.0, 3.0]) * SCALE, (torch.randn(3),)),
    "branches": (conditional, (torch.randn(3),)),
    "writes": (writes, (torch.randn(3), torch.randn(3))),
    "random": (lambda x: torch.nn.functional.dropout(x, 0.5), (torch.ones(20),)),
    "strides": (lambda x: x.sin(), (torch.randn(4, 6)[::2, ::3],)),
    "infinity": (lambda x: x.clamp(max=float("inf")).to(torch.float64), (torch.randn(3),)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_repro_runs_and_compares_the_same_call(name: str) -> None:
    program, arguments = PROGRAMS[name]
    path = Path(written(program, *arguments))
    text = path.read_text().replace("BACKEND_OF_YOURS(graph)", "BACKEND(graph)")
    names: dict[str, Any] = {"__file__": str(path), "BACKEND": lambda graph: graph}
    with config.patch(sentinel=0):
        exec(compile(text, str(path), "exec"), names)  # right, and so silent
        names["BACKEND"] = lambda graph: (
            lambda *args: [
                value + 1 if isinstance(value, torch.Tensor) else value for value in graph(*args)
            ]
        )
        with pytest.raises(AssertionError):
            exec(compile(text, str(path), "exec"), names)


class Tripled(torch.autograd.Function):
    """A gradient of three in place of two."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2

    @staticmethod
    def backward(ctx: Any, *tangents: Any) -> Any:
        return tangents[0] * 3


def test_a_repro_of_gradients_compares_gradients() -> None:
    x = torch.randn(3, requires_grad=True)
    with trace.capture_events() as events:
        backend: Any = lambda gm, inputs: lambda x: (Tripled.apply(x),)  # noqa: E731
        tc.compile(lambda x: x * 2, backend=backend)(x).sum().backward()
    (found,) = events.of(trace.SentinelDifference)
    assert found.gradients
    text = Path(found.repro).read_text().replace("BACKEND_OF_YOURS(graph)", "BACKEND(graph)")
    names: dict[str, Any] = {"__file__": found.repro, "BACKEND": lambda graph: graph}
    exec(text, names)
    names["BACKEND"] = lambda graph: lambda x: (Tripled.apply(x),)
    with pytest.raises(AssertionError):
        exec(text, names)


def test_a_repro_says_how_it_was_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault of the compiler itself: tanh computes a sine."""
    from tc.compiler.loops.lower.registry import LOWERINGS

    aten = torch.ops.aten
    monkeypatch.setitem(LOWERINGS._rows, aten.tanh.default, LOWERINGS[aten.sin.default])
    with trace.capture_events() as events:
        compiled = tc.compile(lambda x: x.tanh() * 2, dynamic=True, options={"cpp.threads": 1})
        compiled(torch.randn(5))
    (found,) = events.of(trace.SentinelDifference)
    text = Path(found.repro).read_text()
    assert "tc.compile(graph, options={'cpp.threads': 1}, dynamic=True)" in text
    assert f"test_repro.py:{found.line}" in text
    assert found.command == f"tc-bisect {found.repro}"
    assert found.repeats == "3 of 3"
