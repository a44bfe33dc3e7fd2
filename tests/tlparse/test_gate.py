"""`tc-report check`: a gate for CI, with and without a baseline."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from real_traces import unpacked
from torch_log import torch_log

from tc.tlparse.__main__ import main


def check(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = main(["check", *map(str, arguments)])
    output = capsys.readouterr()
    return code, output.out, output.err


def test_what_is_known_passes_and_what_is_new_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    known = tmp_path / "known.json"
    breaks, recompiles = (unpacked() / "graph_break"), (unpacked() / "recompile")
    assert check(capsys, breaks, "--write-baseline", known)[0] == 0
    rows = json.loads(known.read_text())["findings"]
    assert [row["id"] for row in rows] == sorted(row["id"] for row in rows)
    assert len(known.read_text().splitlines()) == len(rows) + 2  # a line each, for git

    code, out, err = check(capsys, breaks, "--baseline", known)
    assert (code, err) == (0, "")
    assert out == f"ok     new findings: 0 (known: {len(rows)})\n"

    code, out, err = check(capsys, recompiles, "--baseline", known)
    assert code == 1
    assert "check failed: 3 new: TC2" in err
    assert out.count("fix: ") == 3 and "gone: TC104-" in out


def test_more_of_a_known_cause_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    known = tmp_path / "known.json"
    trace = unpacked() / "graph_break"
    check(capsys, trace, "--write-baseline", known)
    known.write_text(known.read_text().replace('"count": 2', '"count": 1'))
    code, out, _ = check(capsys, trace, "--baseline", known)
    assert code == 0 and "occurs 2 times, 1 in the baseline" in out


def test_a_summary_is_a_baseline_too_and_json_has_it_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["summary", str(unpacked() / "graph_break"), "--json"])
    known = tmp_path / "known.json"
    known.write_text(capsys.readouterr().out)
    code, out, _ = check(capsys, (unpacked() / "graph_break"), "--baseline", known, "--json")
    report = json.loads(out)
    assert (code, report["ok"], report["new_findings"], report["gone_findings"]) == (
        0,
        True,
        [],
        [],
    )
    code, out, _ = check(capsys, (unpacked() / "simple"), "--baseline", known, "--json")
    assert code == 0 and len(json.loads(out)["gone_findings"]) == 2


@pytest.mark.parametrize("text", [None, "garbage", "[]", '{"findings": [1]}'])
def test_no_baseline_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | None
) -> None:
    known = tmp_path / "known.json"
    if text is not None:
        known.write_text(text)
    code, out, err = check(capsys, (unpacked() / "simple"), "--baseline", known)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "--write-baseline" in err


@pytest.mark.parametrize("form", ["text", "json", "junit"])
def test_a_log_without_any_compile_does_not_pass(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str
) -> None:
    torch_log(tmp_path, ({"artifact": {"name": "torch_version", "encoding": "json"}}, "{}"))
    code, out, err = check(capsys, tmp_path, "--max-graph-breaks", 0, "--format", form)
    assert code == 1
    assert "no compile was recorded: TC_TRACE=DIR records those of tc.compile" in out
    assert "check failed: no compile was recorded" in err


def test_a_limit_below_zero_is_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = check(capsys, (unpacked() / "simple"), "--max-recompiles", "-1")
    assert code == 2
    assert "--max-recompiles: a whole number from 0 on is needed, not '-1'" in err


@pytest.mark.parametrize(
    "name",
    ["ZZ", "TC10x", "", "TC", "tc104", "TC104-", "TC104-zzzz", "TC777", "TC1234", "TC104-d293-"],
)
def test_what_no_finding_can_be_called_is_refused(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = check(capsys, unpacked() / "simple", "--absent", name)
    if name == "TC104-":  # what an id begins with
        assert (code, err) == (0, "")
        return
    assert (code, out, err.count("\n")) == (2, "", 1) and "--absent" in err
    assert check(capsys, "nowhere", "--absent", name)[0] == 2


def test_all_that_should_be_gone_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    trace = unpacked() / "recompile"
    main(["summary", str(trace), "--json"])
    ids = [one["id"] for one in json.loads(capsys.readouterr().out)["findings"]]
    ids = [one for one in ids if one.startswith("TC2")]
    assert len(ids) > 1
    code, out, err = check(capsys, trace, "--absent", "TC2", "--absent", ids[0])
    assert code == 1 and f"{len(ids)} are there" in out
    assert all(f"       {one} ×" in out for one in ids)
    assert f"{len(ids)} still there: {' '.join(ids[:5])}" in err
    code, out, _ = check(capsys, trace, "--absent", "TC2", "--json")
    assert [one["id"] for one in json.loads(out)["present_findings"]] == ids
    assert "1 is there" in check(capsys, trace, "--absent", ids[0])[1]


@pytest.mark.parametrize(
    ("trace", "limit", "code"),
    [("graph_break", "--max-graph-breaks", "TC104-"), ("recompile", "--max-recompiles", "TC201-")],
)
def test_what_is_above_a_limit_is_named(
    trace: str, limit: str, code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", str(unpacked() / trace), limit, "0"]) == 1
    said = capsys.readouterr().out
    assert code in said and "          fix: " in said
    assert main(["check", str(unpacked() / trace), limit, "99"]) == 0
    assert code not in capsys.readouterr().out
