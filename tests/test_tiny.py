"""The whole product in a few seconds: compile, compare with eager, read the trace, report."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import succeed

from tc.trace import session

PROGRAM = """
import torch
import tc

def area(x, y):
    z = torch.sin(x) * 2
    if z.sum() > 1e9:
        z = z - y
    return z + y

compiled = tc.compile(area)
for size in (4, 5, 6):
    x, y = torch.randn(size, 8), torch.randn(8)
    torch.testing.assert_close(compiled(x, y), area(x, y))
print("same as eager")
"""


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The trace of a small program with one graph break and one new size."""
    place = tmp_path_factory.mktemp("tiny")
    (place / "tiny.py").write_text(PROGRAM)
    said = succeed(str(place / "tiny.py"), variables={"TC_TRACE": str(place / "trace")}, warm=True)
    assert said == "same as eager\n"
    return place / "trace"


def test_trace_reports_what_happened(trace: Path) -> None:
    read = session.load(trace)
    assert read.producer == "tc"
    assert not read.defects.counts
    first = next(compiled for compiled in read.compiles if compiled.id == "0/0")
    assert first.function == "area"
    assert {"dynamo_output_graph", "inductor_output_code"} <= {a.name for a in first.artifacts}
    again = [compiled for compiled in read.compiles if compiled.id == "0/1"]
    assert len(again) == 1, "the second size recompiles once, the third reuses the dynamic graph"
    assert not [compiled for compiled in read.compiles if compiled.id == "0/2"]
    notes = [note.name for compiled in session.all_compiles(read) for note in compiled.notes]
    assert "tc_graph_break" in notes and "tc_recompile" in notes


def test_report_of_it(trace: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    succeed("-m", "tc.tlparse", str(trace), "-o", str(page))
    text = page.read_text()
    assert "tiny.py" in text and "area" in text
