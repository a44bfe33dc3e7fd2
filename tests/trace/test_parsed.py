"""Numbers of a log: what is none is missing, and no reader stops at it."""

from __future__ import annotations

import ast
import hashlib
import json
import re
from pathlib import Path

import pytest
from support import ROOT

from tc.tlparse.__main__ import main
from tc.trace.parsed import (
    LARGEST,
    line_number,
    measured,
    parse_counting,
    parse_json,
    real,
    whole,
)

pytestmark = pytest.mark.usefixtures("no_passes")

HUGE = "9" * 400
ODD = ("NaN", "Infinity", "-Infinity", "1e400", "-1e400", "1e308", HUGE, '"nan"', '"1e400"',
       '"inf"', "null", "true", "[]", '"x"')  # fmt: skip


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e400", "-1e400"])
@pytest.mark.parametrize("around", ["%s", '{"a": [%s]}', " [%s]"])
def test_what_is_not_finite_is_none(text: str, around: str) -> None:
    value, missing = parse_counting(around % text)
    assert (value, missing) == (json.loads(around % "null"), 1)
    assert parse_json((around % text).encode()) == value


def test_finite_numbers_stay() -> None:
    text = f'[1, 1.5, -2e300, {HUGE}, "NaN"]'
    assert parse_counting(text) == ([1, 1.5, -2e300, int(HUGE), "NaN"], 0)


def test_numbers_are_read_or_refused() -> None:
    assert (real("1.5"), whole(3.0), measured(2), line_number(7)) == (1.5, 3, 2.0, 7)
    odd_ones = (float("nan"), float("inf"), "nan", "-inf", "1e400", 10**400, HUGE, 2 * LARGEST)
    for odd in odd_ones:
        with pytest.raises(ValueError):
            real(odd)
        with pytest.raises(ValueError):
            whole(odd)
        assert measured(odd) is None and line_number(odd) == 0
    assert measured(None) is None and line_number(-1) == line_number("3") == 0


def places(value: object, path: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
    """Return where a JSON value has numbers."""
    if isinstance(value, dict):
        return [one for key, inner in value.items() for one in places(inner, (*path, key))]
    if isinstance(value, list):
        return [one for at, inner in enumerate(value) for one in places(inner, (*path, at))]
    return [path] if isinstance(value, (int, float)) and not isinstance(value, bool) else []


PAYLOADS: tuple[tuple[str, dict[str, object]], ...] = (
    ("chromium_event", {"ph": "X", "name": "compile", "ts": 5, "dur": 9e9, "tid": 1, "pid": 1,
                        "args": {"compile_id": "0/0"}}),
    ("tc_run", {"regions": [{"compile": "0/0", "calls": 3, "how": "code", "sampled": 2,
                             "seconds": 0.5}]}),
    ("tc_profile", {"bandwidth": 1e10, "arithmetic": 1e11, "programs": [
        {"compile": "0/0", "graph": "inference", "function": "f", "file": "a.py", "line": 3,
         "calls": 3, "seconds": 3.0, "usual": 1.0, "whole": 1.5, "eager": 0.1, "instead": 1.0,
         "checked": 1, "handed": 2, "guards": 0.1,
         "steps": [{"name": "k", "seconds": 1.0, "busy": 0.5, "places": ["a.py:3"], "line": 3,
                    "moved": 10, "operations": 10, "fresh": 1, "copies": 0}],
         "gaps": [{"after": "0/0", "graph": "inference", "times": 2, "seconds": 2.0,
                   "usual": 1.0}]}]}),
    ("tc_memory", {"graph": "inference", "alive": [1, 2], "kept": 4, "steps": ["a", "b"],
                   "lines": ["", ""], "holders": [{"name": "x", "step": "", "line": "",
                                                   "bytes": 5}], "inputs": []}),
    ("tc_sentinel", {"kind": "wrong", "function": "f", "file": "a.py", "line": 3, "call": 2,
                     "message": "differs"}),
    ("tc_ranks", {"kind": "diverged", "rank": 0, "other": 1, "line": 3, "file": "a.py",
                  "what": "x", "message": "m", "function": "f"}),
)  # fmt: skip
METRICS: dict[str, object] = {
    "entire_frame_compile_time_s": 5.0, "dynamo_time_before_restart_s": 4.0, "graph_op_count": 3,
    "restart_reasons": ["a reason"], "co_name": "f", "co_filename": "a.py", "co_firstlineno": 3,
    "inductor_fx_cache_hit_count": 2,
}  # fmt: skip


def log_of(values: dict[str, str]) -> bytes:
    """Return a log of these payloads; metrics are a record of their own."""
    head = b"V1120 09:14:22.968000 1 torch/x.py:1] "
    ids = b'"frame_id": 0, "frame_compile_id": 0, "attempt": 0'
    lines = [head + b'{"dynamo_start": {"stack": []}, ' + ids + b"}\n"]
    for name, text in values.items():
        if name == "compilation_metrics":
            lines.append(head + f'{{"{name}": {text}, '.encode() + ids + b"}\n")
            continue
        digest = hashlib.md5(text.encode()).hexdigest()
        key = "{}" if name == "chromium_event" else json.dumps({"name": name, "encoding": "json"})
        event = "chromium_event" if name == "chromium_event" else "artifact"
        record = f'{{"{event}": {key}, "has_payload": "{digest}", '
        lines.append(head + record.encode() + ids + b"}\n\t" + text.encode() + b"\n")
    return b"".join(lines)


def odd_at(value: dict[str, object], path: tuple[object, ...], odd: str) -> str:
    """Return a value as JSON, with something else at a place."""
    copied = json.loads(json.dumps(value))
    inner = copied
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = "@"
    return json.dumps(copied).replace('"@"', odd)


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", [*(name for name, _ in PAYLOADS), "compilation_metrics"])
def test_no_number_of_a_log_stops_a_reader(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole_log = {**dict(PAYLOADS), "compilation_metrics": METRICS}
    log = tmp_path / "a.log"
    for path in places(whole_log[name]):
        for odd in ODD:
            texts = {one: json.dumps(value) for one, value in whole_log.items()}
            texts[name] = odd_at(whole_log[name], path, odd)
            log.write_bytes(log_of(texts))
            code = main([str(log), "--json", "-o", str(tmp_path / "report.html")])
            out, err = capsys.readouterr()
            assert code == 0, (name, path, odd, err)
            assert not re.search(r"\b(NaN|Infinity)\b", out), (name, path, odd)
            if odd in ("NaN", "1e400"):
                assert "bad number 1" in err, (name, path, odd, err)


def test_one_way_to_read_numbers_of_records() -> None:
    """`float(row["seconds"])` would let damage through; `real` and its like do not."""
    wrong = []
    for file in sorted((ROOT / "trace").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            if node.func.id in ("int", "float") and node.args and _of_record(node.args[0]):
                wrong.append(f"{file.name}:{node.lineno}")
    assert not wrong, "read with tc.trace.parsed: " + ", ".join(wrong)


def _of_record(value: ast.expr) -> bool:
    """Whether an expression takes something out of a row of a log by its name."""
    inner = value.values[0] if isinstance(value, ast.BoolOp) else value
    if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute):
        return inner.func.attr == "get"
    names = ("match", "comment", "behind", "inner", "code", "m")  # of regular expressions
    return (
        isinstance(inner, ast.Subscript)
        and isinstance(inner.slice, ast.Constant)
        and isinstance(inner.slice.value, str)
        and not (isinstance(inner.value, ast.Name) and inner.value.id in names)
    )
