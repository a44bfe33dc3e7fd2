"""What CI asked of a run goes in; the same as test cases in JUnit's XML comes out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from tc.trace.findings import Finding

#: what XML 1.0 cannot hold, escaped or not
_REFUSED: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_SUITE: Final = "tc-report"


def junit(
    limits: Sequence[tuple[str, int, int | None]],
    behind: Mapping[str, Sequence[Finding]],
    unwanted: Sequence[Finding],
    asked: bool,
    empty: str = "",
) -> str:
    """Return a test suite: a case for each limit, and one for each unwanted finding.

    Args:
        limits: what is counted, how often it happened, and how often it may.
        behind: for what happens too often, the findings that it consists of.
        unwanted: findings that the baseline does not know, or that should be gone.
        asked: whether there was a baseline, or findings that should be gone; if none of the
            findings is unwanted, one case says so.
        empty: why there was nothing to count, if so.
    """
    suite = Element("testsuite", name=_SUITE)
    properties = SubElement(suite, "properties")
    for name, number, most in limits:
        SubElement(properties, "property", name=name.replace(" ", "_"), value=str(number))
        if most is not None:
            case = SubElement(suite, "testcase", classname=_SUITE, name=f"{name} <= {most}")
            if number > most:
                found = "\n\n".join(map(str, behind.get(name, ())))
                _fail(case, f"{number} {name}, allowed {most}", found)
    if empty:
        case = SubElement(suite, "testcase", classname=_SUITE, name="a compile was recorded")
        _fail(case, empty, "")
    for one in unwanted:
        case = SubElement(suite, "testcase", classname=f"{_SUITE}.{one.code}", name=_text(one.id))
        if one.where.file:
            case.set("file", _text(one.where.file))
            case.set("line", str(one.where.line))
        _fail(case, one.title, str(one))
    if asked and not unwanted:
        SubElement(suite, "testcase", classname=_SUITE, name="no new findings")
    cases = suite.findall("testcase")
    suite.set("tests", str(len(cases)))
    suite.set("failures", str(sum(case.find("failure") is not None for case in cases)))
    suites = Element("testsuites")
    suites.append(suite)
    indent(suites)
    return tostring(suites, "unicode", xml_declaration=True)


def _fail(case: Element, message: str, text: str) -> None:
    SubElement(case, "failure", message=_text(message)).text = _text(text)


def _text(text: str) -> str:
    """Replace what XML cannot hold."""
    return _REFUSED.sub("\N{REPLACEMENT CHARACTER}", text)
