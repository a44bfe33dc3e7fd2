"""`check --format junit`: what CI shows of a gate."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

import pytest
from real_traces import unpacked

from tc.tlparse.__main__ import main
from tc.tlparse.cli import load
from tc.tlparse.junit import junit


def test_limits_and_findings_are_cases(capsys: pytest.CaptureFixture[str]) -> None:
    trace = str(unpacked() / "graph_break")
    code = main(
        ["check", trace, "--max-graph-breaks", "1", "--absent", "TC104", "--format", "junit"]
    )
    suite = ElementTree.fromstring(capsys.readouterr().out).find("testsuite")
    assert code == 1 and suite is not None
    assert (suite.get("tests"), suite.get("failures")) == ("3", "2")
    failed = [case.get("name") for case in suite.iter("testcase") if len(case)]
    assert failed[0] == "graph breaks <= 1" and str(failed[1]).startswith("TC104-")
    (over, *_) = suite.iter("failure")
    assert "TC104-" in str(over.text) and "fix  " in str(over.text)
    counted = {one.get("name"): one.get("value") for one in suite.iter("property")}
    assert counted == {"graph_breaks": "3", "recompiles": "0", "failed_compiles": "0"}


def test_a_run_that_passes_has_no_failure(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["check", str(unpacked() / "simple"), "--absent", "TC104", "--format", "junit"])
    suite = ElementTree.fromstring(capsys.readouterr().out)
    assert code == 0 and not list(suite.iter("failure")) and list(suite.iter("testcase"))


def test_any_text_is_xml() -> None:
    (first, *_) = load(str(unpacked() / "graph_break")).findings
    hostile = replace(first, title="a\x00b\x1b[0m <&> \ud800 \uffff", why="\x08")
    case = ElementTree.fromstring(junit((), {}, [hostile], True)).find(".//failure")
    assert case is not None and str(case.get("message")).startswith("a\N{REPLACEMENT CHARACTER}b")
