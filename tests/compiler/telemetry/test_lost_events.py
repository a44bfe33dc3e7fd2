"""Where an event cannot be made, the trace lacks it, and the program does not notice."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

import tc
from tc import trace
from tc.trace.all_events import EVENTS, FILES


def _made() -> list[type]:
    """Return all that events are made of."""
    return [
        one
        for file in FILES
        for name, one in sorted(vars(file).items())
        if inspect.isclass(one) and is_dataclass(one) and one.__module__ == file.__name__
        if name != "Span"  # `emit` itself makes marks on the timeline
    ]


def _program(x: torch.Tensor, times: int) -> torch.Tensor:
    """Break its graph, be compiled again for another number, and want gradients."""
    y = torch.relu(x.sin() * times)
    if y.sum() > 100:
        y = y + 1
    return (y @ y).exp()


@pytest.mark.sample(10)
@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("kind", _made(), ids=lambda kind: kind.__name__)
def test_a_program_is_compiled_without_an_event(
    kind: Any, cached: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["tc.trace.emit"], "report_loss", lambda name, error: None)

    def refuse(*args: object, **kwargs: object) -> None:
        raise RecursionError("too deep")

    x = torch.linspace(0, 1, 5, requires_grad=True)
    expected = [torch.autograd.grad(_program(x, k).sum(), x)[0] for k in (2, 3)]
    with trace.capture_events(), monkeypatch.context() as broken:
        broken.setattr(kind, "__init__", refuse)
        compiled = tc.compile(_program, options={"fx_graph_cache": cached})
        found = [torch.autograd.grad(compiled(x, k).sum(), x)[0] for k in (2, 3)]
        tc.reset()
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)  # an exponential of 16


def _unmarked(path: Path) -> Iterator[str]:
    """Yield where an event is made in a function that may fail with it."""

    def look(node: ast.AST, marked: bool) -> Iterator[str]:
        for child in ast.iter_child_nodes(node):
            inner = marked
            if isinstance(child, ast.FunctionDef):
                returns = child.returns is not None and "trace." in ast.unparse(child.returns)
                names = [ast.unparse(one) for one in child.decorator_list]
                inner = marked or returns or any(n.startswith("trace.reports") for n in names)
            if isinstance(child, ast.Call) and not marked and _makes_event(child):
                yield f"{path}:{child.lineno}"
            yield from look(child, inner)

    yield from look(ast.parse(path.read_text()), False)


def _makes_event(call: ast.Call) -> bool:
    """Return whether a call makes an event other than a text that is there already."""
    names = {f"trace.{kind.__name__}" for kind in EVENTS.values()} - {"trace.Artifact"}
    return ast.unparse(call.func) in names


def test_events_are_made_where_nothing_fails_with_them() -> None:
    files = sorted(Path(inspect.getfile(tc)).parent.joinpath("compiler").rglob("*.py"))
    assert [place for path in files for place in _unmarked(path)] == []
