"""The report: one file, complete, deterministic, inert."""

from __future__ import annotations

import base64
import contextlib
import gzip
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from real_traces import unpacked
from tc_log import Compiler

from tc.tlparse.report import render
from tc.trace import Artifact, StageRan
from tc.trace.findings import diagnose
from tc.trace.kinds import STAGES, label
from tc.trace.reader import Unreadable
from tc.trace.session import all_compiles, load

TRACES = unpacked()
NAMES = ("backend_crash", "dynamic", "graph_break", "recompile", "simple", "train",
         "transformer", "two_rank")  # fmt: skip

HOSTILE = (
    "</script><script>alert(1)</script><!-- \x1b[31m \u202e \u2028 \" ' & {{ 7*7 }} <!--blocks-->"
)


def page(path: Path) -> str:
    return b"".join(render(diagnose(load(path)))).decode()


def index_of(text: str) -> dict[str, Any]:
    match = re.search(r'<script type="application/json" id="index">(.*?)</script>', text, re.S)
    assert match
    return json.loads(match[1])  # type: ignore[no-any-return]


def blocks_of(text: str) -> list[list[str]]:
    packed = re.findall(r'<script type="text/plain" id="block-\d+">(.*?)</script>', text, re.S)
    return [texts_of(gzip.decompress(base64.b64decode(one))) for one in packed]


def texts_of(framed: bytes) -> list[str]:
    """Take a block apart: a line with the sizes of the texts in bytes, then the texts."""
    head, _, rest = framed.partition(b"\n")
    texts = []
    for size in json.loads(head):
        texts.append(rest[:size].decode("utf-8", "replace"))
        rest = rest[size:]
    assert not rest
    return texts


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", NAMES)
def test_every_artifact_is_in_the_page_unchanged(name: str) -> None:
    session = load(TRACES / name)
    text = b"".join(render(diagnose(session))).decode()
    index, blocks = index_of(text), blocks_of(text)
    compiles = list(all_compiles(session))
    assert [one["slug"] for one in index["compiles"]] == [one.slug for one in compiles]
    for shown, compiled in zip(index["compiles"], compiles, strict=True):
        texts = [session.text(artifact) for artifact in compiled.artifacts]
        assert blocks[shown["block"]] == texts
        assert len(shown["artifacts"]) == len(texts)


def test_the_same_trace_gives_the_same_bytes() -> None:
    assert page(TRACES / "recompile") == page(TRACES / "recompile")


def test_a_small_trace_makes_a_small_file() -> None:
    assert len(page(TRACES / "graph_break")) < 420_000


def test_the_ledger_marks_the_changed_cells() -> None:
    (function,) = index_of(page(TRACES / "recompile"))["functions"]
    book = function["ledger"]
    assert book["columns"] == ["flag", "x.shape[0]", "x.dtype"]
    cells = [(row["compile"], row["cells"], row["changed"]) for row in book["rows"]]
    assert cells[0] == ("0/0", ["True", "4", "float32"], [False, False, False])
    assert cells[3] == ("0/3", ["False", "8", "float32"], [True, False, False])
    assert cells[6] == ("0/6", ["True", "4", "float64"], [False, False, True])


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", NAMES)
def test_every_link_in_the_index_has_a_page(name: str) -> None:
    index = index_of(page(TRACES / name))
    slugs = {one["slug"] for one in index["compiles"]}
    functions = {one["name"] for one in index["functions"]}
    findings = {one["id"] for one in index["findings"]}
    for finding in index["findings"]:
        assert {one["compile"] for one in finding["occurrences"]} <= slugs
    for function in index["functions"]:
        assert set(function["compiles"]) <= slugs
    for compiled in index["compiles"]:
        assert set(compiled["findings"]) <= findings
        assert not compiled["real"] or compiled["function"] in functions


