"""What a trace records of running code: calls of compiled graphs, and their time."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from support import python

import tc
from tc import trace
from tc.compiler.telemetry import counters
from tc.compiler.telemetry.counters import SAMPLED, emit_counts
from tc.trace.emit import capture_events

needs_monitoring = pytest.mark.skipif(
    sys.version_info < (3, 12), reason="this Python cannot count the frames of a code object"
)

X = torch.randn(4)


@pytest.fixture(autouse=True)
def afresh() -> None:
    tc.reset()


@pytest.mark.parametrize("backend", ["inductor", "eager", "aot_eager"])
def test_calls_are_counted_and_sampled(backend: str) -> None:
    def function(x: Any) -> Any:
        return x.exp() + 1

    calls = 2 * SAMPLED + 1
    with capture_events() as events:
        compiled = tc.compile(function, backend=backend)
        for _ in range(calls):
            torch.testing.assert_close(compiled(X), function(X))
        emit_counts()
        reported = len(events)
        emit_counts()
    assert len(events) == reported, "nothing was called in between"
    event = events.of(trace.RegionsRan)[-1]  # the others are those of a period that ended
    place = (__file__, function.__code__.co_firstlineno)
    *_, row = [row for row in event.regions if (row.file, row.line) == place]
    assert (row.calls, row.sampled) == (calls, 3)
    assert row.seconds > 0 and row.file == __file__
    assert row.how == ("operations" if backend == "eager" else "compiled")


def test_a_reset_reports_the_counts_and_forgets_them() -> None:
    def function(x: Any) -> Any:
        return x.exp() + 3

    with capture_events() as events:
        for calls in (3, 2):
            compiled = tc.compile(function, backend="eager")
            for _ in range(calls):
                compiled(X)
            tc.reset()
    place = (__file__, function.__code__.co_firstlineno)
    reported = [event.regions for event in events.of(trace.RegionsRan)]
    assert [[row.calls for row in rows if (row.file, row.line) == place] for rows in reported][
        -2:
    ] == [
        [3],
        [2],
    ]


def test_nothing_is_counted_without_a_listener() -> None:
    def function(x: Any) -> Any:
        return x.exp() + 2

    compiled = tc.compile(function, backend="eager")
    compiled(X)
    with capture_events() as events:
        compiled(X)
        emit_counts()
    place = (__file__, function.__code__.co_firstlineno)
    rows = [row for event in events.of(trace.RegionsRan) for row in event.regions]
    assert place not in [(row.file, row.line) for row in rows]


def in_python(events: Any, function: Any) -> list[int]:
    """The calls that were recorded of a function that is not compiled."""
    emit_counts()
    reported = events.of(trace.RegionsRan)
    rows = reported[-1].regions if reported else ()
    place = (__file__, function.__code__.co_firstlineno)
    return [row.calls for row in rows if (row.file, row.line, row.how) == (*place, "python")]


def over_the_limit(function: Any) -> Any:
    """Call a function with four numbers, of which two are compiled for; return it compiled."""
    with tc.config.patch(recompile_limit=2, specialize_int=True):
        compiled = tc.compile(function, backend="eager")
        for n in range(4):
            compiled(X, n)
    return compiled


@needs_monitoring
def test_calls_past_the_recompile_limit_are_counted() -> None:
    def function(x: Any, n: int) -> Any:
        return x * n

    with capture_events() as events:
        compiled = over_the_limit(function)
        compiled(X, 1)  # of an entry that was compiled
        compiled(X, 9)
        assert in_python(events, function) == [3]
        compiled(X, 9)
        assert in_python(events, function) == [4]


@needs_monitoring
def test_a_reset_starts_over_with_calls_in_python_as_well() -> None:
    def function(x: Any, n: int) -> Any:
        return x * n

    with capture_events() as events:
        over_the_limit(function)
        tc.reset()
        function(X, 3)
        assert in_python(events, function) == [2]
        over_the_limit(function)
        assert in_python(events, function) == [2]
    assert len(events.of(trace.RegionsRan)) >= 2


@needs_monitoring
def test_calls_of_skipped_functions_are_counted() -> None:
    def function(x: Any) -> Any:
        yield x + 1

    with capture_events() as events:
        compiled = tc.compile(function, backend="eager")
        for _ in range(3):
            list(compiled(X))
        assert in_python(events, function) == [3]


@needs_monitoring
def test_calls_in_python_are_not_counted_where_no_number_is_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def function(x: Any, n: int) -> Any:
        return x * n

    monkeypatch.setattr(counters, "_monitor", counters._Monitor())
    monkeypatch.setattr(counters, "_TOOLS", ())
    with capture_events() as events:
        over_the_limit(function)
        assert in_python(events, function) == []


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="this Python counts them")
def test_calls_in_python_are_not_counted_before_python_3_12() -> None:
    def function(x: Any, n: int) -> Any:
        return x * n

    with capture_events() as events:
        over_the_limit(function)
        assert in_python(events, function) == []


def test_gradients_flow_through_counted_graphs() -> None:
    def function(x: Any) -> Any:
        return (x.exp() * x).sum()

    with capture_events():
        x = X.clone().requires_grad_()
        tc.compile(function)(x).backward()
    torch.testing.assert_close(x.grad, (X.exp() * (1 + X)))


@pytest.mark.slow
def test_counts_are_reported_when_the_process_ends(tmp_path: Path) -> None:
    program = (
        "import torch, tc\n"
        "f = tc.compile(lambda x: x.sin() + 1, backend='eager')\n"
        "for _ in range(5): f(torch.ones(3))\n"
    )
    done = python("-c", program, variables={"TC_TRACE": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    (log,) = tmp_path.iterdir()
    rows = log.read_text().splitlines()
    (at,) = [n for n, row in enumerate(rows) if '"tc_run"' in row]
    assert json.loads(rows[at + 1])["regions"][0]["calls"] == 5
