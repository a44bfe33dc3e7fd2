"""What findings, sessions and ledgers show of themselves in a notebook."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from page_reader import Page

from tc.trace import GraphBreak, StackFrame
from tc.trace.compiles import Compile
from tc.trace.findings import Diagnosis, Finding, Where
from tc.trace.findings.ledger import Entry, Ledger
from tc.trace.findings.model import Cause
from tc.trace.notebook import Shown
from tc.trace.ranks import Ranks
from tc.trace.session import Session

HOSTILE = "<script>alert(1)</script>\"'&<b>"


def finding(number: int = 0) -> Finding:
    where = Where(f"/m/{HOSTILE}.py", 6, function=HOSTILE, source=f"    {HOSTILE}")
    return Finding(
        code="TC110", id=f"TC110-{number:04}", title=HOSTILE, where=where, why=HOSTILE,
        fix=(HOSTILE, "- a\n+ b"), count=2, cost=HOSTILE, seconds=1.0, occurrences=(),
        stack=(where, where), causes=(Cause(HOSTILE, "1", "2", "int"),),
    )  # fmt: skip


def graph_break() -> GraphBreak:
    frame = StackFrame(HOSTILE, 6, HOSTILE, HOSTILE)
    return GraphBreak("TC110", HOSTILE, HOSTILE, HOSTILE, 6, HOSTILE, HOSTILE, (HOSTILE,),
                      source_line=HOSTILE, stack=(frame, frame))  # fmt: skip


def compiled(number: int = 0) -> Compile:
    return Compile(f"{number}/0", 1, None, number, function=HOSTILE, file=HOSTILE, line=2,
                   started=True, steps={"entire_frame_compile": 0.25})  # fmt: skip


def session(size: int = 1) -> Session:
    return Session(HOSTILE, compiles=[compiled(number) for number in range(size)])


def diagnosis(size: int = 1) -> Diagnosis:
    findings = [finding(number) for number in range(size)]
    return Diagnosis(session(), (), (), (), (), (), (), Ranks(), findings)


def ledger() -> Ledger:
    return Ledger((HOSTILE,), (Entry(compiled(), (HOSTILE,), (True,)),))


@pytest.mark.parametrize("make", [finding, graph_break, session, diagnosis, ledger])
def test_names_of_the_user_are_text(make: Callable[[], Shown]) -> None:
    shown = make()
    page = Page(shown._repr_html_())
    assert not page.faults
    assert HOSTILE in page.text
    assert not {"script", "b"} & {tag for tag, _ in page.elements}
    assert page.tags("div")[0]["class"] == "tc-shown" and page.tags("th")


@pytest.mark.parametrize("make", [finding, graph_break, session, diagnosis, ledger])
def test_bundle_has_what_is_wanted(make: Callable[[], Shown]) -> None:
    shown = make()
    bundle = shown._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "text/html"}
    assert bundle["text/html"] == shown._repr_html_()
    assert HOSTILE in bundle["text/plain"] and "<td" not in bundle["text/plain"]
    assert set(shown._repr_mimebundle_(include={"text/plain"})) == {"text/plain"}
    assert set(shown._repr_mimebundle_(exclude={"text/plain"})) == {"text/html"}
    assert set(shown._repr_mimebundle_((), ())) == set(bundle)


def test_rules_of_style_stay_inside() -> None:
    style = re.findall(r"(?s)<style>(.*?)</style>", finding()._repr_html_())
    rules = [rule.strip() for rule in re.findall(r"([^{}]+)\{", style[0])]
    assert len(rules) > 5
    for rule in rules:
        assert all(part.strip().startswith(".tc-shown") for part in rule.split(",")), rule


def test_a_finding_reports_place_line_and_fixes() -> None:
    page = Page(finding()._repr_html_())
    assert "review, unchecked" in page.text and "2 frames, outermost first" in page.text
    assert [one["scope"] for one in page.tags("th")] == ["row"] * len(page.tags("th"))
    assert len(page.tags("caption")) == 1


def test_many_findings_are_folded() -> None:
    page = Page(diagnosis(13)._repr_html_())
    assert "3 more" in page.text and not page.faults
    assert all(f"TC110-{number:04}" in page.text for number in range(13))


def test_a_long_session_says_what_it_leaves_out() -> None:
    page = Page(session(104)._repr_html_())
    assert "4 more are left out." in page.text and "104 compiles" in page.text
    assert str(session(104)).endswith("4 more are left out.")


def test_an_empty_session_says_so() -> None:
    shown = session(0)
    assert "0 compiles" in Page(shown._repr_html_()).text
    assert Page(diagnosis(0)._repr_html_()).text.endswith("0 findings")
