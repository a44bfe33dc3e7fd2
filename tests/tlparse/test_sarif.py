"""`--format sarif`: what code hosts read of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from real_traces import unpacked

from tc.tlparse.__main__ import main
from tc.tlparse.cli import load
from tc.tlparse.sarif import FINGERPRINT, ROOT, sarif
from tc.trace.findings import Diagnosis

TRACES = ("graph_break", "recompile", "backend_crash", "two_rank", "train")


def run_of(diagnosis: Diagnosis, root: Path | None = None) -> dict[str, Any]:
    report = sarif(diagnosis, root)
    assert report["version"] == "2.1.0" and len(report["runs"]) == 1
    run: dict[str, Any] = report["runs"][0]
    return run


@pytest.mark.parametrize("name", TRACES)
def test_each_finding_is_a_result_with_its_rule_and_place(name: str) -> None:
    diagnosis = load(str(unpacked() / f"{name}"))
    run = run_of(diagnosis)
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert rules == sorted(set(rules))
    for finding, result in zip(diagnosis.findings, run["results"], strict=True):
        assert rules[result["ruleIndex"]] == result["ruleId"] == finding.code
        assert result["partialFingerprints"] == {FINGERPRINT: finding.id}
        assert result["level"] in ("error", "warning", "note")
        assert finding.id in result["message"]["text"]
        for location in result["locations"]:
            place = location["physicalLocation"]
            assert place["artifactLocation"]["uri"].endswith(finding.where.file.split("/")[-1])
            assert place["region"]["startLine"] >= 1
    failed = {one.code for one in diagnosis.failures}
    levels = {result["ruleId"]: result["level"] for result in run["results"]}
    assert all(levels[code] == "error" for code in failed)
    assert failed or "error" not in levels.values()


def test_files_below_the_root_are_named_from_there() -> None:
    diagnosis = load(str(unpacked() / "graph_break"))
    file = next(one.where.file for one in diagnosis.findings if one.where.file)
    root = Path(file).parents[1]
    run = run_of(diagnosis, root)
    assert run["originalUriBaseIds"][ROOT]["uri"] == f"file://{root}/"
    named = [
        location["physicalLocation"]["artifactLocation"]
        for result in run["results"]
        for location in result["locations"]
    ]
    relative = [one for one in named if one.get("uriBaseId") == ROOT]
    assert relative and all(not one["uri"].startswith(("/", "file:")) for one in relative)
    assert file in {str(root / unquote(one["uri"])) for one in relative}


def test_the_command_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    trace = str(unpacked() / "graph_break")
    assert main(["summary", trace, "--format", "sarif"]) == 0
    assert json.loads(capsys.readouterr().out)["runs"][0]["results"]
    assert main(["summary", trace, "--format", "junit"]) == 2
    assert main(["summary", trace, "--format", "sarif", "--json"]) == 2
    assert "choose one" in capsys.readouterr().err
