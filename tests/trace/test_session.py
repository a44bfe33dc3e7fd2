"""Sessions: real logs against their known truth, several processes, altered records."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
from real_traces import unpacked
from tc_log import Compiler
from torch_log import IDS, START, torch_log

from tc.tlparse.summary import as_json
from tc.trace import Artifact, Region, RegionsRan
from tc.trace.compiles import Calls, by_function, calls_of
from tc.trace.findings import diagnose
from tc.trace.kinds import KINDS
from tc.trace.reader import Unreadable
from tc.trace.session import load

TRACES = unpacked()

TRUTH = {  # folder: frames, compiles, lanes (shared/traces/README.md)
    "backend_crash": (1, 1, 1),
    "dynamic": (3, 5, 1),
    "graph_break": (5, 5, 1),
    "recompile": (1, 7, 1),
    "simple": (1, 1, 1),
    "train": (1, 1, 1),
    "transformer": (1, 2, 1),
    "two_rank": (2, 3, 2),
}


class Log:
    """Writes a log the way torch does."""

    def __init__(self, path: Path, pid: int = 7, minute: int = 0) -> None:
        self.path, self.pid, self.minute, self.second = path, pid, minute, 0

    def add(self, payload: str | None = None, /, **envelope: object) -> Log:
        self.second += 1
        clock = f"{self.minute // 60:02}:{self.minute % 60:02}:{self.second % 60:02}"
        head = f"V1120 {clock}.000000 {self.pid} torch/x.py:1] "
        if payload is not None:
            envelope["has_payload"] = hashlib.md5(payload.encode()).hexdigest()
        text = head + json.dumps(envelope) + "\n"
        if payload is not None:
            text += "".join(f"\t{line}\n" for line in payload.split("\n"))
        with self.path.open("a", encoding="utf-8") as file:
            file.write(text)
        return self

    def compile(self, name: str = "f", frame: int = 0, number: int = 0, **more: object) -> Log:
        ids = {"frame_id": frame, "frame_compile_id": number, "attempt": 0, **more}
        stack = [{"line": 3, "name": name, "filename": 1}]
        return self.add(dynamo_start={"stack": stack}, **ids)


def log_in(folder: Path, name: str = "a", **more: int) -> Log:
    return Log(folder / f"dedicated_log_torch_trace_{name}.log", **more)


@pytest.mark.parametrize("name", TRUTH)
def test_real_logs(name: str) -> None:
    session = load(TRACES / name)
    assert (session.frames, len(session.compiles), len(session.lanes)) == TRUTH[name]
    assert session.defects.counts == {}
    assert session.unknown == {}
    assert session.environment["pytorch_version"] == "2.13.0+cpu"
    session.close()


@pytest.mark.parametrize("name", ["dynamic", "graph_break", "recompile"])
def test_shared_out_time_adds_up_to_the_measured_time(name: str) -> None:
    for compiled in load(TRACES / name).compiles:
        measured = compiled.metrics["entire_frame_compile_time_s"]
        assert compiled.seconds == pytest.approx(measured, rel=0.02, abs=0.02)


def test_names_places_and_attempts() -> None:
    session = load(TRACES / "graph_break")
    first, resumed = session.compiles[:2]
    assert (first.title, first.home[1], first.attempts) == ("f", 6, 1)
    assert (resumed.title, resumed.original, resumed.attempts) == ("f (resumed at 9)", "f", 2)
    assert [str(frame) for frame in resumed.frames][-1].endswith(
        "graph_break.py:9 in torch_dynamo_resume_in_f_at_9"
    )


def test_a_module_behind_the_wrapper_of_torch_gets_its_name() -> None:
    compiled = load(TRACES / "transformer").compiles[0]
    assert compiled.title == "TransformerEncoder"
    assert compiled.home[0].endswith("transformer.py")


def test_artifacts_come_in_order_and_whole() -> None:
    session = load(TRACES / "simple")
    (compiled,) = session.compiles
    assert [one.number for one in compiled.artifacts] == list(range(len(compiled.artifacts)))
    graph = next(one for one in compiled.artifacts if one.name == "dynamo_output_graph")
    assert "def forward" in session.text(graph)
    assert graph.kind == "python"


def test_strings_of_a_sibling_log(tmp_path: Path) -> None:
    log_in(tmp_path, "parent", pid=1).add(str=["/home/f.py", 1]).compile()
    log_in(tmp_path, "child", pid=2, minute=1).compile("g")
    session = load(tmp_path)
    assert {one.file for one in session.compiles} == {"/home/f.py"}
    assert len(session.lanes) == 2
    assert session.defects.counts == {}


def test_strings_of_the_same_process_come_before_those_of_older_logs(tmp_path: Path) -> None:
    log_in(tmp_path, "a", pid=1).add(str=["/home/a.py", 1]).compile()
    log_in(tmp_path, "b", pid=2).add(str=["/home/b.py", 1]).compile("g")
    log_in(tmp_path, "c", pid=1, minute=2).compile("h", frame=1)
    log_in(tmp_path, "d", pid=3, minute=3).compile("i", frame=1)
    session = load(tmp_path)
    files = {one.function: one.file for one in session.compiles}
    assert (files["h"], files["i"]) == ("/home/a.py", "/home/b.py")
    assert session.defects.counts == {}


def test_a_stack_that_is_none_is_damage(tmp_path: Path) -> None:
    log_in(tmp_path).add(dynamo_start={"stack": 7}, frame_id=0, frame_compile_id=0)
    session = load(tmp_path)
    assert len(session.compiles) == 1
    assert session.defects.counts == {"bad_record": 1}


def test_a_string_nobody_defines_is_damage(tmp_path: Path) -> None:
    log_in(tmp_path).compile()
    session = load(tmp_path)
    assert session.compiles[0].file == "(unknown)"
    assert session.defects.counts == {"unknown_string": 1}


def test_the_newest_run_by_default_and_all_on_request(tmp_path: Path) -> None:
    log_in(tmp_path, "old", pid=1).add(str=["a.py", 1]).compile("old")
    log_in(tmp_path, "new", pid=2, minute=30).add(str=["a.py", 1]).compile("new")
    session = load(tmp_path)
    assert [one.function for one in session.compiles] == ["new"]
    assert session.other_runs == 1
    assert len(load(tmp_path, all_runs=True).compiles) == 2


def test_two_runs_of_two_ranks(tmp_path: Path) -> None:
    for minute in (0, 30):
        for rank in (0, 1):
            name = f"rank_{rank}_{minute}"
            log = log_in(tmp_path, name, pid=10 * minute + rank + 1, minute=minute)
            log.add(str=["a.py", 1]).compile(rank=rank)
    session = load(tmp_path)
    assert [lane.label for lane in session.lanes] == ["rank 0", "rank 1"]
    assert [one.slug for one in session.compiles] == ["0/0", "1:0/0"]
    assert session.other_runs == 1


def test_what_a_process_wrote_before_it_knew_its_rank(tmp_path: Path) -> None:
    log = log_in(tmp_path).add(str=["a.py", 1])
    log.compile().compile("g", frame=1, rank=3)
    session = load(tmp_path)
    assert [one.slug for one in session.compiles] == ["3:0/0", "3:1/0"]


def test_versions_without_a_rank_belong_to_the_rank_of_the_file(tmp_path: Path) -> None:
    log = log_in(tmp_path, "rank_1_x").add(str=["a.py", 1]).compile(rank=1)
    log.add('{"pytorch_version": "9"}', artifact={"name": "torch_version", "encoding": "json"})
    session = load(tmp_path)
    assert len(session.lanes) == 1
    assert session.environment["pytorch_version"] == "9"


@pytest.mark.parametrize(
    "envelope",
    [
        {"artifact": 7},
        {"dynamo_start": []},
        {"dynamo_start": {"stack": ["x"]}},
        {"dynamo_start": {"stack": [{"line": [], "filename": {}}]}},
        {"compilation_metrics": "x"},
        {"str": 3},
        {"str": ["a", "b", "c"]},
        {"create_symbol": {}},
        {"compilation_metrics": {"co_name": 5, "fail_type": "X"}},
        {"artifact": {"name": "a"}, "frame_id": "x", "attempt": "y"},
    ],
)
def test_a_record_of_odd_types_costs_only_itself(tmp_path: Path, envelope: dict) -> None:  # type: ignore[type-arg]
    log_in(tmp_path).add(str=["a.py", 1]).add(**envelope).compile("g")
    session = load(tmp_path)
    assert session.records == 3
    assert "g" in [one.function for one in session.compiles]


def test_a_bad_payload_of_a_chromium_event_is_damage(tmp_path: Path) -> None:
    log_in(tmp_path).add("nonsense", chromium_event={}).add("[]", chromium_event={})
    assert load(tmp_path).defects.counts == {"bad_record": 2}


@pytest.mark.sample(18)
@pytest.mark.parametrize("payload", ["no json", "[]", "7", "{}"])
@pytest.mark.parametrize(
    "name", sorted(one.name for one in KINDS.values() if one.kept and not one.record)
)
def test_findings_survive_odd_contents(tmp_path: Path, name: str, payload: str) -> None:
    log = log_in(tmp_path).add(str=["a.py", 1]).compile()
    ids = {"frame_id": 0, "frame_compile_id": 1, "attempt": 0}
    log.add(payload, artifact={"name": name, "encoding": "json"}, **ids).compile(number=1)
    diagnose(load(tmp_path))


def test_a_failure_without_a_reason(tmp_path: Path) -> None:
    log = log_in(tmp_path).add(str=["a.py", 1]).compile()
    log.add(compilation_metrics={"fail_type": "Boom"}, frame_id=0, frame_compile_id=0)
    failure = load(tmp_path).compiles[0].failure
    assert failure is not None
    assert (failure.type, failure.reason) == ("Boom", "")


def test_unknown_events_are_counted_and_shown(tmp_path: Path) -> None:
    log = log_in(tmp_path).add(str=["a.py", 1]).compile()
    log.add("text", brand_new={"a": 1}, frame_id=0, frame_compile_id=0)
    session = load(tmp_path)
    assert session.unknown == {"brand_new": 1}
    assert [one.name for one in session.compiles[0].artifacts] == ["dynamo_start", "brand_new"]


def test_steps_left_open_by_a_crash_end_with_the_log(tmp_path: Path) -> None:
    log = log_in(tmp_path).add(str=["a.py", 1]).compile()
    for name, at in (("dynamo", 1e6), ("inductor_compile", 2e6)):
        event = {"name": name, "ph": "B", "ts": at, "args": {"compile_id": "0/0"}}
        log.add(json.dumps(event), chromium_event={})
    assert load(tmp_path).compiles[0].steps == {"dynamo": 1.0}


@pytest.mark.parametrize("content", ["", "garbage\n" * 3, "\x00\x01"])
def test_nothing_to_read(tmp_path: Path, content: str) -> None:
    (tmp_path / "x.log").write_text(content)
    with pytest.raises(Unreadable):
        load(tmp_path / "x.log")


def test_reading_needs_no_torch() -> None:
    code = "import tc.trace.session, tc.trace.findings, sys; sys.exit('torch' in sys.modules)"
    root = Path(__file__).resolve().parents[2]
    assert subprocess.run([sys.executable, "-c", code], cwd=root, check=False).returncode == 0


def test_texts_of_records_without_a_payload_stay_in_the_log(tmp_path: Path) -> None:
    config = "x" * 3000 + "\ud800"
    metrics = {"co_name": "f", "inductor_config": config, "graph_op_count": 3}
    found = torch_log(tmp_path, START, ({"compilation_metrics": metrics, **IDS}, None))
    (compiled,) = found.session.compiles
    artifact = next(one for one in compiled.artifacts if one.name == "compilation_metrics")
    assert artifact.span is not None and artifact.span.event == "compilation_metrics"
    assert json.loads(found.session.text(artifact)) == metrics
    assert artifact.size > 3000
    assert len(found.session.bytes_of(artifact)) > 3000


def test_calls_belong_to_compiles_and_the_last_record_holds(tmp_path: Path) -> None:
    def ran(*rows: tuple[str, str, int, int, float]) -> RegionsRan:
        places = [Region(name, "f", "m.py", 3, *counted) for name, *counted in rows]
        return RegionsRan(tuple(places))

    log = Compiler(tmp_path).start().start(1)
    log.say(ran(("0/0", "compiled", 1, 1, 0.5)))
    log.say(ran(("0/0", "compiled", 33, 3, 0.75), ("0/1", "operations", 7, 0, 0.0),
                ("9/9", "compiled", 5, 1, 1.0)))  # fmt: skip
    diagnosis = log.end()
    session = diagnosis.session
    first, second = session.compiles
    assert first.calls == Calls(33, 0, 3, 0.75) and first.calls.each == 0.25
    assert second.calls == Calls(7, 7, 0, 0.0) and second.calls.each is None
    assert calls_of(session.compiles) == Calls(40, 7, 3, 0.75)
    report = as_json(diagnosis)
    assert report["calls"] == {"count": 40, "eager": 7, "timed": 3, "each": 0.25, "python": 0}
    assert [one["calls"]["count"] for one in report["compile_list"]] == [33, 7]


def test_compiles_after_a_reset_are_others(tmp_path: Path) -> None:
    def step(phase: str, at: int) -> str:
        args = {"compile_id": "0/0"}
        event = {"name": "dynamo", "ph": phase, "ts": at * 1e6, "tid": 0, "args": args}
        return json.dumps(event)

    def again(log: Log, reason: str) -> None:
        ids = {"frame_id": 0, "frame_compile_id": 1, "attempt": 0}
        log.add(reason, artifact={"name": "recompile_reasons", "encoding": "string"}, **ids)
        log.compile("f", number=1)

    log = log_in(tmp_path).add(str=["m.py", 1])
    for turn, size in enumerate((3, 4)):
        log.add(step("B", 10 * turn), chromium_event={})
        log.compile("f")
        log.add(step("E", 10 * turn + 1 + turn), chromium_event={})
        again(log, f"[0/0] tensor 'x' size mismatch at index 0. expected {size}, actual 9")
    session = load(tmp_path)
    assert [one.id for one in session.compiles] == ["0/0", "0/1", "2~0/0", "2~0/1"]
    assert [one.seconds for one in session.compiles] == [1, 0, 2, 0]
    assert session.frames == 2
    reasons = [note.data for one in session.compiles for note in one.noted("recompile_reasons")]
    assert [reason.partition("expected ")[2][0] for reason in reasons] == ["3", "4"]


def test_modules_behind_one_wrapper_are_functions_of_their_own(tmp_path: Path) -> None:
    log = log_in(tmp_path).add(str=["m.py", 1]).add(str=["/site-packages/torch/wrap.py", 2])
    for frame, (kind, line) in enumerate((("Encoder", 5), ("Encoder", 5), ("Decoder", 9))):
        for number in (0, 1):
            ids = {"frame_id": frame, "frame_compile_id": number, "attempt": 0}
            stack = [{"line": line + number, "name": "<module>", "filename": 1},
                     {"line": 3, "name": "inner", "filename": 2}]  # fmt: skip
            log.add(dynamo_start={"stack": stack}, **ids)
            guard = f"+- ID_MATCH: source=L['fn'], id, type=<class 'm.{kind}'>"
            log.add(guard, dynamo_cpp_guards_str={}, **ids)
    groups = by_function(load(tmp_path).compiles)
    shown = {key: [one.id for one in compiles] for key, compiles in groups.items()}
    assert shown == {
        ("Encoder", "m.py", 5): ["0/0", "0/1", "1/0", "1/1"],
        ("Decoder", "m.py", 9): ["2/0", "2/1"],
    }


def test_what_was_not_counted_has_no_calls(tmp_path: Path) -> None:
    diagnosis = Compiler(tmp_path).start().end()
    assert calls_of(diagnosis.session.compiles) is None
    report = as_json(diagnosis)
    assert report["calls"] is None and report["compile_list"][0]["calls"] is None


def test_malformed_calls_are_damage(tmp_path: Path) -> None:
    log = Compiler(tmp_path).start()
    log.say(Artifact("tc_run", '{"regions": [{"compile": "0/0", "how": "compiled"}]}', "json"))
    session = log.end().session
    assert session.defects.counts == {"bad_record": 1} and session.compiles[0].calls is None


def test_a_log_that_is_written_has_no_end_yet(tmp_path: Path) -> None:
    """What has no end there is no damage, and no compile that hung."""
    torch_log(tmp_path, START)
    (log,) = tmp_path.glob("*.log")
    with log.open("a") as file:
        file.write('V1120 09:14:23.968000 1 torch/x.py:1] {"chromium_ev')
        file.flush()
        session = load(tmp_path)
        assert session.written and not session.defects.counts
        assert not diagnose(session).findings
    session = load(tmp_path)
    assert not session.written and session.defects.counts == {"truncated": 1}
