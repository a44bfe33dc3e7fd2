"""Findings: the truth of real logs, and tc's own traces."""

from __future__ import annotations

import hashlib
import itertools
import json
import time
from pathlib import Path
from typing import Any

import pytest
from real_traces import unpacked
from tc_log import Compiler
from torch_log import IDS, START, artifact, ids, spent, start, torch_log

from tc.tlparse.summary import as_json
from tc.trace import Region, RegionsRan
from tc.trace import events as ev
from tc.trace.findings import Diagnosis, diagnose
from tc.trace.findings.advice import ROWS, advise
from tc.trace.findings.forecast import Step, plan, together
from tc.trace.findings.model import Cause
from tc.trace.findings.reasons import parse_reason
from tc.trace.findings.recompiles import _with_items
from tc.trace.findings.remedies import subject_about
from tc.trace.guardtext import values
from tc.trace.ids import CompileId
from tc.trace.recipes import Kind
from tc.trace.session import given_up, load

TRACES = unpacked()

TRUTH = {  # folder: graph breaks, recompiles, failed compiles (shared/traces/README.md)
    "backend_crash": (0, 0, 1),
    "dynamic": (0, 2, 0),
    "graph_break": (3, 0, 0),
    "recompile": (0, 6, 0),
    "simple": (0, 0, 0),
    "train": (0, 0, 0),
    "transformer": (0, 1, 0),
    "two_rank": (0, 1, 0),
}


def real(name: str) -> Diagnosis:
    return diagnose(load(TRACES / name))


def summed(diagnosis: Diagnosis, family: str) -> int:
    return sum(one.count for one in diagnosis.findings if one.code.startswith(family))


@pytest.mark.parametrize("name", TRUTH)
def test_counts_of_real_logs_are_exact(name: str) -> None:
    found = real(name)
    counted = (len(found.breaks), found.recompile_count, len(found.failures))
    assert counted == TRUTH[name]
    assert (summed(found, "TC1"), summed(found, "TC2"), summed(found, "TC9")) == TRUTH[name]
    for finding in found.findings:
        finding.verify()
        assert finding.fix
        assert finding.where.file
        assert finding.where.line


def test_graph_breaks_of_a_real_log() -> None:
    found = {one.code: one for one in real("graph_break").findings}
    branch, call = found["TC110"], found["TC104"]
    assert (branch.count, branch.reference, branch.where.line) == (1, "GB0170", 9)
    marked = branch.where.source[branch.where.col : branch.where.end_col]
    assert marked == "y.sum() > 0"
    assert (call.count, call.reference, call.where.short) == (
        2,
        "GB0059",
        "graph_break.py:4 in inner",
    )
    assert call.title == "print() is called while tracing"
    assert [one.compile for one in call.occurrences] == ["1/0", "2/0"]


def test_each_recompile_names_what_changed_since_the_nearest_compile() -> None:
    reported = [
        (one.compiled.id, one.of, [str(cause) for cause in one.causes])
        for one in real("recompile").recompiles
    ]
    assert reported == [
        ("0/1", "0/0", ["flag: True → False"]),
        ("0/2", "0/0", ["x.shape[0]: 4 → 8"]),
        ("0/3", "0/2", ["flag: True → False"]),
        ("0/4", "0/2", ["x.shape[0]: 8 → 16"]),
        ("0/5", "0/4", ["flag: True → False"]),
        ("0/6", "0/0", ["x.dtype: float32 → float64"]),
    ]


def test_causes_that_the_log_never_mentions_are_found_in_the_guards() -> None:
    (one,) = real("transformer").recompiles
    assert [cause.source for cause in one.causes] == [
        "grad_mode",
        "fn.layers[0].training",
        "fn.layers[1].training",
    ]
    assert (one.causes[0].old, one.causes[0].new) == ("True", "False")


def test_a_size_made_dynamic_is_distinguished_from_one_that_is_not() -> None:
    first, second = real("dynamic").recompiles
    assert (str(first.causes[0]), first.causes[0].now_dynamic) == ("x.shape[0]: 8 → 12", True)
    assert (second.causes[0].kind, second.causes[0].new) == ("shape", "18")


