"""Stages of compiles go in, on a clock and a terminal of the test; lines on it come out."""

import io
import os
import threading
from collections.abc import Iterator

import pytest

from tc import trace
from tc.trace import CompileId, FrameStart, StackFrame, setup
from tc.trace.emit import add_sink, remove_sink
from tc.trace.heartbeat import ERASE, Heartbeat


class Terminal(io.StringIO):
    """A stream that says it is a terminal, and reports when something is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = threading.Event()

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.written.set()
        return super().write(text)


class Beats:
    """A heartbeat without its thread, on a clock that stands still."""

    def __init__(self) -> None:
        self.now = 100.0
        self.terminal = Terminal()
        self.sink = Heartbeat(self.terminal, clock=lambda: self.now, threaded=False)

    def after(self, seconds: float) -> float | None:
        self.now += seconds
        return self.sink.beat()

    @property
    def text(self) -> str:
        return self.terminal.getvalue()


@pytest.fixture
def beats() -> Iterator[Beats]:
    made = Beats()
    add_sink(made.sink)
    yield made
    remove_sink(made.sink)
    assert made.sink.beat() is None


START = FrameStart((StackFrame("m.py", 5, "torch_dynamo_resume_in_forward_at_7"),))


def test_a_long_compile_is_reported_and_the_line_erased(beats: Beats) -> None:
    with trace.compiling(CompileId(0, 0)), trace.stage("entire_frame_compile"):
        trace.emit(START)
        assert beats.after(4.0) == pytest.approx(6.0) and beats.text == ""
        with trace.stage("capture"):
            assert beats.after(6.0) == 1.0
        with trace.stage("runtime.build"):
            assert beats.after(12.0) == 1.0
    lines = beats.text.split(ERASE)
    assert lines == [
        "",
        "tc: compiling forward [0/0]: capture, 10 s",
        "tc: compiling forward [0/0]: build, 22 s",
        "",
    ]


def test_a_short_compile_writes_nothing(beats: Beats) -> None:
    for number in range(3):
        with trace.compiling(CompileId(0, number)), trace.stage("entire_frame_compile"):
            trace.emit(START)
            assert beats.after(9.0) is not None
        assert beats.after(9.0) is None
    assert beats.text == ""


def test_other_lines_find_the_terminal_clean(beats: Beats) -> None:
    with trace.compiling(CompileId(0, 0)), trace.stage("entire_frame_compile"):
        beats.after(11.0)
        trace.emit(START)
        assert beats.text.endswith(ERASE)
        beats.after(1.0)
        assert beats.text.endswith("tc: compiling forward [0/0]: capture, 12 s")


def test_work_of_no_compile_is_not_reported(beats: Beats) -> None:
    with trace.stage("graph_cache.look"):
        assert beats.after(60.0) is None
    assert beats.text == ""


def test_the_compile_that_runs_longest_is_reported(beats: Beats) -> None:
    begun, done = threading.Event(), threading.Event()

    def other() -> None:
        with trace.compiling(CompileId(1, 0)), trace.stage("capture"):
            begun.set()
            done.wait(10)

    with trace.compiling(CompileId(0, 0)), trace.stage("capture"):
        beats.now += 5.0
        thread = threading.Thread(target=other)
        thread.start()
        assert begun.wait(10)
        beats.after(10.0)
        assert beats.text == f"{ERASE}tc: compiling [0/0]: capture, 15 s"
    beats.after(0.0)
    assert beats.text.endswith("tc: compiling [1/0]: capture, 10 s")
    done.set()
    thread.join()
    assert beats.text.endswith(ERASE)


def test_a_hostile_name_cannot_steer_the_terminal(beats: Beats) -> None:
    with trace.compiling(CompileId(0, 0)), trace.stage("capture"):
        trace.emit(FrameStart((StackFrame("m.py", 5, "f\x1b[2J" + "g" * 200),)))
        beats.after(11.0)
    line = beats.text.split(ERASE)[1]
    assert "\x1b" not in line and len(line) == 79


def test_its_thread_begins_with_the_first_compile_and_is_one() -> None:
    terminal = Terminal()
    sink = Heartbeat(terminal, patience=0.001, every=0.001)
    add_sink(sink)
    try:
        assert "tc-heartbeat" not in names()
        for number in range(3):
            terminal.written.clear()
            with trace.compiling(CompileId(0, number)), trace.stage("capture"):
                assert terminal.written.wait(10)
            assert terminal.getvalue().endswith(ERASE)
        assert names().count("tc-heartbeat") == 1
    finally:
        remove_sink(sink)
        sink.close()
    assert "tc-heartbeat" not in names()


def names() -> list[str]:
    return [thread.name for thread in threading.enumerate()]


def test_a_forked_child_has_a_thread_of_its_own() -> None:
    sink = Heartbeat(Terminal(), patience=60.0)
    add_sink(sink)
    try:
        with trace.compiling(CompileId(0, 0)), trace.stage("capture"):
            child = os.fork()
            if child == 0:
                alone = "tc-heartbeat" not in names() and sink.beat() is None
                with trace.compiling(CompileId(1, 0)), trace.stage("capture"):
                    os._exit(0 if alone and names().count("tc-heartbeat") == 1 else 1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        remove_sink(sink)
        sink.close()


@pytest.mark.parametrize(
    ("terminal", "environment", "reported"),
    [
        (True, {"TC_LOGS": "graph_breaks"}, True),
        (True, {"TC_TRACE": "{tmp}"}, True),
        (True, {}, False),
        (True, {"TC_LOGS": "graph_breaks", "TERM": "dumb"}, False),
        (False, {"TC_LOGS": "graph_breaks"}, False),
    ],
)
def test_only_a_terminal_of_somebody_who_asked(
    terminal: bool, environment: dict[str, str], reported: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr", Terminal() if terminal else io.StringIO())
    monkeypatch.setenv("TERM", "xterm")
    for name in ("TC_LOGS", "TC_TRACE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    made = setup.heartbeat()
    assert (made is not None) == reported
