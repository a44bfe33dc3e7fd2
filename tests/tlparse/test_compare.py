"""Two runs compared: what differs, in sentences, JSON and a page."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tc.tlparse import difftext
from tc.tlparse.__main__ import main
from tc.tlparse.compare import DIFFERS, IDENTICAL, Comparison, compare
from tc.tlparse.hunks import hunks
from tc.tlparse.summary import headline
from tc.trace.cachekeys import misses
from tc.trace.findings import diagnose
from tc.trace.plaintext import plain_code
from tc.trace.session import load

HEAD = "V1120 09:14:22.968000 1 torch/x.py:1] "
GRAPH = "def forward(self, L_x_):\n    # File: {folder}/m.py:{line} in f, code: return x.relu()\n"
GRAPH += "    y = L_x_.{op}();  L_x_ = None\n    return (y,)"
CODE = "# {folder}\nkernel = compile('''\n#pragma omp for\n// 0x7f00aa\nout[i] = {op}(in[i]);\n''')"


def record(value: dict[str, Any], payload: str | None = None, number: int = 0) -> str:
    ids = {"frame_id": 0, "frame_compile_id": number, "attempt": 0}
    if payload is None:
        return HEAD + json.dumps({**value, **ids}) + "\n"
    digest = hashlib.md5(payload.encode()).hexdigest()
    head = HEAD + json.dumps({**value, **ids, "has_payload": digest}) + "\n"
    return head + "".join(f"\t{row}\n" for row in payload.split("\n"))


def artifact(name: str, payload: str, number: int = 0) -> str:
    return record({"artifact": {"name": name, "encoding": "json"}}, payload, number)


def components(**values: str) -> str:
    rows = [f"[h{hashlib.md5(v.encode()).hexdigest()}] {k}: {v}" for k, v in values.items()]
    rows = [row.replace("setting_", "inductor_config[", 1).replace(":", "]:", 1)
            if "setting_" in row else row for row in rows]  # fmt: skip
    return json.dumps({"key": "k", "components": rows})


def run(
    folder: Path,
    *,
    op: str = "relu",
    kernel: str = "relu",
    line: int = 5,
    compiles: int = 1,
    fusion: str = "True",
    breaks: bool = False,
) -> Path:
    folder.mkdir()
    text = HEAD + json.dumps({"str": [f"{folder}/m.py", 1]}) + "\n"
    for number in range(compiles):
        graph = GRAPH.format(folder=folder, line=line, op=op)
        start = {"stack": [{"line": line, "name": "f", "filename": 1}]}
        text += record({"dynamo_start": start}, number=number)
        text += record({"dynamo_output_graph": {}}, graph, number)
        text += record({"aot_inference_graph": {}}, f"relu = aten.{op}(x)", number)
        text += record({"inductor_output_code": {}}, CODE.format(folder=folder, op=kernel), number)
        key = components(gm=op, setting_epilogue_fusion=fusion, setting_debug="False")
        text += artifact("fx_graph_cache_miss", key, number)
        if breaks:
            reason = f"Graph break in user code at {folder}/m.py:5\nReason: generic_jump"
            text += artifact("dynamo_graph_break_reason", reason, number)
        metrics = {"inductor_config": json.dumps({"epilogue_fusion": fusion, "debug": False})}
        text += record({"compilation_metrics": metrics}, number=number)
    (folder / "dedicated_log_torch_trace_a.log").write_text(text)
    return folder


def compared(a: Path, b: Path) -> Comparison:
    return compare(diagnose(load(a)), diagnose(load(b)))


def test_another_checkout_and_moved_lines_are_no_difference(tmp_path: Path) -> None:
    reported = compared(run(tmp_path / "a"), run(tmp_path / "b", line=50))
    assert not reported.differs
    assert [one.state for one in reported.functions] == [IDENTICAL]
    assert difftext.verdict(reported).startswith("all graphs and kernels are identical")


def test_kernels_that_differ_while_graphs_do_not(tmp_path: Path) -> None:
    reported = compared(run(tmp_path / "a"), run(tmp_path / "b", kernel="gelu"))
    (compiled,) = reported.functions[0].compiles
    said = difftext.sentence(compiled)
    assert said == "captured graph, ATen graph identical; kernels differ at line 5"
    stage = difftext.first_difference(compiled)
    assert stage is not None
    assert "- out[i] = relu(in[i]);" in stage.hunks[0].rows
    assert "+ out[i] = gelu(in[i]);" in stage.hunks[0].rows


def test_a_setting_that_lost_the_cache_is_named(tmp_path: Path) -> None:
    reported = compared(run(tmp_path / "a"), run(tmp_path / "b", fusion="False"))
    assert reported.settings == (("inductor.epilogue_fusion", "True", "False"),)
    assert not reported.differs
    said = difftext.keys_sentence(reported.functions[0].compiles[0])
    assert said == ["fx_graph cache missed in B: 1 of 3 key parts differ from A: epilogue_fusion"]


def test_compiles_of_one_side_and_findings(tmp_path: Path) -> None:
    reported = compared(run(tmp_path / "a", breaks=True), run(tmp_path / "b", compiles=3))
    states = [one.state for one in reported.functions[0].compiles]
    assert states == [IDENTICAL, "only in B", "only in B"]
    assert [one.code for one in reported.gone] == ["TC110"]
    assert reported.differs


def test_a_miss_is_explained_by_the_nearest_entry(tmp_path: Path) -> None:
    folder = run(tmp_path / "a")
    log = folder / "dedicated_log_torch_trace_a.log"
    other = run(tmp_path / "b", fusion="False", op="relu").joinpath(log.name).read_text()
    log.write_text(
        log.read_text() + other.replace('"frame_compile_id": 0', '"frame_compile_id": 1')
    )
    session = load(folder)
    (miss,) = misses(session)
    assert [str(one) for one in miss.changes] == ["inductor_config[epilogue_fusion]: True → False"]
    assert (str(miss), miss.same_graph) == ("1 of 3 key parts differ", True)
    finding = diagnose(session).finding("TC402")
    assert finding is not None
    assert finding.title == "cache missed: 1 of 3 key parts differ"


def test_the_same_graph_of_other_lines_is_no_finding(tmp_path: Path) -> None:
    """Nobody can keep the lines of two functions the same."""
    text = HEAD + json.dumps({"str": ["/home/me/m.py", 1]}) + "\n"
    for number, lines in enumerate(("a", "b")):
        start = {"stack": [{"line": number, "name": "f", "filename": 1}]}
        text += record({"dynamo_start": start}, number=number)
        key = {"hit": False, "key": lines, "parts": {"graph": "g", "lines": lines, "torch": "2"}}
        text += artifact("tc_cache", json.dumps(key), number)
    (tmp_path / "dedicated_log_torch_trace_a.log").write_text(text)
    (miss,) = misses(load(tmp_path))
    assert [one.name for one in miss.changes] == ["lines"]
    assert diagnose(load(tmp_path)).finding("TC402") is None


@pytest.mark.parametrize(("process", "reported"), [(7, False), (8, True)])
def test_a_mode_that_was_switched_is_reported_by_its_recompile(
    tmp_path: Path, process: int, reported: bool
) -> None:
    """Between two processes it is a setting; within one the program asks for both."""
    for number, mode in enumerate(("autocast", "no autocast")):
        text = HEAD + json.dumps({"str": ["/home/me/m.py", 1]}) + "\n"
        text += record({"dynamo_start": {"stack": []}}, number=number)
        key = {"hit": False, "key": mode, "parts": {"graph": "g", "state": mode, "torch": "2"}}
        text += artifact("tc_cache", json.dumps(key), number)
        pid = (7, process)[number]
        log = tmp_path / f"dedicated_log_torch_trace_{pid}.log"
        before = log.read_text() if log.exists() else ""
        log.write_text(before + re.sub(r"(?m)^(V\S+ \S+) \d+ ", rf"\1 {pid} ", text))
    assert (diagnose(load(tmp_path)).finding("TC402") is not None) is reported


def test_a_new_graph_has_to_miss_and_is_no_finding(tmp_path: Path) -> None:
    folder = run(tmp_path / "a")
    log = folder / "dedicated_log_torch_trace_a.log"
    other = run(tmp_path / "b", op="gelu").joinpath(log.name).read_text()
    log.write_text(
        log.read_text() + other.replace('"frame_compile_id": 0', '"frame_compile_id": 1')
    )
    diagnosis = diagnose(load(folder))
    assert [one.same_graph for one in diagnosis.misses] == [False]
    assert diagnosis.finding("TC402") is None


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("a  # at /x/y.py:3", "a  # at /z/y.py:9", True),
        ("load('/tmp/aa/k.so')", "load('/home/k.so')", True),
        ("#pragma omp for", "#pragma omp simd", False),
        ("x = 0x7ffe12345", "x = 0x1234567", True),
        ("x = 1\n\n", "x = 1", True),
        ("x = 1", "x = 2", False),
    ],
)
def test_what_counts_as_a_difference(old: str, new: str, same: bool) -> None:
    assert (plain_code(old) == plain_code(new)) is same
    assert (not hunks(old, new)) is same


def test_two_long_texts_are_compared_fast() -> None:
    old = "\n".join(f"row {n}" for n in range(40_000))
    made = hunks(old, old.replace("row 20000\n", "other\n"))
    assert [one.line for one in made] == [20_001]


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = str(run(tmp_path / "a")), str(run(tmp_path / "b", kernel="gelu"))
    page = tmp_path / "d.html"
    assert main(["diff", a, b, "--html", str(page)]) == 0
    out = capsys.readouterr().out
    assert "≠ f [0/0]: captured graph, ATen graph identical; kernels differ at line 5" in out
    assert max(map(len, out.splitlines())) <= 100
    assert main(["diff", a, b, "--exit-code", "--json"]) == 1
    reported = json.loads(capsys.readouterr().out)
    assert reported["functions"][0]["state"] == DIFFERS
    assert main(["diff", a, a, "--exit-code"]) == 0
    first = page.read_bytes()
    assert main(["diff", a, b, "--html", str(page)]) == 0
    assert page.read_bytes() == first
    assert main(["diff", a, str(tmp_path / "none")]) == 2


def test_hostile_names_are_inert_in_the_page(tmp_path: Path) -> None:
    evil = "</pre></script><img src=x onerror=alert(1)>"
    a, b = run(tmp_path / "a", op=evil), run(tmp_path / "b", op=evil + "2", kernel="<b>")
    page = tmp_path / "d.html"
    assert main(["diff", str(a), str(b), "--html", str(page)]) == 0
    text = page.read_text()
    assert "<img" not in text
    assert len(re.findall("<script", text)) == 2
    assert "url(" not in text


def test_functions_of_one_name_pair_by_file_and_order(tmp_path: Path) -> None:
    def session(folder: Path, *places: tuple[str, int]) -> Path:
        folder.mkdir()
        text = ""
        for number, (file, line) in enumerate(places):
            start = {"stack": [{"line": line, "name": "f", "filename": number}]}
            text += HEAD + json.dumps({"str": [f"{folder}/{file}", number]}) + "\n"
            ids = {"frame_id": number, "frame_compile_id": 0, "attempt": 0}
            text += HEAD + json.dumps({"dynamo_start": start, **ids}) + "\n"
        (folder / "dedicated_log_torch_trace_a.log").write_text(text)
        return folder

    a = session(tmp_path / "a", ("m.py", 5), ("m.py", 20), ("n.py", 5))
    b = session(tmp_path / "b", ("n.py", 9), ("m.py", 25), ("m.py", 4))
    found = {
        one.name: [(pair.a and pair.a.slug, pair.b and pair.b.slug) for pair in one.compiles]
        for one in compared(a, b).functions
    }
    assert found == {
        "f in m.py (1)": [("0/0", "2/0")],
        "f in m.py (2)": [("1/0", "1/0")],
        "f in n.py": [("2/0", "0/0")],
    }
    renamed = compared(session(tmp_path / "c", ("old.py", 5)), session(tmp_path / "d", ("x.py", 5)))
    assert [(one.name, len(one.compiles)) for one in renamed.functions] == [("f", 1)]


def test_runs_of_two_versions_compare_what_they_share(tmp_path: Path) -> None:
    sides = [
        diagnose(load(folder)) for folder in (run(tmp_path / "a"), run(tmp_path / "b", kernel="x"))
    ]
    for one, version in zip(sides, ("2.12.0", "2.13.1+cpu"), strict=True):
        one.session.environment["pytorch_version"] = version
    reported = compare(*sides)
    assert reported.across and [one.state for one in reported.functions] == [IDENTICAL]
    assert difftext.verdict(reported).startswith("all captured graphs and the lines of kernels are")
    assert reported.settings == (("pytorch_version", "2.12.0", "2.13.1+cpu"),)


def resumed(folder: Path, *names: str) -> Path:
    """Write a log in which a function is resumed after a break; each a frame of its own."""
    folder.mkdir()
    text = HEAD + json.dumps({"str": ["/home/me/m.py", 1]}) + "\n"
    for number, name in enumerate(("branch", *names)):
        ids = {"frame_id": number, "frame_compile_id": 0, "attempt": 0}
        start = {"stack": [{"line": 3, "name": name, "filename": 1}]}
        text += HEAD + json.dumps({"dynamo_start": start, **ids}) + "\n"
    (folder / "dedicated_log_torch_trace_a.log").write_text(text)
    return folder


def test_both_sides_of_a_branch_pair_whatever_they_are_called(tmp_path: Path) -> None:
    """PyTorch calls the resume functions of both sides alike; tc names each by its line."""
    head = "torch_dynamo_resume_in_branch_at_"
    one_name = resumed(tmp_path / "b", f"{head}3", f"{head}3")
    reported = compared(resumed(tmp_path / "a", f"{head}4", f"{head}5"), one_name)
    pairs = [
        (one.name, [(pair.a and pair.a.id, pair.b and pair.b.id) for pair in one.compiles])
        for one in reported.functions
    ]
    assert pairs == [
        ("branch", [("0/0", "0/0")]),
        ("branch (rest 1)", [("1/0", "1/0")]),
        ("branch (rest 2)", [("2/0", "2/0")]),
    ]
    assert " of 3 functions" in headline(reported.b)


def test_a_run_has_nothing_to_say_of_itself(tmp_path: Path) -> None:
    a = run(tmp_path / "a", compiles=2)
    for other in (a, run(tmp_path / "b", compiles=2)):
        (function,) = compared(a, other).functions
        assert [miss for one in function.compiles for miss in one.misses] == []


def test_a_miss_of_what_a_run_had_is_reported(tmp_path: Path) -> None:
    a = run(tmp_path / "a")
    log = a / "dedicated_log_torch_trace_a.log"
    log.write_text(log.read_text().replace("fx_graph_cache_miss", "fx_graph_cache_hit"))
    ((compiled,),) = (one.compiles for one in compared(a, run(tmp_path / "b")).functions)
    (said,) = difftext.keys_sentence(compiled)
    assert said.endswith("0 of 3 key parts differ from A, so A's entry could have served")
