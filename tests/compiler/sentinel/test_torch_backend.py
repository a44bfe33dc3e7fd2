"""`tc.sentinel` around a backend of torch.compile."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import tc
from tc import trace
from tc.compiler.errors import OptionError
from tc.compiler.options import config
from tc.compiler.sentinel import torch_backend


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    torch.compiler.reset()
    tc.counters["sentinel"].clear()
    with config.patch(sentinel_bisect=False):
        yield


def test_graphs_of_torch_compile_are_compared_gradients_included() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.GELU(), torch.nn.Linear(6, 2))
    compiled = torch.compile(model, backend=tc.sentinel("aot_eager", rate=1))
    for size in (3, 3, 5, 7):
        compiled(torch.randn(size, 4)).square().sum().backward()
    counts = dict(tc.counters["sentinel"])
    assert counts == {"compared": 4, "compared backward": 4}


def test_a_wrong_graph_is_reported_with_the_user_s_line() -> None:
    def wrong(gm: Any, inputs: Any, **settings: Any) -> Any:
        return lambda *args: [value * 1.5 for value in gm(*args)]

    with trace.capture_events() as events:
        compiled = torch.compile(lambda x: x.sin() + 1, backend=tc.sentinel(wrong, rate=1))
        for _ in range(3):
            compiled(torch.ones(3))
    (found,) = events.of(trace.SentinelDifference)
    assert found.file == __file__
    assert found.repeats == "3 of 3"


@pytest.mark.slow
def test_a_named_backend_has_a_repro_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    real = torch_backend._compiled

    def wrong(*given: Any) -> Any:
        compiled = real(*given)
        return lambda *args: [value * 1.5 for value in compiled(*args)]

    monkeypatch.setattr(torch_backend, "_compiled", wrong)
    with trace.capture_events() as events:
        backend = tc.sentinel("aot_eager", rate=1, action="eager")
        compiled = torch.compile(lambda x: x.sin() + 1, backend=backend)
        compiled(torch.ones(3))
        assert torch.equal(compiled(torch.ones(3)), torch.ones(3).sin() + 1)
    (found,) = events.of(trace.SentinelDifference)
    assert "torch.compile(graph, backend='aot_eager')" in Path(found.repro).read_text()


def test_a_rate_that_is_none_is_refused_at_once() -> None:
    with pytest.raises(OptionError, match="a share of calls"):
        tc.sentinel("inductor", rate=1000)
    with pytest.raises(OptionError, match="sentinel_action"):
        tc.sentinel("inductor", action="panic")