def test_ids_survive_another_checkout_other_lines_and_ranks(tmp_path: Path) -> None:
    source = next((TRACES / "graph_break").glob("*.log")).read_bytes()
    moved = source.replace(b"/home/user/lab/scripts/", b"/elsewhere/")
    for before, after in ((b"line 9", b"line 99"), (b"py:9", b"py:99"), (b"line 4", b"line 5")):
        moved = moved.replace(before, after)
    (tmp_path / "dedicated_log_torch_trace_rank_5_x.log").write_bytes(moved)
    ids = sorted(one.id for one in diagnose(load(tmp_path)).findings if one.code < "TC9")
    assert ids == sorted(one.id for one in real("graph_break").findings)


# ------------------------------------------------------------------------------ tc's own traces


def a_break(**changes: Any) -> ev.GraphBreak:
    facts: dict[str, Any] = {
        "code": "TC110",
        "title": "branch depends on tensor data",
        "why": "the data is not known yet",
        "file": "/home/me/model.py",
        "line": 6,
        "function": "f",
        "fix": ("- if x.sum() > 0:", "+ torch.where(x.sum() > 0, a, b)"),
        "col": 7,
        "end_col": 18,
        "source_line": "    if x.sum() > 0:",
    }
    return ev.GraphBreak(**{**facts, **changes})


def test_a_break_of_tc_and_its_twin_count_once(tmp_path: Path) -> None:
    found = Compiler(tmp_path).start().say(a_break()).end()
    (finding,) = found.findings
    assert (len(found.breaks), finding.count, finding.code) == (1, 1, "TC110")
    assert finding.where.source[finding.where.col : finding.where.end_col] == "x.sum() > 0"
    assert finding.fix == ("- if x.sum() > 0:", "+ torch.where(x.sum() > 0, a, b)")
    assert found.session.producer == "tc"
    assert found.session.defects.counts == {}


def test_the_id_is_the_one_that_the_terminal_prints(tmp_path: Path) -> None:
    from tc.trace.ids import cause_id

    (finding,) = Compiler(tmp_path).start().say(a_break()).end().findings
    assert finding.id == cause_id("TC110", "/home/me/model.py", "f", a_break().title)


def test_one_cause_on_two_lines_is_two_findings_with_two_ids(tmp_path: Path) -> None:
    other = a_break(line=9, source_line="    if x.max() > 0:")
    found = Compiler(tmp_path).start().say(a_break()).say(other).say(other).end()
    assert sorted((one.where.line, one.count) for one in found.findings) == [(6, 1), (9, 2)]
    assert len({one.id for one in found.findings}) == 2


def recompile(*causes: ev.RecompileCause) -> ev.Recompile:
    return ev.Recompile("f", "/home/me/model.py", 3, CompileId(0, 0), causes)


STEP = ev.RecompileCause("self.step", "self.step == 0", "0", "1", "int")
SIZES = ev.RecompileCause(
    "x.shape[1], x.shape[0]", "x.shape[1] == 1 + x.shape[0]", "4, 3", "5, 3", "a condition on sizes"
)
SCALE = ev.RecompileCause("scale", "scale == 1.0", "1.0", "1.5", "float", now_dynamic=True)


def test_a_recompile_of_tc_with_two_causes(tmp_path: Path) -> None:
    found = Compiler(tmp_path).start().say(recompile(STEP, SCALE), 1).start(1).end()
    (finding,) = found.findings
    assert (found.recompile_count, finding.count, finding.code) == (1, 1, "TC201")
    assert [cause.source for cause in finding.causes] == ["self.step", "scale"]
    assert finding.fix[0] == "make self.step a 0-d tensor where it is set: torch.tensor(0)"
    assert found.status(found.session.compiles[1]) == "recompile"


def test_a_thousand_recompiles_of_one_cause_are_one_finding(tmp_path: Path) -> None:
    compiler = Compiler(tmp_path).start()
    for number in range(1, 101):
        compiler.say(recompile(STEP), number).start(number)
    found = compiler.end()
    assert [one.count for one in found.findings] == [100]


def test_the_recompile_limit(tmp_path: Path) -> None:
    limit = ev.RecompileLimit("f", "/home/me/model.py", 3, 8, (STEP,))
    found = Compiler(tmp_path).start().say(limit, 1).end()
    (finding,) = found.findings
    assert (finding.code, finding.title) == ("TC209", "f reached the recompile limit (8)")
    assert (found.recompile_count, len(found.session.compiles)) == (0, 1)


