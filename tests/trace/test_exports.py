"""Draft exports: each issue that PyTorch records is a finding, with the user's line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tc.trace.findings import Finding, diagnose
from tc.trace.session import load

FRAMES = [
    {"line": 1778, "name": "_call_impl", "filename": 2, "loc": "return forward(*args)"},
    {"line": 9, "name": "forward", "filename": 1, "loc": "if n > 3:"},
]


def found(folder: Path, context: Any = None, **events: Any) -> dict[str, Finding]:
    rows = [{"str": ["/home/user/m.py", 1]},
            {"str": ["/venv/lib/python3.11/site-packages/torch/nn/modules/module.py", 2]},
            {"str": ["/venv/lib/python3.11/site-packages/torch/export/__init__.py", 3]},
            *({name: value, **(context or {})} for name, value in events.items())]  # fmt: skip
    log = folder / "dedicated_log_torch_trace_a.log"
    head = "V1120 09:14:22.968000 1 torch/x.py:1] "
    log.write_text("".join(f"{head}{json.dumps(row)}\n" for row in rows))
    diagnosis = diagnose(load(log))
    assert diagnosis.session.defects.counts == {}
    return {one.code: one for one in diagnosis.findings}


def test_each_issue_is_a_finding(tmp_path: Path) -> None:
    issues = found(
        tmp_path,
        missing_fake_kernel={"op": "mylib.foo.default"},
        mismatched_fake_kernel={"op": "mylib.bar.default", "reason": "dtypes differ"},
        propagate_real_tensors_provenance={
            "expr": "u0 > 3", "result": "True", "user_stack": FRAMES, "stack": FRAMES,
            "frame_locals": {"loc": "x", "locals": {"n": ["u0"]}, "symbols": {}},
        },
        guard_added={"expr": "Eq(s0, 8)", "symbol_to_sources": {"s0": "L['x'].size()[0]"},
                     "user_stack": FRAMES},
    )  # fmt: skip
    assert sorted(issues) == ["TC801", "TC802", "TC803", "TC804"]
    assert "'mylib::foo'" in issues["TC801"].fix[0]
    assert issues["TC802"].why == "dtypes differ"
    guessed = issues["TC803"]
    assert guessed.title == "u0 > 3 depends on tensor data"
    assert guessed.where.short == "m.py:9 in forward" and guessed.where.source == "if n > 3:"
    assert "s0 = L['x'].size()[0]" in issues["TC804"].why


STACK = [
    {"line": 8, "name": "<module>", "filename": 1, "loc": "ep = export(M(), (x,))"},
    {"line": 171, "name": "export", "filename": 3, "loc": "return _export("},
    {"line": 1778, "name": "_call_impl", "filename": 2, "loc": "return forward(*args)"},
    {"line": 5, "name": "forward", "filename": 1, "loc": "return x.reshape(4, -1)"},
    {"line": 8058, "name": "evaluate_expr", "filename": 2, "loc": "r = self._inner("},
]


@pytest.mark.parametrize("is_export", [True, False])
def test_a_dynamic_size_that_an_export_takes_for_a_constant_is_a_finding(
    is_export: bool, tmp_path: Path
) -> None:
    stack = STACK if is_export else [one for one in STACK if one["filename"] != 3]
    row = {"symbol": "s77", "sources": ["L['x'].size()[0]"], "value": "4", "stack": stack}
    row["user_stack"] = []
    issues = found(tmp_path, {"stack": stack}, symbolic_shape_specialization=row)
    assert ("TC804" in issues) is is_export
    if is_export:
        assert issues["TC804"].title == "export holds only where x.shape[0] == 4"
        assert issues["TC804"].where.short == "m.py:5 in forward"


def test_odd_values_are_counted_not_fatal(tmp_path: Path) -> None:
    issues = found(tmp_path, guard_added={"user_stack": [7, {"line": "x"}], "expr": None})
    assert list(issues) == ["TC804"]
    assert list(found(tmp_path, missing_fake_kernel=["odd"])) == ["TC910"]
