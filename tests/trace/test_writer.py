"""What is written is what was emitted, for our plain reader and for the real tlparse."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from event_samples import BREAK, FRAME, SAMPLES
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from wire_format import WireLog, read_wire

import tc.trace as trace
from tc.trace import Artifact, CompileId, Counters, Event, FrameStart, Span, StackFrame
from tc.trace.events import Stamped
from tc.trace.wire import RawJson
from tc.trace.writer import TraceWriter

pytestmark = pytest.mark.usefixtures("no_passes")

TLPARSE = Path(sys.executable).with_name("tlparse")


@pytest.fixture
def writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TraceWriter]:
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    one = TraceWriter(str(tmp_path / "traces"))
    trace.add_sink(one)
    yield one
    trace.remove_sink(one)
    one.close()


def log_of(writer: TraceWriter) -> WireLog:
    assert writer.path is not None
    return read_wire(Path(writer.path))


def resolved(log: WireLog, metadata: Any) -> Any:
    """Undo the interning in the stacks of a record."""
    if not isinstance(metadata, dict):
        return metadata
    undone = dict(metadata)
    for key in ("stack", "user_stack"):
        if key in undone:
            undone[key] = log.frames(undone[key])
    return undone


def expected(metadata: Any) -> Any:
    if isinstance(metadata, RawJson):
        return json.loads(metadata)
    if not isinstance(metadata, dict):
        return metadata
    changed = dict(metadata)
    for key in ("stack", "user_stack"):
        if key in changed:
            changed[key] = [(f.file, f.line, f.name, f.loc) for f in changed[key]]
    return {
        key: list(value) if isinstance(value, tuple) else value for key, value in changed.items()
    }


@pytest.mark.sample(11)
@pytest.mark.parametrize("event", SAMPLES, ids=lambda event: type(event).__name__)
def test_event_round_trip(writer: TraceWriter, event: Event) -> None:
    trace.emit(event, CompileId(3, 1, 2))
    log = log_of(writer)
    for record in event.to_records():
        (found,) = (
            log.artifacts(record.metadata["name"])  # type: ignore[index]
            if record.key == "artifact"
            else log.all(record.key)
        )
        assert resolved(log, found.metadata) == expected(record.metadata)
        assert found.payload == record.payload
        known = {key: found.context[key] for key in ("frame_id", "frame_compile_id", "attempt")}
        assert known == {"frame_id": 3, "frame_compile_id": 1, "attempt": 2}


@pytest.mark.parametrize("rank", [None, "3"])
def test_marks_are_written_like_other_events(
    writer: TraceWriter, monkeypatch: pytest.MonkeyPatch, rank: str | None
) -> None:
    if rank is not None:
        monkeypatch.setenv("RANK", rank)
    assert writer.path is None
    with trace.compiling(CompileId(3, 1)), trace.stage("first"):  # its beginning opens the file
        trace.instant('é "x"', number=3)
        assert writer.path is not None
        lines = Path(writer.path).read_bytes().splitlines()[-2:]
        header, mark = json.loads(lines[0].split(b"] ", 1)[1]), json.loads(lines[1])
        origin = lines[0].split(b"] ")[0].split()[-1].decode().rpartition(":")
        del mark["cat"], mark["s"]
        span = Span(**mark)
        writer.write(Stamped(span, CompileId(3, 1), 0, origin[0], int(origin[2])))
    again = Path(writer.path).read_bytes().splitlines()
    at = again.index(lines[1]) + 1
    assert again[at + 1] == lines[1] and json.loads(again[at].split(b"] ", 1)[1]) == header
    assert again[at].split()[2:] == lines[0].split()[2:]


def test_file_appears_with_the_first_event(writer: TraceWriter) -> None:
    assert not Path(writer.directory).exists()
    trace.emit(Counters({}))
    (file,) = Path(writer.directory).iterdir()
    assert str(file) == writer.path
    prefix, suffix = "dedicated_log_torch_trace_", ".log"
    assert file.name.startswith(prefix) and file.name.endswith(suffix)
    assert len(file.name) == len(prefix) + 8 + len(suffix)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_folder_does_not_move_with_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    one = TraceWriter("here")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    trace.add_sink(one)
    trace.emit(Counters({}))
    trace.remove_sink(one)
    one.close()
    assert len(list((tmp_path / "here").iterdir())) == 1


def test_versions_follow_the_first_record(writer: TraceWriter) -> None:
    trace.emit(Counters({}), CompileId(0, 0))
    log = log_of(writer)
    names = [record.metadata["name"] for record in log.records]
    assert names == ["tc_counters", "torch_version", "tc_version"]
    assert log.records[1].context.keys() == {"has_payload"}
    got = json.loads(log.records[2].payload or "")
    assert got["tc_version"] and got["python_version"] == sys.version.split()[0]


def test_strings_are_defined_once_before_their_use(writer: TraceWriter) -> None:
    other = StackFrame("/other.py", 1, "g")
    trace.emit(FrameStart((FRAME, other, FRAME)))
    trace.emit(FrameStart((other,)))
    log = log_of(writer)
    assert sorted(log.strings.values()) == sorted({FRAME.file, other.file})
    keys = [record.key for record in log.records if record.key != "artifact"]
    assert keys == ["str", "str", "dynamo_start", "dynamo_start"]
    assert log.frames(log.all("dynamo_start")[1].metadata["stack"]) == [("/other.py", 1, "g", None)]


def test_header_names_the_emitting_line(writer: TraceWriter) -> None:
    trace.emit(Counters({}))
    record = log_of(writer).records[0]
    assert record.path == __file__.removeprefix(str(Path(trace.__file__).parents[2]) + "/")
    assert record.pid == os.getpid()


def test_rank_is_in_the_name_and_on_every_record(
    writer: TraceWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch.distributed", None)
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "8")
    trace.emit(FrameStart((FRAME,)))
    assert writer.path is not None and "_trace_rank_3_" in writer.path
    records = [record for record in log_of(writer).records if record.key != "str"]
    assert len(records) == 3 and {record.context["rank"] for record in records} == {3}


HOSTILE = [
    "",
    "\n",
    "\n\n",
    "\ttab\n\t\n",
    "cr\r\nlf\rcr",
    "ff\x0cvt\x0bnel\x85ls\u2028ps\u2029",
    "nul\x00esc\x1b[31m",
    "astral \U0001f600 \ufeffbom",
    "lone \ud800 and \udfff",
    'V1120 09:14:22.737000 1 a.py:1] {"str": ["x", 0]}',
]


@pytest.mark.parametrize("payload", HOSTILE)
def test_hostile_payloads(writer: TraceWriter, payload: str) -> None:
    trace.emit(Artifact("a", payload))
    trace.emit(Counters({"after": 1}))
    log = log_of(writer)
    (found,) = log.artifacts("a")
    assert found.payload == payload.encode("utf-8", "backslashreplace").decode()
    assert log.artifacts("tc_counters")


@given(st.text(), st.text())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
def test_any_text_survives(writer: TraceWriter, payload: str, name: str) -> None:
    writer.close()
    trace.emit(FrameStart((StackFrame(name, 1, name, payload),)))
    trace.emit(Artifact("a", payload))
    log = log_of(writer)
    assert log.artifacts("a")[0].payload == payload
    assert log.frames(log.all("dynamo_start")[0].metadata["stack"]) == [(name, 1, name, payload)]


def test_lone_surrogates_in_metadata(writer: TraceWriter) -> None:
    trace.emit(FrameStart((StackFrame("\ud800.py", 1, "f"),)))
    assert trace.enabled()
    assert list(log_of(writer).strings.values()) == ["\ufffd.py"]


def test_threads_do_not_mix_their_records(writer: TraceWriter) -> None:
    def work(number: int) -> None:
        with trace.compiling(CompileId(number, 0)):
            for turn in range(50):
                trace.emit(FrameStart((StackFrame(f"/f{turn % 7}.py", turn, "f"),)))
                trace.emit(Artifact(f"a{number}", f"line {turn}\n" * 20))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log = log_of(writer)
    assert len(log.strings) == 7
    for number in range(6):
        mine = log.artifacts(f"a{number}")
        assert [record.payload for record in mine] == [f"line {n}\n" * 20 for n in range(50)]
        assert {record.context["frame_id"] for record in mine} == {number}
    for record in log.all("dynamo_start"):
        ((file, line, _, _),) = log.frames(record.metadata["stack"])
        assert file == f"/f{line % 7}.py"


def test_forked_child_has_its_own_file_and_strings(writer: TraceWriter) -> None:
    trace.emit(FrameStart((FRAME,)))
    parent_path = writer.path
    with writer._lock:  # as if another thread were writing at the moment of the fork
        child = os.fork()
        if child == 0:
            trace.emit(FrameStart((FRAME,)))
            os._exit(0 if trace.enabled() else 1)
    assert os.waitpid(child, 0)[1] == 0
    trace.emit(FrameStart((FRAME,)))
    assert writer.path == parent_path
    logs = {str(path): read_wire(path) for path in Path(writer.directory).iterdir()}
    assert len(logs) == 2
    assert parent_path is not None
    theirs = next(log for path, log in logs.items() if path != parent_path)
    assert {record.pid for record in theirs.records} == {child}
    assert list(theirs.strings.values()) == [FRAME.file]
    assert len(logs[parent_path].all("dynamo_start")) == 2


def test_each_record_is_on_disk_at_once(tmp_path: Path) -> None:
    program = f"""
