"""Emitting events: sinks, current stages; no error reaches the user."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import tc.trace as trace
from tc.trace import CompileId, Counters, Event, Fusion, Span, Stamped


class Broken:
    calls = 0

    def __str__(self) -> str:
        return "the broken sink"

    def write(self, stamped: Stamped) -> None:
        self.calls += 1
        raise OSError("disk on fire")


def test_nobody_listens_at_first() -> None:
    assert not trace.enabled()
    trace.emit(Counters({}))


def test_captured_events_know_where_they_come_from() -> None:
    with trace.capture_events() as events:
        assert trace.enabled()
        trace.emit(Counters({"a": 1}))
        with trace.compiling(CompileId(0, 1)):
            trace.emit(Fusion({}))
        trace.emit(Counters({"a": 2}), CompileId(7, 0))
    trace.emit(Counters({"a": 3}))
    assert [event.counters["a"] for event in events.of(Counters)] == [1, 2]
    assert [s.compile_id for s in events.stamped] == [None, CompileId(0, 1), CompileId(7, 0)]
    assert events.stamped[0].origin_file == __file__
    assert abs(events.stamped[0].time_ns - time.time_ns()) < 60e9


def test_events_reported_at_once_are_reported_in_order_to_all() -> None:
    class Together:
        def __init__(self) -> None:
            self.heard: list[list[Stamped]] = []

        def write(self, stamped: Stamped) -> None:
            raise AssertionError("it takes lists")

        def write_all(self, events: list[Stamped]) -> None:
            self.heard.append(events)

    together, broken = Together(), Broken()
    reported = (Counters({"a": 1}), Fusion({}))
    for sink in (broken, together):
        trace.add_sink(sink)
    try:
        with trace.capture_events() as events, trace.compiling(CompileId(0, 1)):
            trace.emit_all(reported)
            trace.emit_all(())
    finally:
        trace.remove_sink(together)
    assert (tuple(events), broken.calls) == (reported, 1)
    assert together.heard == [events.stamped]
    assert {s.compile_id for s in events.stamped} == {CompileId(0, 1)}
    assert {s.origin_file for s in events.stamped} == {__file__}
    trace.emit_all(reported)  # nobody listens


def test_sinks_nest() -> None:
    with trace.capture_events() as outer:
        with trace.capture_events() as inner:
            trace.emit(Counters({}))
        trace.emit(Counters({}))
    assert (len(outer), len(inner)) == (2, 1)


def test_a_broken_sink_is_shown_out_once(caplog: pytest.LogCaptureFixture) -> None:
    broken = Broken()
    trace.add_sink(broken)
    with trace.capture_events() as events:
        trace.emit(Counters({}))
        trace.emit(Counters({}))
    assert broken.calls == 1 and len(events) == 2
    assert len(caplog.records) == 1
    assert "the broken sink stopped (OSError: disk on fire)" in caplog.text
    assert not trace.enabled()


def test_an_event_that_cannot_be_written_reaches_nobody(tmp_path: Path) -> None:
    class Unwritable(Event):
        pass

    from tc.trace.writer import TraceWriter

    trace.add_sink(TraceWriter(str(tmp_path)))
    trace.emit(Unwritable())
    assert not trace.enabled()


def test_compile_id_is_seen_inside_only() -> None:
    assert trace.current_compile() is None
    with trace.compiling(CompileId(0, 0)):
        with trace.compiling(CompileId(1, 0)):
            assert trace.current_compile() == CompileId(1, 0)
        assert trace.current_compile() == CompileId(0, 0)
    assert trace.current_compile() is None


def test_threads_hear_the_same_sinks_but_have_their_own_compile() -> None:
    def work() -> None:
        trace.emit(Counters({"compile": 0 if trace.current_compile() is None else 1}))

    with trace.capture_events() as events, trace.compiling(CompileId(0, 0)):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert events.of(Counters) == [Counters({"compile": 0})]


def test_stage_marks_begin_and_end() -> None:
    with (
        trace.capture_events() as events,
        trace.compiling(CompileId(0, 0)),
        trace.stage("aot"),
        trace.stage("aot.joint", nodes=3),
    ):
        assert trace.stage_path() == ("aot", "aot.joint")
    spans = events.of(Span)
    assert [(span.ph, span.name) for span in spans] == [
        ("B", "aot"),
        ("B", "aot.joint"),
        ("E", "aot.joint"),
        ("E", "aot"),
    ]
    assert spans[1].args == {"compile_id": "0/0", "stage": "aot/aot.joint", "nodes": 3}
    assert {span.pid for span in spans} == {os.getpid()}
    assert {span.tid for span in spans} == {threading.get_native_id()}
    assert [span.ts for span in spans] == sorted(span.ts for span in spans)
    assert abs(spans[0].ts - time.time() * 1e6) < 60e6


def test_stage_ends_when_it_fails() -> None:
    with trace.capture_events() as events:
        with pytest.raises(KeyError), trace.stage("loops.lower"):
            raise KeyError("x")
        assert trace.stage_path() == ()
    assert [span.ph for span in events.of(Span)] == ["B", "E"]
    assert events.of(Span)[1].args["error"] == "KeyError"


def test_phases_add_up_without_any_sink(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    assert trace.phase_seconds() == {}
    with trace.compiling(CompileId(0, 0)):
        for _ in range(2):
            with trace.stage("a"):
                now[0] += 1
                with trace.stage("b"), trace.stage("a"):
                    now[0] += 5
        phases = trace.phase_seconds()
    assert phases == {"a": 12.0, "b": 10.0}  # the inner a counts once


def test_attempts_of_one_compile_share_phases() -> None:
    with trace.compiling(CompileId(0, 0)):
        for attempt in range(2):
            with trace.compiling(CompileId(0, 0, attempt)), trace.stage("capture"):
                pass
        with trace.compiling(CompileId(1, 0)), trace.stage("other"):
            assert trace.phase_seconds() == {}
        assert set(trace.phase_seconds()) == {"capture"}


def test_instants_are_points() -> None:
    with trace.capture_events() as events:
        trace.instant("cache_hit", key="abc")
    (span,) = events.of(Span)
    assert (span.ph, span.args["key"]) == ("i", "abc")


def test_warn_never_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError

    monkeypatch.setattr(logging.getLogger("tc"), "warning", fail)
    trace.warn("x")


def test_emit_costs_next_to_nothing_when_nobody_listens() -> None:
    event = Counters({})
    fastest = 1.0
    for _ in range(5):
        began = time.perf_counter()
        for _ in range(1000):
            trace.emit(event)
        fastest = min(fastest, time.perf_counter() - began)
    assert fastest / 1000 < 2e-6


# --- the environment, each in a process of its own ----------------------------------------------

PROGRAM = """
import sys
import tc.trace as trace
trace.setup_from_environment()
trace.setup_from_environment()
with trace.compiling(trace.CompileId(0, 0)):
    trace.emit(trace.Counters({"a": 1}))
    trace.emit(trace.Counters({"a": 2}))