def test_a_limit_comes_behind_what_reached_it_and_names_it(tmp_path: Path) -> None:
    limit = ev.RecompileLimit("f", "/home/me/model.py", 3, 2, (STEP,))
    compiler = Compiler(tmp_path).start().say(recompile(STEP), 1).start(1)
    found = compiler.say(recompile(SCALE), 2).start(2).say(limit, 3).end()
    codes = [one.code for one in found.findings]
    assert codes == ["TC201", "TC201", "TC209"]
    *causes, last = found.findings
    assert all(one.id in last.fix[0] for one in causes) and "other findings" not in last.fix[0]


def test_skips_and_errors(tmp_path: Path) -> None:
    found = (
        Compiler(tmp_path)
        .start()
        .say(ev.FrameSkipped("gen", "/home/me/model.py", 9, "it is a generator", "use a list"))
        .say(
            ev.CompileError(
                "codegen", "KeyError", "no 'sin'", "/home/me/model.py", 4, "python r.py"
            )
        )
        .end()
    )
    error, skip = found.findings
    assert (error.code, error.where.line, error.fix) == (
        "TC900",
        4,
        ("reproduce it with: python r.py",),
    )
    assert (skip.code, skip.title, skip.fix) == ("TC190", "gen runs in Python", ("use a list",))
    assert (len(found.failures), len(found.skips)) == (1, 1)


def test_guards_that_are_no_tree_hold_nothing() -> None:
    assert values("") == {}
    assert values("+- TENSOR_MATCH: check_tensor(") == {}


def test_guards_of_tc_are_read_like_those_of_torch() -> None:
    text = (
        "GLOBAL_STATE: global_state() == {'default_dtype': 6, 'grad_mode': False}\n"
        "TYPE: is_type(L['self'], the(0x5, '__main__.M'))  # /tmp/a.py:6\n"
        "EQUALS: same(L['self'].step, 0)  # /tmp/a.py:6\n"
        "BOOL: L['flag'] is True\n"
        "LENGTH: has_length(L['xs'], 2, the(0x7, 'list'))\n"
        "LENGTH: is_type(L['ys'], the(0x7, 'list')) and has_length(L['ys'], 3)\n"  # until 2026-11
        "TENSOR: check_tensor("
        "L['self'].__dict__['_modules']['fc'].__dict__['_parameters']['weight'],"
        " 'torch.nn.parameter.Parameter', torch.float32, device(type='cuda', index=1),"
        " requires_grad=True, size=[4, None], stride=[4, 1], keys='CUDA, A')\n"
    )
    assert values(text) == {
        "default_dtype": "float32",
        "grad_mode": "False",
        "type(self)": "__main__.M",
        "self.step": "0",
        "flag": "True",
        "len(xs)": "2",
        "len(ys)": "3",
        "self.fc.weight": "a tensor",
        "self.fc.weight is a parameter": "True",
        "self.fc.weight.dtype": "float32",
        "self.fc.weight.requires_grad": "True",
        "self.fc.weight.device": "cuda:1",
        "self.fc.weight.ndim": "2",
        "self.fc.weight.shape[0]": "4",
        "self.fc.weight.shape[1]": "dynamic",
    }


def test_each_row_of_advice_can_be_reached_and_names_no_id_twice() -> None:
    ids = [number for row in ROWS for number in row.ids]
    assert len(ids) == len(set(ids))
    for row in ROWS:
        assert advise(row.ids[0], "")[0] is row
        assert row.why
        assert row.title
        assert "{}" not in advise(row.ids[0], "")[1]


def test_what_would_help_is_foredistinguished_from_the_guards() -> None:
    rows = [
        {"step": str(n), "x.shape[0]": "4" if n == 0 else f"dynamic ({4 + n})", "scale": scale}
        for n, scale in enumerate(("1.0", "1.5", "1.5", "1.5"))
    ]
    steps = plan(rows, ["step", "x.shape[0]", "scale"])
    assert [str(step) for step in steps] == ["step: 3 → 1", "x.shape[0], scale: 1 → 0"]