def hostile_trace(folder: Path) -> Path:
    head = "V1120 09:14:22.968000 1 torch/x.py:1] "
    ids = {"frame_id": 0, "frame_compile_id": 0, "attempt": 0}
    text = f"Graph break in user code at {HOSTILE}.py:5\nGraph Break Reason: {HOSTILE}\n"
    text += "x" * 100_000
    digest = hashlib.md5(text.encode()).hexdigest()
    stack = [{"line": 3, "name": HOSTILE, "filename": 1, "loc": HOSTILE}]
    records = [
        {"str": [HOSTILE, 1]},
        {"dynamo_start": {"stack": stack}, **ids},
        {"artifact": {"name": "../../" + HOSTILE, "encoding": "string"}, **ids},
        {HOSTILE: HOSTILE, "frame_id": HOSTILE},
        {"artifact": {"name": "dynamo_graph_break_reason"}, **ids, "has_payload": digest},
    ]
    body = "".join(head + json.dumps(one) + "\n" for one in records)
    body += "".join(f"\t{row}\n" for row in text.split("\n"))
    path = folder / "dedicated_log_torch_trace_a.log"
    path.write_text(body, encoding="utf-8")
    return path


def test_hostile_strings_are_inert(tmp_path: Path) -> None:
    text = page(hostile_trace(tmp_path))
    assert "alert(1)</script>" not in text
    assert "<script>alert" not in text
    tags = re.findall(r"<script[^>]*>", text)
    plain = [tag for tag in tags if tag.startswith('<script type="text/plain"')]
    assert len(tags) == 3 + len(plain)
    finding = index_of(text)["findings"][0]
    assert HOSTILE[:40] in finding["title"]
    assert any(HOSTILE in body for block in blocks_of(text) for body in block)


def test_the_page_may_load_nothing(tmp_path: Path) -> None:
    text = page(hostile_trace(tmp_path))
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', text)
    assert policy
    assert policy[1].startswith("default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe")
    shell = text.partition('<script type="application/json"')[0]
    assert not re.findall(r'(?:src|href)="(?!#|data:)[^"]+"', shell)
    assert "url(" not in shell
    assert "innerHTML" not in text
    assert "eval(" not in text


def test_lone_surrogates_do_not_stop_the_report(tmp_path: Path) -> None:
    head = "V1120 09:14:22.968000 1 torch/x.py:1] "
    ids = '"frame_id": 0, "frame_compile_id": 0'
    path = tmp_path / "dedicated_log_torch_trace_a.log"
    path.write_text(
        head + '{"dynamo_start": {"stack": [{"line": 1, "name": "\\ud800", "filename": -1}]}, '
        + ids + "}\n" + head + '{"odd": "\\udfff", ' + ids + "}\n"
    )  # fmt: skip
    assert "<!doctype html>" in page(path)


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_no_damage_to_a_real_log_stops_the_report(tmp_path: Path, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(["graph_break", "recompile", "backend_crash"]))
    raw = bytearray(next((TRACES / name).glob("*.log")).read_bytes())
    lines = raw.split(b"\n")
    notable = [n for n, line in enumerate(lines) if line[:1] == b"V" and b"chromium" not in line]
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.sampled_from(notable))
        line = lines[at]
        cut = data.draw(st.integers(0, len(line)))
        junk = data.draw(st.sampled_from([b"", b"7", b"null", b"[", b'"', b"\xff", b"{}", b"NaN"]))
        lines[at] = line[:cut] + junk + line[cut + data.draw(st.integers(0, 12)) :]
    path = tmp_path / "dedicated_log_torch_trace_a.log"
    path.write_bytes(b"\n".join(lines))
    with contextlib.suppress(Unreadable):
        assert "</html>" in page(path)


ODD = st.sampled_from([None, 7, "x", "", [], {}, [1], {"a": 1}, True, 1e300, "\ud800", 10**30])


