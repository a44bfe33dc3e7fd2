"""The examples of PyTorch's tutorials: results are eager's, and the page has a row of each."""

from __future__ import annotations

import re

import pytest
import tutorials
from support import ROOT


def test_the_page_has_a_row_of_each_example():
    text = (ROOT / "docs" / "tutorials-table.md").read_text()
    rows = re.findall(r"^\| .*\(`(\w+)`\) \|(.*)$", text, re.M)
    assert [name for name, _ in rows] == list(tutorials.EXAMPLES)
    assert not [cells for _, cells in rows if "differs" in cells or "Error" in cells]


@pytest.mark.slow
@pytest.mark.parametrize("entrance", tutorials.ENTRANCES)
def test_results_are_those_of_eager(entrance):
    found = tutorials.in_process(entrance, "")
    assert {name: one["result"] for name, one in found.items() if one["result"] != "equal"} == {}