def test_nothing_is_foretold_where_the_guards_do_not_explain_the_past() -> None:
    assert plan([{"a": "1"}, {"a": "1"}], ["a"]) == ()
    assert plan([{"a": "1"}, {}], ["a"]) == ()
    rows = [{"a": "1"}, {"a": "2"}]
    assert [str(step) for step in plan(rows, ["a", "dispatch keys of x"])] == ["a: 1 → 0"]
    assert plan(rows, ["a", "some state"]) == (), "it changed as well, and no guard shows when"


def test_parts_of_one_function_are_foretold_together() -> None:
    first = (Step(("x",), 3, 1), Step(("y",), 1, 0))
    second = (Step(("x",), 2, 2), Step(("y",), 2, 0))
    assert together([first, second]) == (Step(("x",), 5, 3), Step(("y",), 3, 0))
    assert together([(Step(("z",), 1, 0),), first]) == first
    assert together([]) == ()


def test_the_forecast_of_a_real_log() -> None:
    first = real("recompile").findings[0]
    assert first.forecast == ("x.shape[0]: 6 → 2", "flag: 2 → 1", "x.dtype: 1 → 0")
    assert first.reason == "flag" and not any(way.verified for way in first.fixes)


@pytest.mark.parametrize(
    ("causes", "lead"),
    [
        ((SCALE, STEP), "self.step"),
        ((SCALE,), "scale"),
        ((ev.RecompileCause("L['self'].k", "", "1", "2", "int"), STEP), "self.k"),
        ((SIZES,), "a branch on x.shape[1], x.shape[0]"),
        (
            (ev.RecompileCause("a[(1, 2)]", "", "1", "2", "a constant in the graph"),),
            "a[(1, 2)] is",
        ),
    ],
)
def test_a_recompile_has_one_id_in_the_terminal_and_in_the_report(
    tmp_path: Path, causes: tuple[ev.RecompileCause, ...], lead: str
) -> None:
    from tc.trace.logsink import LogSink

    reported: list[str] = []

    class Speaker:
        def info(self, topic: str, message: Any) -> None:
            reported.append(message.id)

    event = recompile(*causes)
    sink = LogSink({"recompiles": 1}, Speaker())
    sink.write(ev.Stamped(event, CompileId(0, 1), time.time_ns(), __file__, 1))
    (finding,) = Compiler(tmp_path).start().say(event, 1).start(1).end().findings
    assert reported == [finding.id]
    assert finding.title.startswith(lead)


def test_a_condition_on_several_sizes_is_reported_as_a_branch(tmp_path: Path) -> None:
    (finding,) = Compiler(tmp_path).start().say(recompile(SIZES), 1).start(1).end().findings
    assert finding.title == "a branch on x.shape[1], x.shape[0] took the other side"
    assert "x.shape[1] == 1 + x.shape[0]" in finding.fix[0]
    assert not any("mark_dynamic" in way for way in finding.fix)


def test_what_was_made_dynamic_in_vain_is_not_advised(tmp_path: Path) -> None:
    first = ev.RecompileCause(
        "n", "same(L['n'], 1)", "1", "2", "a constant in the graph", "made dynamic now; …", True
    )
    again = ev.RecompileCause("n", "n == 2", "2", "3", "a condition on sizes")
    compiled = Compiler(tmp_path).start().say(recompile(first), 1).start(1)
    (finding,) = compiled.say(recompile(again), 2).start(2).end().findings
    assert finding.count == 2 and finding.fix[0].startswith("compute what needs n")
    assert not any("dynamic" in way for way in finding.fix)


@pytest.mark.parametrize("values, few", [("ab", True), ("abcdef", False)])
def test_a_string_of_many_values_is_not_left_alone(tmp_path: Path, values: str, few: bool) -> None:
    compiler = Compiler(tmp_path).start()
    for number, (old, new) in enumerate(itertools.pairwise(values), 1):
        guard = f"same(L['mode'], {old!r})"
        cause = ev.RecompileCause("mode", guard, repr(old), repr(new), "a constant in the graph")
        compiler.say(recompile(cause), number).start(number)
    (finding,) = compiler.end().findings
    first = "nothing to do" if few else "compute what needs mode as plain Python"
    assert finding.fix[0].startswith(first)
    assert any("choose outside" in way for way in finding.fix)