print("continued", "torch" in sys.modules, "structlog" in sys.modules)
"""


def run(tmp_path: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    kept = {key: os.environ[key] for key in ("PATH", "HOME", "PYTHONPATH") if key in os.environ}
    root = str(Path(__file__).parents[2])
    return subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env={**kept, "PYTHONPATH": root, **variables},
    )


def test_without_variables_nothing_happens(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert (done.stdout, done.stderr) == ("continued False False\n", "")
    assert not list(tmp_path.iterdir())


def test_trace_folder_is_made(tmp_path: Path) -> None:
    done = run(tmp_path, TC_TRACE="deep/er")
    assert (done.stdout, done.stderr) == ("continued False False\n", "")
    (log,) = (tmp_path / "deep" / "er").iterdir()
    assert log.read_text().count("tc_counters") == 2


@pytest.mark.parametrize("value", ["", "  "])
def test_empty_trace_variable_warns_and_goes_on(tmp_path: Path, value: str) -> None:
    done = run(tmp_path, TC_TRACE=value)
    assert done.stdout == "continued False False\n"
    assert done.stderr.count("\n") == 1 and "TC_TRACE is empty" in done.stderr


def test_unwritable_folder_warns_once_and_goes_on(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run(tmp_path, TC_TRACE="file/sub")
    assert done.stdout == "continued False False\n"
    assert done.stderr.count("\n") == 1
    assert "TC_TRACE" in done.stderr and "Traceback" not in done.stderr


def test_logs_bring_structlog_but_no_torch(tmp_path: Path) -> None:
    done = run(tmp_path, TC_LOGS="graph_breaks")
    assert (done.stdout, done.stderr) == ("continued False True\n", "")


def test_a_program_goes_on_where_an_event_cannot_be_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lost: list[str] = []
    emit = sys.modules["tc.trace.emit"]
    monkeypatch.setattr(emit, "report_loss", lambda name, error: lost.append(name))

    @trace.reports(list)
    def found(fails: bool) -> list[int]:
        if fails:
            raise RecursionError("too deep")
        return [1]

    assert found(False) == [1] and found(True) == [] and lost == ["found"]
    monkeypatch.undo()
    with pytest.raises(RecursionError):  # tests see what users do not
        found(True)
