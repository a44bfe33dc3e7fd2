"""A finding is one row: every reader knows one that a test adds."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import make_codes
import pytest
from tc_log import Compiler

from tc.tlparse.gate import causes
from tc.tlparse.report import render
from tc.tlparse.summary import as_json, text
from tc.trace.findings import CODES, Code, Diagnosis, Order, code_of, is_timed
from tc.trace.findings.model import Event, Where
from tc.trace.findings.rows import FINDINGS, Facts, finding
from tc.tui.look import STATUS


@pytest.fixture(autouse=True)
def _scratch() -> Iterator[None]:
    """Give the registries back as they were."""
    registries: tuple[dict[str, Any], ...] = (FINDINGS, CODES)
    before = [dict(one) for one in registries]
    yield
    for one, rows in zip(registries, before, strict=True):
        one.clear()
        one.update(rows)


def add(order: Order = Order.CAUSES, mark: str = "skipped") -> None:
    """The one place: a function with its code."""

    @finding(Code("TC777", "a planted cause", "take it out", mark), order=order)
    def planted(facts: Facts) -> list[Event]:
        return [
            Event("TC777", "planted", "a test did it", ("take it out",),
                  Where("/home/me/model.py", 3, function="f"), "planted", one)
            for one in facts.session.compiles
        ]  # fmt: skip


def planted(folder: Path) -> Diagnosis:
    return Compiler(folder).start().end()


def test_a_new_finding_is_known_to_every_reader(tmp_path: Path) -> None:
    before = planted(tmp_path / "before")
    assert not before.findings
    add()
    found = planted(tmp_path / "after")
    (one,) = found.findings
    one.verify()
    assert "take it out" in text(found, "x")
    assert [row["code"] for row in as_json(found)["findings"]] == ["TC777"]
    page = b"".join(render(found)).decode()
    shown = re.search(r'"mark": ?"(\w+)", ?"order": ?"(\w+)"', page)
    assert shown is not None and shown.groups() == ("skipped", "CAUSES")
    assert one.kind.mark == "skipped"  # which the terminal explorer draws
    assert causes(found) == [one]
    table = make_codes.with_table((make_codes.ROOT / "docs/tc-report.md").read_text())
    assert "| TC777 | a planted cause | take it out |\n" in table
    assert json.loads(make_codes.text())["TC777"]["fix"] == ["take it out"]


@pytest.mark.parametrize("order", Order)
def test_where_a_finding_is_listed_is_part_of_its_row(order: Order, tmp_path: Path) -> None:
    add(order)
    found = planted(tmp_path)
    (one,) = found.findings
    assert one.timed == is_timed(one.id) == (order in (Order.TIME, Order.RUN))
    assert bool(causes(found)) == (order not in (Order.TIME, Order.RUN, Order.DAMAGE, Order.UNREAD))


def test_a_code_has_one_row() -> None:
    add()
    with pytest.raises(ValueError, match="TC777 has a row already"):
        add()


def test_every_code_has_a_mark_that_viewers_can_draw() -> None:
    assert len(CODES) > 40
    for code in CODES.values():
        assert re.fullmatch(r"TC\d{3}", code.name) and code.cause
        assert code.mark in STATUS
        assert code_of(f"{code.name}-7f3a.c2") is code


def test_a_code_that_only_a_newer_compiler_knows_is_a_break() -> None:
    assert code_of("TC198").mark == "break"


def test_the_table_of_codes_is_made_of_the_rows() -> None:
    page = (make_codes.ROOT / "docs/tc-report.md").read_text("utf-8")
    assert page == make_codes.with_table(page), "run python tests/make_codes.py"