def test_a_refusal_that_torch_records_as_metrics_is_no_compile(tmp_path: Path) -> None:
    """Torch 2.15 writes metrics, but no start, for a recompile beyond the limit."""
    head = "V1120 09:14:22.968000 1 torch/x.py:1] "
    start = {"dynamo_start": {"stack": [{"line": 6, "name": "f", "filename": -1}]}}
    reason = "Dynamo recompile limit exceeded\n  Explanation: ..."
    metrics = {"co_name": None, "fail_type": "Unsupported", "fail_reason": reason}
    rows = [
        head + json.dumps({**start, "frame_id": 0, "frame_compile_id": 0, "attempt": 0}) + "\n",
        head + json.dumps({**start, "frame_id": 0, "frame_compile_id": 1, "attempt": 0}) + "\n",
    ]
    text = "0/0: n == 1"
    digest = hashlib.md5(text.encode()).hexdigest()
    event = {"artifact": {"name": "recompile_reasons", "encoding": "json"}, "has_payload": digest}
    for number in (1, 2):
        again = {**event, "frame_id": 0, "frame_compile_id": number, "attempt": 0}
        rows.insert(number, f"{head}{json.dumps(again)}\n\t{text}\n")
    last = {"frame_id": 0, "frame_compile_id": 2, "attempt": 0}
    rows.append(head + json.dumps({"compilation_metrics": metrics, **last}) + "\n")
    (tmp_path / "dedicated_log_torch_trace_a.log").write_text("".join(rows))
    found = diagnose(load(tmp_path))
    assert (len(found.session.compiles), len(found.failures)) == (2, 0)
    assert [one.code for one in found.findings if one.code == "TC209"] == ["TC209"]


def test_what_a_limit_costs_is_foretold_too(tmp_path: Path) -> None:
    tree = "EQUALS: same(L['self'].step, {})\n"
    rows: list[Any] = [START, ({"dynamo_cpp_guards_str": {}, **IDS}, tree.format(0))]
    for number in (1, 2, 3):
        at = ids(0, number)
        reason = f"0/{number - 1}: self.step == {number - 1}"
        rows.append(artifact(0, "recompile_reasons", reason, number))
        if number < 3:
            rows.append(start(0, number))
            rows.append(({"dynamo_cpp_guards_str": {}, **at}, tree.format(number)))
    found = torch_log(tmp_path, *rows)
    again = next(one for one in found.findings if one.code == "TC201")
    assert again.forecast == ("self.step: 2 → 0, none in Python",)
    assert "without self.step: 2 → 0 recompiles, none in Python (predicted)" in str(again)
    assert [way.replayed for way in again.fixes] == [True]
    assert "(review, guard replayed)" in str(again)


def test_the_time_of_a_resume_function_counts_for_one_break(tmp_path: Path) -> None:
    text = "Graph break in user code at /home/me/m.py:5\nReason: print\nUser code traceback:\n"
    text += '  File "/home/me/m.py", line 5, in f\n    print(x)\n'
    rows: list[Any] = []
    rest = "torch_dynamo_resume_in_f_at_5"
    for frame, name in enumerate(("f", rest, "f", rest)):
        metrics = {"co_name": name, "co_filename": "/home/me/m.py", "co_firstlineno": 3}
        rows += [start(frame), ({"compilation_metrics": metrics, **ids(frame)}, None)]
        if name == "f":
            rows.append(artifact(frame, "dynamo_graph_break_reason", text))
        rows += spent(frame, "capture", frame * 10, frame + 1)
    (finding,) = (one for one in torch_log(tmp_path, *rows).findings if one.code[:3] == "TC1")
    assert (finding.count, finding.seconds) == (2, pytest.approx(2 + 4))


def test_files_of_python_itself_are_not_the_users() -> None:
    from tc.trace.compiles import Compile, Frame

    wrapped = Compile("0/0", 1, None, 0, file="/venv/lib/python3.11/site-packages/torch/nn/x.py")
    wrapped.frames = tuple(
        Frame(file, line, "f")
        for file, line in (
            ("/home/me/train.py", 7),
            ("/usr/lib/python3.11/contextlib.py", 81),
            ("/venv/lib/python3.11/site-packages/torch/nn/x.py", 9),
        )
    )
    assert wrapped.home == ("/home/me/train.py", 7)


