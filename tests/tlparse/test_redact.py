"""Redacted copies: what they keep, and what is nowhere in them."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from real_traces import unpacked
from torch_log import artifact, ids, start, torch_log

from tc.tlparse import cli
from tc.tlparse.__main__ import main
from tc.tlparse.redact import KINDS, redact
from tc.trace.findings import Diagnosis, diagnose
from tc.trace.session import load

HEAD = "V1120 09:14:22.968000 1 torch/x.py:1] "
SECRETS = ("/home/alice", "acme", "AcmeNet", "launch_code", "missile", "hunter2", "x * 7")
GRAPH = """\
def forward(self, L_self_modules_missile_parameters_weight_: "f32[4]", L_x_: "f32[4]"):
    # File: /home/alice/acme.py:5 in launch_code, code: y = x * 7
    mul: "f32[4]" = L_x_ * 7
    relu: "f32[4]" = torch.relu(mul)
"""
BREAK = """\
Graph break in user code at /home/alice/acme.py:6
Graph Break Reason: Data-dependent branching
User code traceback:
  File "/home/alice/acme.py", line 6, in launch_code
    if missile.sum() > x * 7:
       ^^^^^^^^^^^^^^^^^^^^^
"""
GUARDS = """\
+- TYPE_MATCH: ___check_type_id(L['self'], 94), type=<class 'acme.AcmeNet'>
+- EQUALS_MATCH: L['self'].missile == 'hunter2'  # if missile.sum() > 0  # acme.py:6 in launch_code
"""
METRICS = {
    "co_name": "launch_code", "co_filename": "/home/alice/acme.py", "co_firstlineno": 3,
    "inductor_config": json.dumps({"cache_dir": "/home/alice/cache", "debug": False}),
    "entire_frame_compile_time_s": 1.5,
}  # fmt: skip


def trace(folder: Path) -> Path:
    ids = {"frame_id": 0, "frame_compile_id": 0, "attempt": 0}
    stack = [{"line": 5, "name": "launch_code", "filename": 1, "loc": "y = x * 7"}]
    sizes = {"l_self_modules_missile_parameters_weight_": [4]}
    rows: list[tuple[dict[str, Any], str | None]] = [
        ({"dynamo_start": {"stack": stack}}, None),
        ({"dynamo_output_graph": {"sizes": sizes}}, GRAPH),
        ({"artifact": {"name": "dynamo_graph_break_reason", "encoding": "string"}}, BREAK),
        ({"dynamo_cpp_guards_str": {}}, GUARDS),
        ({"compilation_metrics": METRICS}, None),
    ]
    text = HEAD + json.dumps({"str": ["/home/alice/acme.py", 1]}) + "\n"
    for value, payload in rows:
        extra = (
            {} if payload is None else {"has_payload": hashlib.md5(payload.encode()).hexdigest()}
        )
        text += HEAD + json.dumps({**value, **ids, **extra}) + "\n"
        text += "".join(f"\t{row}\n" for row in payload.split("\n")) if payload else ""
    folder.mkdir()
    (folder / "dedicated_log_torch_trace_a.log").write_text(text)
    return folder


def copy_of(path: Path, target: Path, kinds: tuple[str, ...] = KINDS) -> tuple[str, Diagnosis]:
    target.mkdir()
    redact(str(path), kinds, target)
    text = "".join(one.read_text() for one in sorted(target.iterdir()))
    return text, diagnose(load(target))


def causes(diagnosis: Diagnosis) -> list[tuple[object, ...]]:
    """Return what a redacted report must say of the causes as the report itself does."""
    return sorted(  # causes of one cost are listed by their ids, which differ
        (one.code, one.where.line, one.count, str([(way.kind, way.safe) for way in one.fixes]))
        for one in diagnosis.findings
    )


def test_no_secret_is_left(tmp_path: Path) -> None:
    text, reported = copy_of(trace(tmp_path / "in"), tmp_path / "out")
    assert [secret for secret in SECRETS if secret in text] == []
    assert reported.session.defects.counts == {}
    (finding,) = reported.findings
    assert (finding.code, finding.where.line) == ("TC110", 6)
    assert re.fullmatch(r"/folder1/name\d+\.py", finding.where.file)
    assert reported.session.compiles[0].seconds == 1.5
    assert "torch.relu(mul)" in text


def test_the_same_thing_has_the_same_name_everywhere(tmp_path: Path) -> None:
    _, reported = copy_of(trace(tmp_path / "in"), tmp_path / "out")
    (compiled,) = reported.session.compiles
    assert compiled.function == reported.findings[0].where.function
    assert compiled.file == reported.findings[0].where.file


@pytest.mark.parametrize(
    ("kind", "gone", "kept"),
    [
        ("source", "x * 7", "/home/alice/acme.py"),
        ("paths", "/home/alice", "launch_code"),
        ("names", "launch_code", "/home/alice"),
    ],
)
def test_each_kind_by_itself(tmp_path: Path, kind: str, gone: str, kept: str) -> None:
    text, _ = copy_of(trace(tmp_path / "in"), tmp_path / "out", (kind,))
    assert gone not in text
    assert kept in text


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", ["graph_break", "recompile", "train", "two_rank", "dynamic"])
def test_counts_and_times_of_real_logs_stay(tmp_path: Path, name: str) -> None:
    path = unpacked() / f"{name}"
    before = diagnose(load(path))
    text, after = copy_of(path, tmp_path / "out")
    assert "/home/" not in text
    assert after.session.defects.counts == {}
    for reported in ("breaks", "recompiles", "failures", "limits", "misses"):
        assert len(getattr(after, reported)) == len(getattr(before, reported))
    assert causes(after) == causes(before)
    seconds = [one.seconds for one in before.session.compiles]
    assert [one.seconds for one in after.session.compiles] == pytest.approx(seconds)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, page = trace(tmp_path / "in"), tmp_path / "x.html"
    assert main([str(path), "--redact=source,paths,names", "-o", str(page)]) == 0
    first = page.read_bytes()
    assert main([str(path), "--redact=source,paths,names", "-o", str(page)]) == 0
    assert page.read_bytes() == first
    text = page.read_text().partition("<main")[2]
    assert [secret for secret in SECRETS if secret in text] == []
    assert main([str(path), "--redact=all"]) == 2
    assert "source,paths,names" in capsys.readouterr().err


@pytest.mark.parametrize("kinds", [*KINDS, ",".join(KINDS)])
def test_causes_stay_apart_and_keep_their_advice(tmp_path: Path, kinds: str) -> None:
    """Two lines of one function are two causes; files that are available are still looked at."""
    source = ["def launch(missile, target, mode):", "    print(missile)", "    y = missile + 1",
              "    print(y)", "    if target > 2:", "        y = y * target",
              "    return y"]  # fmt: skip
    file = tmp_path / "acme.py"
    file.write_text("\n".join(source))
    metrics = {"co_name": "launch", "co_filename": str(file), "co_firstlineno": 1}
    rows: list[Any] = []
    for number, line in enumerate((2, 4)):
        text = f"Graph break in user code at {file}:{line}\nReason: builtin: print\n"
        text += f'User code traceback:\n  File "{file}", line {line}, in launch\n'
        rows += [start(0, number, "launch"),
                 artifact(0, "dynamo_graph_break_reason", f"{text}{source[line - 1]}\n", number),
                 ({"compilation_metrics": metrics, **ids(0, number)}, None)]  # fmt: skip
    for number, (name, value) in enumerate((("target", "3"), ("mode", "'a'"), ("mode", "'b'")), 2):
        reason = f"0/{number - 1}: L['{name}'] == {value}"
        rows += [start(0, number, "launch"), artifact(0, "recompile_reasons", reason, number),
                 ({"compilation_metrics": metrics, **ids(0, number)}, None)]  # fmt: skip
    log = tmp_path / "log"
    log.mkdir()
    torch_log(log, *rows)
    plain, hidden = cli.load(str(log)), cli.load(str(log), redact=kinds)
    assert len(plain.findings) == 4 and causes(hidden) == causes(plain)
    values = [cause.old for one in hidden.recompiles for cause in one.causes]
    assert len(set(values)) == 3


def test_a_library_stays_one(tmp_path: Path) -> None:
    row = {"str": ["/opt/dist-packages/acme/core.py", 1]}
    torch_log(tmp_path, (row, None), start(0))
    text, _ = copy_of(tmp_path / "dedicated_log_torch_trace_x.log", tmp_path / "out")
    assert "acme" not in text and "/site-packages/" in text


def test_words_that_the_report_reads_are_not_taken_for_names(tmp_path: Path) -> None:
    """A program in `limit.py` does not hide that the recompile limit was exceeded."""
    rows: list[Any] = [start(0)]
    for number in (1, 2):
        rows.append(artifact(0, "recompile_reasons", "0/0: self.step == 0", number))
    fail = "Dynamo recompile limit exceeded; recompiles of limit"
    metrics = {"co_name": "limit", "co_filename": "/home/me/limit.py", "co_firstlineno": 3,
               "fail_type": "Unsupported", "fail_reason": fail}  # fmt: skip
    rows += [start(0, 1), ({"compilation_metrics": metrics, **ids(0, 2)}, None)]
    before = torch_log(tmp_path, *rows)
    copy = tmp_path / "copy"
    copy.mkdir()
    redact(str(tmp_path), ("source", "paths", "names"), copy)
    after = diagnose(load(copy))
    for one in (before, after):
        assert (one.recompile_count, len(one.limits), len(one.failures)) == (1, 1, 0)
