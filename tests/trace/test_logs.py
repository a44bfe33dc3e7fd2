"""TC_LOGS: each cause once, on stderr, whatever the variables hold."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from event_samples import BREAK, SAMPLES

import tc.trace as trace
from tc.trace import (
    Artifact,
    Cache,
    CompileError,
    CompileId,
    CreateSymbol,
    FrameSkipped,
    FrameStart,
    GraphBreak,
    Guards,
    Metrics,
    OutputGraph,
    Recompile,
    RecompileCause,
    RecompileLimit,
    StackFrame,
)
from tc.trace.logs import (
    TOPICS,
    help_text,
    read_switches,
    set_logs,
    setup_from_text,
)

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def quiet_afterwards(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("NO_COLOR", "FORCE_COLOR", "RANK", "WORLD_SIZE", "TC_TRACE"):
        monkeypatch.delenv(name, raising=False)
    yield
    set_logs()


def step(number: int, *more: RecompileCause) -> Recompile:
    cause = RecompileCause(
        "self.step",
        f"self.step == {number}",
        str(number),
        str(number + 1),
        "Python int attribute, a constant in the graph",
    )
    return Recompile("M.forward", "s_recomp.py", 5, CompileId(0, number), (cause, *more))


# --- switches -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "levels"),
    [
        ("graph_breaks", {"graph_breaks": 1}),
        ("+graph_breaks,recompiles", {"graph_breaks": 2, "recompiles": 1}),
        (" graph_breaks , , recompiles,", {"graph_breaks": 1, "recompiles": 1}),
        ("graph_breaks recompiles\n", {"graph_breaks": 1, "recompiles": 1}),
        ("-graph_breaks", {}),
        ("all,-guards", {name: 1 for name in TOPICS if name != "guards"}),
        ("+all", dict.fromkeys(TOPICS, 2)),
        ("graph_breaks,-all", {}),
        ("recompiles_verbose,-verbose_guards", {"recompiles": 2}),  # names of TORCH_LOGS
        ("post_grad_graphs,+caching", {"aot_graphs": 1, "cache": 2}),
        ("", {}),
        (",", {}),
        ("+", {}),
    ],
)
def test_grammar(text: str, levels: dict[str, int]) -> None:
    assert read_switches(text) == (levels, [], False)


def test_unknown_names_are_listed_and_the_rest_counts() -> None:
    assert read_switches("grph_breaks,+foo,guards") == (
        {"guards": 1},
        ["grph_breaks", "foo"],
        False,
    )


def test_unknown_name_warns_once_with_the_nearest(caplog: pytest.LogCaptureFixture) -> None:
    setup_from_text("graph_break,graph_break")
    assert len(caplog.records) == 1
    assert "did you mean graph_breaks?" in caplog.text
    assert not trace.enabled()


def test_name_far_from_all_lists_all(caplog: pytest.LogCaptureFixture) -> None:
    setup_from_text("zzz")
    assert all(name in caplog.text for name in TOPICS)


def test_unknown_format_falls_back(caplog: pytest.LogCaptureFixture) -> None:
    setup_from_text("graph_breaks", "jsn")
    assert "did you mean json?" in caplog.text and trace.enabled()


def test_help_names_every_topic(capsys: pytest.CaptureFixture[str]) -> None:
    setup_from_text("help")
    done = capsys.readouterr()
    assert done.out == "" and done.err.strip() == help_text()
    assert all(f"  {name} " in done.err for name in TOPICS)
    assert max(map(len, done.err.splitlines())) <= 100


def test_set_logs_refuses_what_does_not_exist() -> None:
    with pytest.raises(ValueError, match="did you mean recompiles"):
        set_logs(recompile=True)
    with pytest.raises(ValueError, match="did you mean short"):
        set_logs(format="shor", guards=True)


def test_set_logs_replaces(capsys: pytest.CaptureFixture[str]) -> None:
    set_logs(recompiles=True, graph_breaks=False)
    trace.emit(BREAK)
    set_logs(graph_breaks="+")
    trace.emit(step(0))
    trace.emit(BREAK)
    set_logs()
    trace.emit(BREAK)
    assert not trace.enabled()
    text = capsys.readouterr().err
    assert text.count("graph break:") == 1 and "called on sum_1" in text
    assert "TC201" not in text


# --- graph breaks -------------------------------------------------------------------------------


def test_break_in_full(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    set_logs(graph_breaks=True)
    with trace.compiling(CompileId(2, 0)):
        trace.emit(
            GraphBreak(
                code="TC110",
                title="branch depends on tensor data",
                why="bool() of a tensor, computed by gt(sum_1, 0)",
                file="/s_break.py",
                line=3,
                function="torch_dynamo_resume_in_helper_at_3",
                col=7,
                end_col=18,
                source_line="    if x.sum() > 0:          # data-dependent branch",
                fix=("- if x.sum() > 0:\n+ torch.where(...)", "torch.cond(...)"),
            )
        )
    done = capsys.readouterr()
    assert done.out == ""
    assert done.err == (
        "↯ TC110 graph break: branch depends on tensor data                "
        "s_break.py:3 in helper [2/0]\n"
        "    3 |     if x.sum() > 0:          # data-dependent branch\n"
        "      |        ^^^^^^^^^^^ bool() of a tensor, computed by gt(sum_1, 0)\n"
        "   fix  - if x.sum() > 0:\n"
        f"        {'+ torch.where(...)':<73}  review, unchecked\n"
        f"   or   {'torch.cond(...)':<73}  review, unchecked\n"
        "\n"
    )


def test_caret_counts_characters_not_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    line = "é = ü.item()"
    col = len("é = ".encode())
    set_logs(graph_breaks=True)
    trace.emit(
        replace(BREAK, source_line=line, col=col, end_col=len(line.encode()), end_line=7, why="")
    )
    assert "\n      |     ^^^^^^^^\n" in capsys.readouterr().err


def test_break_without_anything_known(capsys: pytest.CaptureFixture[str]) -> None:
    set_logs(graph_breaks=True)
    trace.emit(GraphBreak("TC199", "something", "", "nowhere.py", 1, "f"))
    assert "no edit is known" in capsys.readouterr().err


def test_source_line_is_read_from_the_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "m.py").write_text("a = 1\nb = 2\n")
    set_logs(graph_breaks=True)
    trace.emit(replace(BREAK, file=str(tmp_path / "m.py"), line=2, source_line="", col=None))
    assert "    2 | b = 2\n      | ^^^^^ " in capsys.readouterr().err


def test_repeats_are_only_counted(capsys: pytest.CaptureFixture[str]) -> None:
    set_logs(graph_breaks=True)
    for number in range(100):
        trace.emit(BREAK, CompileId(number, 0))
    reported = capsys.readouterr().err
    set_logs()
    counts = capsys.readouterr().err
    assert reported.count("TC101") == 1
    assert counts.startswith("tc: 1 cause of graph breaks at 1 line (100 events)\n")
    assert "×100" in counts and "tc-report" in counts


def test_one_cause_at_other_lines_is_reported_briefly(capsys: pytest.CaptureFixture[str]) -> None:
    set_logs(graph_breaks=True)
    for line in range(100):
        trace.emit(replace(BREAK, line=line))
    set_logs()
    text = capsys.readouterr().err
    assert text.count("as above") == 4
    assert len(text.splitlines()) < 30


def test_skipped_function_once(capsys: pytest.CaptureFixture[str]) -> None:
    set_logs(graph_breaks=True)
    for _ in range(3):
        trace.emit(FrameSkipped("g", "m.py", 3, "it is a generator", "return a list"))
    text = capsys.readouterr().err
    assert text.count("g runs in Python: it is a generator") == 1 and "m.py:3" in text


def test_hostile_source_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    set_logs(graph_breaks="+")
    evil = "x\x1b[2J\x9b\u202e\r"
    trace.emit(
        replace(BREAK, source_line=evil, title=evil, why=evil, fix=(evil,), file=evil, detail=evil)
    )
    set_logs()
    text = capsys.readouterr().err
    assert not any(character in text for character in "\x1b\x9b\u202e\r")
    assert "\\x1b[2J" in text


# --- recompiles ---------------------------------------------------------------------------------


def test_recompile_in_full(capsys: pytest.CaptureFixture[str]) -> None:
    shape = RecompileCause("x.shape[0]", "x.shape[0] == 4", "4", "5", "size", now_dynamic=True)
    set_logs(recompiles=True)
    trace.emit(step(0, shape), CompileId(0, 1))
    assert capsys.readouterr().err == (
        "↻ TC201 recompiling M.forward                                     s_recomp.py:5 [0/1]\n"
        "   2 inputs changed since [0/0]; any one of them forces a recompile\n"
        "     self.step   0 → 1  Python int attribute, a constant in the graph\n"
        "       fix: make self.step a 0-d tensor: self.register_buffer('step',\n"
        "            torch.tensor(0), persistent=False) where it is set                     "
        "review, unchecked\n"
        "     x.shape[0]  4 → 5  size; made dynamic now, later values reuse this\n"
        "\n"
    )


def test_same_inputs_are_folded_and_counted(capsys: pytest.CaptureFixture[str]) -> None:
    set_logs(recompiles=True)
    for number in range(7):
        trace.emit(step(number), CompileId(0, number + 1))
    for _ in range(3):
        trace.emit(RecompileLimit("M.forward", "s_recomp.py", 5, 8))
    reported = capsys.readouterr().err
    set_logs()
    counts = capsys.readouterr().err
    assert reported.count("TC201") == 1 and reported.count("TC209") == 1 and "EAGERLY" in reported
    assert "tc: M.forward  7 recompiles" in counts
    assert "6 more of the same: self.step 1 → 2 … 6 → 7   [0/2]–[0/7]" in counts
    assert len((reported + counts).splitlines()) <= 20


def test_a_new_input_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    set_logs(recompiles=True)
    trace.emit(step(0))
    trace.emit(step(1, RecompileCause("__import_a_dot_b.scale", "G", "1.0", "1.5", "float")))
    first, again = capsys.readouterr().err.split("\n\n")[:2]
    assert "  a.b.scale" in again and "register_buffer" in first
    assert "register_buffer" not in again  # its first value is the one to begin with


def test_plus_recompiles_reports_each(capsys: pytest.CaptureFixture[str]) -> None:
    set_logs(recompiles="+")
    for number in range(20):
        trace.emit(step(number))
    assert capsys.readouterr().err.count("recompiling M.forward") == 20


def test_last_line_names_the_next_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TC_TRACE", "my_traces")
    set_logs(recompiles=True, graph_breaks=True)
    trace.emit(BREAK)
    trace.emit(step(0))
    set_logs()
    assert capsys.readouterr().err.endswith("    more: tc-report my_traces\n")


@pytest.mark.parametrize("kinds", [1, 3, 1000])
def test_a_thousand_recompiles_stay_short(capsys: pytest.CaptureFixture[str], kinds: int) -> None:
    set_logs(recompiles=True)
    for number in range(1000):
        trace.emit(
            replace(
                step(number),
                causes=(
                    RecompileCause(
                        f"d[{number % kinds}]", "d[0] == 0", str(number), "x" * 500, "int"
                    ),
                ),
            )
        )
    set_logs()
    text = capsys.readouterr().err
    assert len(text.splitlines()) < (30 if kinds == 1 else 60)
    assert "1000 recompiles" in text
    assert max(map(len, text.splitlines())) <= 130


# --- the rest -----------------------------------------------------------------------------------


def test_documents_name_their_function(capsys: pytest.CaptureFixture[str]) -> None:
    set_logs(graph_code=True, guards=True)
    with trace.compiling(CompileId(4, 1)):
        trace.emit(FrameStart((StackFrame("m.py", 3, "forward"),)))
        trace.emit(OutputGraph("graph():\n    return x\n"))
        trace.emit(Guards(["int"], ["n"], ["n == 3"], [("m.py", 4)]))
    text = capsys.readouterr().err
    assert "captured graph of forward" in text and "[4/1]\ngraph():\n    return x\n" in text
    assert "n == 3  # m.py:4" in text


@pytest.mark.parametrize("form", ["full", "short", "json", "github"])
def test_every_event_in_every_format(capsys: pytest.CaptureFixture[str], form: str) -> None:
    set_logs(all="+", format=form)
    for event in SAMPLES:
        trace.emit(event, CompileId(0, 1))
    assert trace.enabled(), "the sink broke"
    set_logs()
    done = capsys.readouterr()
    assert done.out == "" and done.err
    if form == "json":
        objects = [json.loads(line) for line in done.err.splitlines()]
        assert {item["topic"] for item in objects} >= set(TOPICS)


def test_short_is_one_line_a_finding(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/home")
    set_logs(graph_breaks=True, recompiles=True, format="short")
    trace.emit(BREAK, CompileId(0, 0))
    trace.emit(step(0), CompileId(0, 1))
    set_logs()
    assert capsys.readouterr().err == (
        "user/model.py:7:5: TC101 graph break: Tensor.item() needs a Python number [0/0]\n"
        "s_recomp.py:5: TC201 recompiling M.forward (self.step 0 → 1) [0/1]\n"
    )


def test_github_annotations_escape_their_text(capsys: pytest.CaptureFixture[str]) -> None:
    set_logs(graph_breaks=True, format="github")
    trace.emit(replace(BREAK, title="a,b:c%", why="one\ntwo", fix=()))
    text = capsys.readouterr().err
    assert text.startswith("::warning file=/home/user/model.py,line=7,col=5,title=TC101 graph")
    assert "a%2Cb%3Ac%25" in text and "::one%0Atwo%0Ano edit is known\n" in text


def test_summary_counts_what_is_not_reported(capsys: pytest.CaptureFixture[str]) -> None:
    set_logs(summary=True)
    trace.emit(BREAK)
    trace.emit(step(0))
    trace.emit(Metrics("0/0", "f", entire_frame_compile_time_s=1.5))
    trace.emit(Metrics("1/0", "torch_dynamo_resume_in_f_at_3", entire_frame_compile_time_s=0.5))
    trace.emit(Cache(True, "k"))
    assert capsys.readouterr().err == ""
    set_logs()
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == (
        "tc: 2 compiles of 1 function · 2.00 s · 1 graph break · 1 recompile "
        "· cache 1 of 1 hit · 0 failures"
    )
    assert lines[1].split() == ["2.00", "s", "×2", "f"]


def test_a_backward_counts_to_its_function(capsys: pytest.CaptureFixture[str]) -> None:
    set_logs(summary=True)
    trace.emit(Metrics("0/0", "f", entire_frame_compile_time_s=1.5))
    trace.emit(Metrics("0/0", "f", entire_frame_compile_time_s=0.25, is_forward=False))
    set_logs()
    assert capsys.readouterr().err.startswith("tc: 1 compile of 1 function · 1.75 s ·")


def test_compile_errors_are_reported_once_whatever_is_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    set_logs(guards=True)
    for _ in range(2):
        trace.emit(CompileError("loops.lower", "KeyError", "boom", "m.py", 3, "python repro.py"))
    text = capsys.readouterr().err
    assert text.count("loops.lower failed: KeyError") == 1
    assert "boom" in text and "python repro.py" in text


def test_user_handlers_hear_plain_text(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    set_logs(graph_breaks=True)
    trace.emit(BREAK)
    assert [record.levelname for record in caplog.records] == ["INFO"]
    assert "TC101" in caplog.records[0].getMessage()
    assert capsys.readouterr().err.count("TC101") == 1


def test_a_console_handler_of_the_user_does_not_double(capsys: pytest.CaptureFixture[str]) -> None:
    console = logging.StreamHandler(sys.stdout)
    logging.getLogger().addHandler(console)
    try:
        set_logs(graph_breaks=True)
        trace.emit(BREAK)
    finally:
        logging.getLogger().removeHandler(console)
    done = capsys.readouterr()
    assert done.out == "" and done.err.count("TC101") == 1


def test_the_logger_is_left_as_it_was() -> None:
    logger = logging.getLogger("tc")
    before = (logger.level, logger.propagate, list(logger.handlers))
    set_logs(all=True)
    set_logs()
    assert (logger.level, logger.propagate, list(logger.handlers)) == before


def test_rank_stands_in_front(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch.distributed", None)
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "8")
    set_logs(graph_breaks=True)
    trace.emit(BREAK)
    assert capsys.readouterr().err.startswith("[rank 3] ↯ TC101")


def test_colour_only_when_wanted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    set_logs(graph_breaks=True)
    trace.emit(BREAK)
    assert "\x1b[31m^" in capsys.readouterr().err
    monkeypatch.setenv("NO_COLOR", "1")
    trace.emit(replace(BREAK, line=8))
    assert "\x1b" not in capsys.readouterr().err


def test_out_file_gets_the_same(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    set_logs(graph_breaks=True, out=str(tmp_path / "new" / "log_{rank}_{pid}.txt"))
    trace.emit(BREAK)
    set_logs()
    written = (tmp_path / "new" / f"log_0_{os.getpid()}.txt").read_text()
    assert written == capsys.readouterr().err and "TC101" in written


def test_out_file_that_cannot_be(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    set_logs(graph_breaks=True, out=str(tmp_path / "file" / "log.txt"))
    trace.emit(BREAK)
    assert "TC_LOGS_OUT" in caplog.text
    assert "TC101" in capsys.readouterr().err


def test_closed_stderr_does_not_hurt(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    set_logs(graph_breaks=True)
    with (tmp_path / "x").open("w") as closed:
        pass
    monkeypatch.setattr(sys, "stderr", closed)
    trace.emit(BREAK)
    assert not trace.enabled()


# --- whole processes ----------------------------------------------------------------------------

PROGRAM = """
import os, sys
from dataclasses import replace
import tc.trace as trace
from tc.trace import *
trace.setup_from_environment()
sys.path.insert(0, "tests")
from event_samples import BREAK
trace.emit(BREAK)
if "fork" in sys.argv:
    if os.fork() == 0:
        trace.emit(BREAK)
        sys.exit()
    os.wait()