def test_calls_that_ran_in_python_are_a_cost(tmp_path: Path) -> None:
    def ran(name: str, calls: int) -> Region:
        return Region(name, "f", "m.py", 3, "python", calls, 0, 0.0)

    log = Compiler(tmp_path).start().say(ev.FrameSkipped("f", "m.py", 3, "a generator"))
    log.say(ev.RecompileLimit("g", "m.py", 9, 8), 8, 1).start(0, 2, "h")
    log.say(ev.FrameSkipped("h", "m.py", 20, "a coroutine"), 0, 2)
    found = log.say(RegionsRan((ran("0/0", 1200), ran("1/8", 1)))).end()
    costs = {one.where.line: (one.cost, one.python_calls) for one in found.findings}
    assert costs == {
        3: ("1,200 calls in Python", 1200), 9: ("1 call in Python", 1), 20: ("", None)
    }  # fmt: skip
    report = as_json(found)
    assert report["calls"]["python"] == 1201
    assert {one["calls_in_python"] for one in report["findings"]} == {1200, 1, None}
    (skipped, *_) = found.session.compiles
    assert skipped.calls is not None and skipped.calls.count == 0


def test_a_limit_of_tc_is_a_refusal_to_compile_once_more(tmp_path: Path) -> None:
    cause = ev.RecompileCause("n", "L['n'] == 1", "1", "9", "a constant")
    log = Compiler(tmp_path).start()
    found = log.say(ev.RecompileLimit("f", "/home/me/model.py", 3, 1, (cause,)), 1).end()
    (one,) = found.recompiles
    assert one.refused and [(c.source, c.new) for c in one.causes] == [("n", "9")]
    assert (found.recompile_count, len(found.limits)) == (0, 1)
    (refused,) = given_up(found.session, found.session.compiles)
    assert refused.function == "f" and not refused.started


def test_what_a_break_passes_on_is_fixed_at_the_break(tmp_path: Path) -> None:
    cause = ev.RecompileCause("___stack2", "L['___stack2'] == 1", "1", "2", "a constant")
    again = ev.Recompile("f", "m.py", 3, CompileId(0, 0), (cause,))
    (found,) = Compiler(tmp_path).start().start(1).say(again, 1).end().findings
    assert found.title == "a value from before a graph break changes"
    assert found.fix == ("fix the graph break before it: then no value is passed across it",)
    assert found.why.endswith("left behind (was 1, then 2)")
    assert found.reason == "a value from before the break"


TESTED = "def g(x, flag):\n    return x * flag if flag > 2 else x + flag\n"


def test_a_dynamic_number_that_is_tested_has_a_graph_for_each_side(tmp_path: Path) -> None:
    file = tmp_path / "m.py"
    file.write_text(TESTED)
    rows: list[Any] = [start(0)]
    reasons = ("0/0: flag == 5", "0/1: flag <= 2  # return x * flag  # m.py:2 in g")
    for number, reason in enumerate(reasons, 1):
        metrics = {"co_name": "g", "co_filename": str(file), "co_firstlineno": 1}
        symbol = {"symbol": "s0", "val": str(number), "source": "L['flag']"}
        tree = f"+- LAMBDA_GUARD: L['flag'] <= {number}  # return x * flag"
        rows += [artifact(0, "recompile_reasons", reason, number), start(0, number),
                 ({"create_symbol": symbol, **ids(0, number)}, None),
                 ({"dynamo_cpp_guards_str": {}, **ids(0, number)}, tree),
                 ({"compilation_metrics": metrics, **ids(0, number)}, None)]  # fmt: skip
    made = [one for one in torch_log(tmp_path, *rows).findings if one.code == "TC201"]
    assert "a branch on flag took the other side" in [one.title for one in made]
    asked = next(one for one in made if "branch" in one.title)
    assert (asked.where.line, asked.fix[0].startswith("the code asks whether flag <= 2")) == (
        2,
        True,
    )


