"""What is reported of a captured graph comes from its entry on disk, as the compile reported it."""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import fx

import tc
from tc import trace
from tc.compiler import pipeline
from tc.compiler.errors import BackendError


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TC_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("TC_FORCE_DISABLE_CACHES", raising=False)
    with tc.config.patch(fx_graph_cache=True):
        tc.reset()
        yield


def reported(run: Callable[[], Any]) -> tuple[list[bool], list[trace.OutputGraph]]:
    """Run, as another process would; returns which entries were found, and the graphs reported."""
    tc.reset()
    with trace.capture_events() as events:
        run()
    return [event.hit for event in events.of(trace.Cache)], events.of(trace.OutputGraph)


@pytest.mark.parametrize("wants_grad", [False, True])
def test_the_captured_graph_is_reported_once(wants_grad: bool) -> None:
    x = torch.randn(4, 6, requires_grad=wants_grad)

    def function(x: Any, y: Any) -> Any:
        return torch.sin(x) + y

    def run() -> None:
        result = tc.compile(function)(x, x)
        if wants_grad:
            result.sum().backward()

    (missed, (first,)), (found, (second,)) = reported(run), reported(run)
    assert not missed[0] and found[0]
    assert first == second and [4, 6] in second.sizes.values()
    assert "return torch.sin(x) + y" in second.code


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_other_backends_report_it_themselves(backend: str) -> None:
    _, (graph,) = reported(
        lambda: tc.compile(lambda x: x.sin() + 1, backend=backend)(torch.ones(3))
    )
    assert ".sin()" in graph.code


def test_a_graph_whose_backend_fails_is_reported() -> None:
    def fails(*_: Any) -> Any:
        raise ValueError("no")

    def run() -> None:
        with pytest.raises(BackendError):
            tc.compile(lambda x: x.sin() + 1, backend=fails)(torch.ones(3))

    _, (graph,) = reported(run)
    assert ".sin()" in graph.code


def test_a_graph_that_nobody_captured_is_not_reported() -> None:
    gm = fx.symbolic_trace(lambda x: x.sin())
    for _ in range(2):
        assert reported(lambda: pipeline.inductor(gm, [torch.ones(3)]))[1] == []


def test_a_line_of_the_users_that_changed_is_reported_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "user.py"
    shown = []
    for number, line in enumerate(("x.sin() + 1", "x.sin() +  1", "x.sin() + 1")):
        file.write_text(f"def function(x):\n    return {line}\n")
        linecache.checkcache()
        space: dict[str, Any] = {}
        exec(compile(file.read_text(), file, "exec"), space)
        found, (graph,) = reported(lambda space=space: tc.compile(space["function"])(torch.ones(3)))
        assert found == [number == 2]
        shown.append("+  1\n" in graph.code)
    assert shown == [False, True, False]