import os, tc.trace as trace
from tc.trace.writer import TraceWriter
trace.add_sink(TraceWriter({str(tmp_path)!r}))
trace.emit(trace.Artifact("last", "words"))
os.kill(os.getpid(), 9)
"""
    root = str(Path(__file__).parents[2])
    subprocess.run([sys.executable, "-c", program], cwd=root, check=False)
    (file,) = tmp_path.iterdir()
    assert read_wire(file).artifacts("last")[0].payload == "words"


def test_writes_cut_short_continue(writer: TraceWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    write, writev = os.write, os.writev
    monkeypatch.setattr(os, "write", lambda file, data: write(file, data[:7]))
    monkeypatch.setattr(os, "writev", lambda file, parts: writev(file, parts[:1]))
    trace.emit_all([Artifact("a", "one\ntwo"), Artifact("b", "three")])
    log = log_of(writer)
    assert [log.artifacts(name)[0].payload for name in "ab"] == ["one\ntwo", "three"]


def test_more_parts_than_one_write_takes(writer: TraceWriter) -> None:
    frames = tuple(StackFrame(f"/{number}.py", number, "f") for number in range(1000))
    trace.emit(FrameStart(frames))
    log = log_of(writer)
    stack = log.frames(log.all("dynamo_start")[0].metadata["stack"])
    assert stack == [(frame.file, frame.line, "f", None) for frame in frames]


def test_disk_full_stops_the_trace_only(
    writer: TraceWriter, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    trace.emit(Counters({}))

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "writev", full)
    trace.emit(Counters({}))
    trace.emit(Counters({}))
    assert caplog.text.count("No space left") == 1
    assert not trace.enabled()


@pytest.mark.skipif(not TLPARSE.exists(), reason="tlparse is not installed")
@pytest.mark.parametrize("rank", [None, "0"])
def test_the_real_tlparse_takes_it(
    writer: TraceWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rank: str | None
) -> None:
    if rank is not None:
        monkeypatch.setitem(sys.modules, "torch.distributed", None)
        monkeypatch.setenv("RANK", rank)
        monkeypatch.setenv("WORLD_SIZE", "2")
    with trace.compiling(CompileId(0, 0)), trace.stage("entire_frame_compile"):
        for event in SAMPLES:
            trace.emit(event)
        for text in HOSTILE:
            if "\r" not in text:  # tlparse itself loses a CR at the end of a line
                trace.emit(Artifact("hostile", text))
    trace.emit(BREAK)
    out = tmp_path / "out"
    assert writer.path is not None
    done = subprocess.run(
        [TLPARSE, "--strict", "--no-browser", "-o", out, "--overwrite", writer.path],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "fail" not in done.stderr and "other_rank" not in done.stderr
    listing = json.loads((out / "compile_directory.json").read_text())
    names = {os.path.basename(item["name"]) for item in listing["[0/0]"]["artifacts"]}
    shown = {name.rsplit("_", 1)[0] for name in names}
    for name in ("tc_graph_break", "dynamo_output_graph", "compilation_metrics", "tc_kernels"):
        assert any(name in one for one in shown), (name, shown)
    assert "forward" in (out / "index.html").read_text()
    chromium = json.loads((out / "chromium_events.json").read_text())
    assert {event["ph"] for event in chromium} >= {"B", "E"}