def test_a_condition_is_placed_at_its_own_line(tmp_path: Path) -> None:
    file = str(tmp_path / "m.py")
    Path(file).write_text("@compile\n" + TESTED)
    asked = ev.RecompileCause("flag", "flag <= 2", "2", "3", "a condition on sizes", False, file, 3)
    first = ev.RecompileCause(
        "flag", "same(L['flag'], 1)", "1", "2", "a constant in the graph", True, file, 3
    )
    log = Compiler(tmp_path).start()
    for number, cause in enumerate((first, asked), 1):
        log.say(ev.Recompile("g", file, 1, CompileId(0, number - 1), (cause,)), number).start(
            number
        )
    found = [one for one in log.end().findings if one.code == "TC201"]
    assert {one.where.line for one in found} == {3}
    assert found[0].title == "flag was a constant in the graph"
    assert found[0].fix[0].startswith("nothing to do: each side of the test has a graph")


def test_a_guard_that_found_none_is_about_the_input_itself() -> None:
    guard = "expected type of 'L['mask']' to be a tensor type, ' but found <class 'NoneType'>"
    cause = parse_reason(guard)
    assert (cause.source, cause.old, cause.new) == ("mask", "a tensor", "None")


def test_a_size_of_a_parameter_is_reported_without_what_torch_says_behind_it() -> None:
    guard = (
        "tensor 'self._modules['a']._parameters['bias']' size mismatch at index 0. expected 8, "
        "actual 2. Guard failed on a parameter, consider using force_parameter_static_shapes"
    )
    cause = parse_reason(guard)
    assert (cause.source, cause.old, cause.new) == ("self.a.bias.shape[0]", "8", "2")


def test_an_item_of_a_dict_is_named_by_its_place() -> None:
    cause = parse_reason("d.state[list(dict.keys(d.state))[0]]['turn'] == 1")
    assert (cause.source, cause.old) == ("list(d.state.values())[0]['turn']", "1")


def test_a_line_is_quoted_from_other_events_and_from_graphs(tmp_path: Path) -> None:
    """A recompile of PyTorch's after a break names the line of the break, without its text."""
    broke = (
        "Graph break in user code at /home/me/m.py:5\nReason: print\nUser code traceback:\n"
        '  File "/home/me/m.py", line 5, in f\n    print(x)\n'
    )
    graph = "class GraphModule:\n    # File: /home/me/m.py:9 in g, code: return x * n\n"
    name = {"str": ["/home/me/m.py", 1]}, None

    def began(frame: int, line: int, number: int = 0) -> tuple[dict[str, Any], None]:
        stack = [{"line": line, "name": "f" if line == 5 else "g", "filename": 1}]
        return {"dynamo_start": {"stack": stack}, **ids(frame, number)}, None

    found = torch_log(
        tmp_path, name, began(0, 1), artifact(0, "dynamo_graph_break_reason", broke),
        began(1, 5), began(1, 5, 1), artifact(1, "recompile_reasons", "1/0: L['n'] == 2", 1),
        began(2, 9), began(2, 9, 1), ({"dynamo_output_graph": {}, **ids(2, 1)}, graph),
        artifact(2, "recompile_reasons", "2/0: L['n'] == 2", 1),
    ).findings  # fmt: skip
    texts = {one.where.line: one.where.source for one in found if one.code == "TC201"}
    assert texts == {5: "print(x)", 9: "return x * n"}


def test_a_range_that_a_number_left_is_about_that_number() -> None:
    cause = parse_reason("-1 <= L['self'].index <= 2")
    assert (cause.source, cause.old, cause.kind) == ("self.index", "-1 <= self.index <= 2", "shape")


def test_a_length_says_what_it_is_the_length_of(tmp_path: Path) -> None:
    tree = "TENSOR: check_tensor(L['xs'][0], 'torch.Tensor', torch.float32, device(type='cpu'), "
    tree += "requires_grad=False, size=[2], stride=[1], keys='CPU')\n"
    tree += "EQUALS: same(L['names'][0], 'a')\n"
    held = values(tree)
    known = [_with_items(Cause(f"len({name})", "1", "2", "length"), held) for name in
             ("xs", "names")]  # fmt: skip
    assert [one.of_tensors for one in known] == [True, False]
    assert [subject_about(one).kind for one in known] == [Kind.LENGTH, Kind.COUNT]
    of_dict = _with_items(Cause("len(d)", "0", "", "length"), {"list(d.values())[0]['turn']": "1"})
    assert (of_dict.source, subject_about(of_dict).kind) == ("list(d)", Kind.KEYS)