def altered(value: Any, path: tuple[Any, ...], odd: Any) -> Any:
    if not path:
        return odd
    copied = value.copy()
    copied[path[0]] = altered(value[path[0]], path[1:], odd)
    return copied


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else ()
    inner = enumerate(value) if isinstance(value, list) else inner
    return [path, *(deep for key, item in inner for deep in places(item, (*path, key)))]


TC_BREAK = {"code": "TC110", "title": "t", "fix": ["a"], "line": 3, "stack": [{"file": "f"}]}
TC_CAUSES = [{"source": "n", "old": "1", "new": "2", "kind": "EQUALS", "fix": "f"}]
TC_FACTS = {
    "tc_graph_break": TC_BREAK,
    "tc_recompile": {"function": "f", "line": 3, "of": "0/0", "causes": TC_CAUSES},
    "tc_recompile_limit": {"function": "f", "line": 3, "limit": 8, "causes": TC_CAUSES},
    "tc_frame_skipped": {"function": "f", "line": 3, "reason": "r", "fix": "f"},
    "tc_error": {"stage": "s", "type": "T", "message": "m", "line": 1, "command": "c"},
    "tc_cache": {"hit": True, "key": "k", "parts": {}},
    "recompile_reasons": ["0/0: n == 1"],
    "torch_version": {"pytorch_version": "2"},
}


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_facts_of_odd_types_do_not_stop_the_report(tmp_path: Path, data: st.DataObject) -> None:
    head = "V1120 09:14:22.968000 1 torch/x.py:1] "
    name = data.draw(st.sampled_from(sorted(TC_FACTS)))
    fact = TC_FACTS[name]
    payload = json.dumps(altered(fact, data.draw(st.sampled_from(places(fact))), data.draw(ODD)))
    ids = {"frame_id": 0, "frame_compile_id": 1, "attempt": 0}
    digest = hashlib.md5(payload.encode()).hexdigest()
    start = {"dynamo_start": {"stack": [{"line": 1, "name": "f", "filename": -1}]}}
    fact_record = {"artifact": {"name": name, "encoding": "json"}, **ids, "has_payload": digest}
    path = tmp_path / "dedicated_log_torch_trace_a.log"
    path.write_text(
        f"{head}{json.dumps({**start, **ids, 'frame_compile_id': 0})}\n"
        f"{head}{json.dumps(fact_record)}\n\t{payload}\n{head}{json.dumps({**start, **ids})}\n"
    )
    assert "</html>" in page(path)


def test_every_cut_of_a_log_gives_a_report(tmp_path: Path) -> None:
    raw = next((TRACES / "graph_break").glob("*.log")).read_bytes()
    path = tmp_path / "dedicated_log_torch_trace_a.log"
    for cut in range(5000, len(raw), len(raw) // 40):
        path.write_bytes(raw[:cut])
        assert "</html>" in page(path)


@pytest.mark.parametrize(
    ("name", "words", "stage"),
    [
        ("dynamo_output_graph", "captured graph", "capture"),
        ("aot_forward_graph", "ATen graph: forward", "graph passes"),
        ("fx_graph_cache_miss", "cache miss", "cache"),
        ("torch_dynamo_resume_in_f_at_9_MODIFIED_BYTECODE", "bytecode, modified", "capture"),
        ("never_heard_of", "never heard of", "other"),
    ],
)
def test_artifacts_have_names_people_understand(name: str, words: str, stage: str) -> None:
    assert label(name) == (words, stage)
    assert stage in STAGES


def test_passes_are_named_by_stage_and_graph(tmp_path: Path) -> None:
    log = Compiler(tmp_path).start()
    log.say(StageRan("inference", "aot", 1, 4, ())).say(Artifact("tc_pass", "odd")).end()
    compiled, *_ = index_of(page(tmp_path))["compiles"]
    words = [row[2] for row in compiled["artifacts"] if row[1] == "tc_pass"]
    assert words == ["passes of aot, inference graph", "passes of a stage"]