print("done")
"""


def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    kept = {key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ}
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=True,
        cwd=ROOT,
        env={**kept, **variables},
    )


def test_counts_come_at_exit() -> None:
    done = run(TC_LOGS="graph_breaks")
    assert done.stdout == "done\n"
    assert done.stderr.index("↯ TC101") < done.stderr.index("tc: 1 cause of graph breaks")


def test_ascii_terminals_get_ascii() -> None:
    done = run(TC_LOGS="graph_breaks", PYTHONIOENCODING="ascii")
    assert done.stderr.isascii() and done.stderr.startswith("* TC101")


def test_help_prints_and_goes_on() -> None:
    done = run(TC_LOGS="help")
    assert done.stdout == "done\n" and done.stderr.strip() == help_text()


def test_a_forked_child_counts_for_itself() -> None:
    done = run("fork", TC_LOGS="graph_breaks")
    assert done.stderr.count("(1 event)") == 2


def test_ids_are_those_of_the_report(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    from tc.trace import findings, session
    from tc.trace.writer import TraceWriter

    writer = TraceWriter(str(tmp_path))
    trace.add_sink(writer)
    set_logs(graph_breaks=True, recompiles=True, format="json")
    for number in range(3):
        with trace.compiling(CompileId(0, number)):
            if number:
                trace.emit(step(number - 1))
            trace.emit(FrameStart((StackFrame("s_recomp.py", 5, "M.forward"),)))
            trace.emit(BREAK)
            trace.emit(Metrics(f"0/{number}", "M.forward", "s_recomp.py", 5))
    trace.emit(FrameSkipped("g", "m.py", 3, "it is a generator"))
    trace.emit(RecompileLimit("M.forward", "s_recomp.py", 5, 8))
    trace.remove_sink(writer)
    reported = {json.loads(line)["id"] for line in capsys.readouterr().err.splitlines()}
    found = findings.diagnose(session.load(str(tmp_path))).findings
    assert reported == {finding.id for finding in found} and len(reported) == 4


def test_symbols_caches_plans_and_slow_graphs_have_topics(
    capsys: pytest.CaptureFixture[str],
) -> None:
    set_logs(cache=True, dynamic=True, perf_hints=True, schedule=True)
    place = StackFrame("/home/user/model.py", 7, "forward")
    reported = (
        CreateSymbol("s0", "5", "[2, 9]", "x.shape[0]", (place,)),
        Cache(True, "abcdef"),
        Artifact("tc_graph_cache_bypass", "sizes are symbolic"),
        Artifact("tc_graph_runs_eagerly", "a sparse tensor appears"),
        Artifact("tc_plan", "k0: for p0 < 3"),
        Artifact("notes", "of no topic"),
    )
    for event in reported:
        trace.emit(event)
    text = capsys.readouterr().err
    for piece in (
        *("s0 = 5 in [2, 9], of x.shape[0]", "model.py:7", "cache hit: graph abcdef"),
        *("cache not asked: sizes are symbolic", "op by op: a sparse tensor", "k0: for p0 < 3"),
    ):
        assert piece in text
    assert "no topic" not in text
    set_logs(guards=True)
    for event in reported:
        trace.emit(event)
    assert capsys.readouterr().err == ""
