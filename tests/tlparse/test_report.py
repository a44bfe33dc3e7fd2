"""The report: one file, complete, deterministic, inert."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from tc.tlparse.names import STAGES, label
from tc.tlparse.report import render
from tc.trace.findings import diagnose
from tc.trace.session import all_compiles, load

SHARED = Path(os.environ.get("TC_SHARED", Path(__file__).resolve().parents[3] / "shared"))
TRACES = SHARED / "traces"
needs_traces = pytest.mark.skipif(not TRACES.is_dir(), reason=f"no real traces in {TRACES}")
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
    return [json.loads(gzip.decompress(base64.b64decode(one))) for one in packed]


@needs_traces
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


@needs_traces
def test_the_same_trace_gives_the_same_bytes() -> None:
    assert page(TRACES / "recompile") == page(TRACES / "recompile")


@needs_traces
def test_a_small_trace_makes_a_small_file() -> None:
    assert len(page(TRACES / "graph_break")) < 400_000


@needs_traces
def test_the_ledger_marks_the_changed_cells() -> None:
    (function,) = index_of(page(TRACES / "recompile"))["functions"]
    book = function["ledger"]
    assert book["columns"] == ["flag", "x.shape[0]", "x.dtype"]
    cells = [(row["compile"], row["cells"], row["changed"]) for row in book["rows"]]
    assert cells[0] == ("0/0", ["True", "4", "float32"], [False, False, False])
    assert cells[3] == ("0/3", ["False", "8", "float32"], [True, False, False])
    assert cells[6] == ("0/6", ["True", "4", "float64"], [False, False, True])


@needs_traces
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
