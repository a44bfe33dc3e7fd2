"""What made compiling slow and could be avoided is a finding; what was fast is none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from torch_log import artifact, ids, spent, start, torch_log

from tc.trace.cachekeys import bypass_reason, lookups
from tc.trace.findings import Diagnosis

GRAPH = "def forward(self, x):\n    # File: /home/me/m.py:4 in f, code: x.sin()\n    y = x.sin()\n"


def codes(found: Diagnosis) -> dict[str, int]:
    return {one.code: one.count for one in found.findings}


def graph(frame: int, text: str = GRAPH) -> tuple[dict[str, object], str]:
    return {"dynamo_output_graph": {"sizes": {}}, **ids(frame)}, text


def test_the_same_graph_compiled_again(tmp_path: Path) -> None:
    moved = GRAPH.replace(":4 in", ":40 in")
    found = torch_log(
        tmp_path,
        start(0), graph(0), *spent(0, "lowering", 0, 2),
        start(1), graph(1, moved), *spent(1, "lowering", 2, 2),
        start(2), graph(2, "def forward(self, x):\n    y = x.cos()\n"),
    )  # fmt: skip
    (finding,) = found.findings
    assert (finding.code, finding.seconds) == ("TC302", pytest.approx(2))
    assert finding.title == "the same graph was compiled 2 times"
    assert finding.why == "[1/0] made the graph that [0/0] had made before"
    assert finding.timed


@pytest.mark.parametrize("kept", [True, False])
def test_caches_are_advised_where_there_is_something_to_keep(tmp_path: Path, kept: bool) -> None:
    """A debug backend such as `aot_eager` has no caches."""
    code = [({"inductor_output_code": {"filename": "/c/x.py"}, **ids(1)}, "def call(args): ...")]
    found = torch_log(
        tmp_path,
        start(0), graph(0), *spent(0, "lowering", 0, 2),
        start(1), graph(1), *(code if kept else ()), *spent(1, "lowering", 2, 2),
    )  # fmt: skip
    (finding,) = [one for one in found.findings if one.code == "TC302"]
    assert any("caches" in way for way in finding.fix) is kept


def test_the_same_graph_of_one_function_is_mended_at_its_recompiles(tmp_path: Path) -> None:
    again = ids(0, 1)
    found = torch_log(
        tmp_path,
        start(0), graph(0), *spent(0, "lowering", 0, 2),
        start(0, 1), ({"dynamo_output_graph": {"sizes": {}}, **again}, GRAPH),
        *spent(0, "lowering", 2, 2, 1),
    )  # fmt: skip
    (finding,) = [one for one in found.findings if one.code == "TC302"]
    assert finding.fix[0].startswith("mend what has it compiled again")


def test_fast_compiles_of_one_graph_are_no_finding(tmp_path: Path) -> None:
    rows = [start(0), graph(0), start(1), graph(1), *spent(1, "lowering", 2, 0.2)]
    assert torch_log(tmp_path, *rows).findings == []


def test_capture_that_started_over(tmp_path: Path) -> None:
    metrics = {"dynamo_time_before_restart_s": 3.5, "restart_reasons": ["a loop\n  and more"]}
    found = torch_log(
        tmp_path, start(0), ({"compilation_metrics": metrics, **ids(0)}, None),
        *spent(0, "capture", 0, 5),
    )  # fmt: skip
    (finding,) = found.findings
    assert (finding.code, finding.seconds) == ("TC301", 3.5)
    assert finding.why.endswith("3.50 s; reason: a loop")


def test_a_loop_that_was_unrolled_names_its_first_line(tmp_path: Path) -> None:
    turn = "    # File: /home/me/m.py:{} in block, code: {}\n    y = x.sin()\n"
    body = "".join(turn.format(7, "a = g(x)") + turn.format(8, "x = a + 1") for _ in range(120))
    text = "def forward(self, x):\n" + turn.format(3, "x = x * 2") + body
    metrics = ({"compilation_metrics": {"graph_op_count": 241}, **ids(0)}, None)
    found = torch_log(tmp_path, start(0), graph(0, text), metrics, *spent(0, "lowering", 0, 4))
    (finding,) = found.findings
    assert (finding.code, finding.where.line, finding.where.function) == ("TC303", 7, "block")
    assert finding.title == "a loop of 120 iterations is unrolled into one graph"
    assert finding.seconds == pytest.approx(4 * 240 / 241)


@pytest.mark.parametrize("nodes", [("mm",), ("mm", "tanh"), ("mul", "mul", "add")])
@pytest.mark.parametrize("typed", [True, False])
def test_a_loop_with_a_body_of_one_line_is_found(
    tmp_path: Path, nodes: tuple[str, ...], typed: bool
) -> None:
    """The iterations of such a body stand under one place, since their line does not change."""
    place = "    # File: /home/me/m.py:{} in f, code: {}\n"
    mark = ': "f32[4, 4]"' if typed else ""
    body = "".join(f"    {one}_{n}{mark} = g(x);  x = None\n" for n in range(240) for one in nodes)
    text = "def forward(self, x):\n" + place.format(3, "y = h(x)") + "    h = h(x)\n"
    text += place.format(5, "x = (x @ w).tanh()") + body
    metrics = ({"compilation_metrics": {"graph_op_count": 241}, **ids(0)}, None)
    found = torch_log(tmp_path, start(0), graph(0, text), metrics, *spent(0, "lowering", 0, 4))
    (finding,) = found.findings
    assert (finding.code, finding.where.line) == ("TC303", 5)
    if len(set(nodes)) == len(nodes):
        assert finding.title == "a loop of 240 iterations is unrolled into one graph"


def test_a_large_graph_of_different_lines_is_no_loop(tmp_path: Path) -> None:
    row = "    # File: /home/me/m.py:{} in f, code: x\n    y = x.sin()\n"
    text = "def forward(self, x):\n" + "".join(row.format(n) for n in range(241))
    metrics = ({"compilation_metrics": {"graph_op_count": 241}, **ids(0)}, None)
    rows = [start(0), graph(0, text), metrics, *spent(0, "lowering", 0, 4)]
    assert torch_log(tmp_path, *rows).findings == []


def test_trying_out_kernels(tmp_path: Path) -> None:
    found = torch_log(tmp_path, start(0), *spent(0, "mm_autotuning", 0, 4))
    assert codes(found) == {"TC304": 1}


@pytest.mark.parametrize(("seconds", "reported"), [(8.0, {"TC305": 1}), (4.0, {})])
def test_empty_caches_are_one_cause_of_the_run(
    tmp_path: Path, seconds: float, reported: dict[str, int]
) -> None:
    rows = [
        *spent(0, "compile_file", 0, seconds * 0.75),
        *spent(1, "compile_file", 20, seconds / 4),
    ]
    found = torch_log(tmp_path, start(0), start(1, name="g"), *rows)
    assert codes(found) == reported


def test_an_ahead_of_time_compile_builds_whatever_the_caches_hold(tmp_path: Path) -> None:
    rows = [
        ({"chromium_event": {}}, json.dumps({"name": name, "ph": phase, "ts": at * 1e6, "pid": 1,
                                             "tid": 1, "args": {}}))
        for name, phase, at in (("compile_fx_aot", "B", 0), ("compile_file", "B", 1),
                                ("compile_file", "E", 9), ("compile_fx_aot", "E", 10))
    ]  # fmt: skip
    found = torch_log(tmp_path, *rows)
    assert codes(found) == {"TC308": 1}
    assert "load" in found.findings[0].fix[0]


def test_a_hit_says_that_caches_are_kept(tmp_path: Path) -> None:
    hit = artifact(1, "fx_graph_cache_hit", '{"key": "f"}')
    found = torch_log(tmp_path, start(0), start(1), hit, *spent(0, "compile_file", 0, 9))
    assert found.findings == []


def test_what_went_past_the_cache_is_reported_once_a_reason(tmp_path: Path) -> None:
    why = "forward graph: sizes are symbolic"
    found = torch_log(
        tmp_path,
        start(0), artifact(0, "tc_graph_cache_bypass", why), *spent(0, "lowering", 0, 2),
        *spent(0, "runtime.build", 2, 3),  # built kernels are kept all the same
        artifact(0, "tc_graph_cache_bypass", why),
        start(1, name="g"), artifact(1, "tc_graph_cache_bypass", why), *spent(1, "lowering", 4, 3),
    )  # fmt: skip
    (finding,) = found.findings
    assert (finding.code, finding.count, finding.seconds) == ("TC403", 3, pytest.approx(5))
    assert finding.where.function == "g"
    assert "mark them static" in finding.fix[0] and "but for its kernels" in finding.why
    looks = [(one.cache, one.found, one.why) for one in lookups(found.session)]
    assert looks == [("tc", "bypass", why)] * 3


def test_the_reason_of_a_bypass_in_both_forms() -> None:
    assert bypass_reason("not kept: a lambda") == "not kept: a lambda"
    assert bypass_reason('{"cache_bypass_reason": "Unsupported\\n  op"}') == "Unsupported op"
    assert bypass_reason('{"cache_bypass_reason": null}') == ""
    assert bypass_reason("{") == ""


def test_compiles_that_a_reset_repeats_are_one_finding(tmp_path: Path) -> None:
    """Ids start over after a reset; what was compiled before is compiled again."""
    rows = []
    for turn in range(4):
        for frame, name in ((0, "f"), (1, "g" if turn else "h")):  # h is not called again
            begun = 10 * (2 * turn + frame)
            rows += [start(frame, name=name), *spent(frame, "lowering", begun, 0.4)]
    (finding,) = torch_log(tmp_path, *rows).findings
    assert (finding.code, finding.title) == ("TC306", "all compiled code was forgotten 3 times")
    assert "5 compiles repeated" in finding.why
    assert finding.seconds == pytest.approx(5 * 0.4)


def test_what_is_new_after_a_reset_is_not_repeated(tmp_path: Path) -> None:
    rows = [start(0, name="f"), *spent(0, "lowering", 0, 2.0)]
    rows += [start(0, name="g"), *spent(0, "lowering", 10, 2.0)]
    assert torch_log(tmp_path, *rows).findings == []
