"""`--format brief`: what an agent gets of a run, and the commands that it names."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from real_traces import unpacked

from tc.tlparse.__main__ import main
from tc.tlparse.brief import brief
from tc.tlparse.cli import load


@pytest.mark.parametrize("name", ["graph_break", "recompile", "backend_crash", "train"])
def test_each_finding_has_its_place_its_cause_and_a_fix(name: str) -> None:
    diagnosis = load(str(unpacked() / f"{name}"))
    text = brief(diagnosis, "tc_trace")
    parts = text.split("\n## ")
    assert len(parts) == len(diagnosis.findings) + 2
    for finding, part in zip(diagnosis.findings, parts[1:], strict=False):
        assert part.startswith(f"{finding.id}: {finding.title}")
        assert f"why: {finding.why}" in part and "fix" in part
        assert not finding.where.file or f"at {finding.where.file}:{finding.where.line}" in part
    assert len(text) < 40_000


def test_the_command_it_names_shows_whether_a_finding_is_gone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    trace = str(unpacked() / "graph_break")
    assert main(["summary", trace, "--format", "brief"]) == 0
    named = re.search(r"tc-report check tc_after (--absent .+)", capsys.readouterr().out)
    assert named is not None
    arguments = named[1].split()
    assert main(["check", trace, *arguments]) == 1
    output = capsys.readouterr()
    assert "still there: TC1" in output.err and "FAILED findings that should be gone" in output.out
    assert main(["check", str(unpacked() / "simple"), *arguments]) == 0
    assert "ok     findings that should be gone: 0 are there" in capsys.readouterr().out


def test_a_run_without_findings_says_so() -> None:
    diagnosis = replace(load(str(unpacked() / "graph_break")), findings=[])
    assert brief(diagnosis, "t").endswith("Nothing needs attention.")
